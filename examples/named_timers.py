"""Timers with names: at most one message of a key and a name waits, so no handle is stored anywhere.

- Debounce: each key stroke of a customer moves the search on by the delay. Only the last one searches.
- Throttle: events of a customer are told by one mail. Those that come while it waits are part of it.
- Lease: a worker renews its lease again and again. When it stops, the message that the lease has expired arrives.

    python -m examples.named_timers --bootstrap-servers 127.0.0.1:9092
"""

import time
from datetime import timedelta
from typing import Final

from examples.common import check_served, make_topics, options, records
from tarry.client import DelayedProducer

DELAY: Final = timedelta(seconds=3)
KEY: Final = b"customer-17"
TYPED: Final = ("t", "ta", "tar", "tarr", "tarry")
MAILS: Final = 6
RENEWALS: Final = 4


def main() -> None:
    """Send the messages of all three, and print what arrived of each."""
    arguments = options(__doc__).parse_args()
    servers, intake, topic = arguments.bootstrap_servers, arguments.intake, f"{arguments.prefix}.timers"
    check_served(servers, intake)
    make_topics(servers, topic)
    sent = {"search": len(TYPED), "mail": MAILS, "lease": RENEWALS}
    with DelayedProducer(servers, intake) as producer:
        for text in TYPED:
            producer.send(topic, f"search: {text}", KEY, name="search", delay=DELAY)
        for number in range(MAILS):
            producer.send(topic, f"mail: event {number}", KEY, name="mail", only_if="absent", delay=DELAY)
        for number in range(RENEWALS):
            producer.send(topic, f"lease: expired after renewal {number}", KEY, name="lease", delay=DELAY)
            time.sleep(0.2)
    arrived = {}
    for record in records(servers, topic, f"{topic}.reader"):
        name, _, what = (record.value() or b"").decode().partition(": ")
        arrived[name] = what
        if name == "lease":  # it was sent last, so it is due last
            break
    for name, count in sent.items():
        print(f"{name}: {count} sent, arrived: {arrived.get(name)}")


if __name__ == "__main__":
    main()
