"""Nightly reports: each shop gets its report at half past two in the night of its own zone.

Each start of the program sends all schedules. A schedule that goes on already is left alone, so a deploy neither
shifts a report nor doubles it. The worker that makes the reports is an ordinary consumer. An outage makes one late
report, and not one for each night that was missed. When a shop closes, its schedule is cancelled by key and name.

To watch it without waiting for the night, one shop has its night each second.

    python -m examples.nightly_report --bootstrap-servers 127.0.0.1:9092
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from examples.common import check_served, make_topics, options, records
from tarry.client import DelayedProducer, OutcomeReader, RepeatedMessage

ZONES: Final = {"berlin": "Europe/Berlin", "new-york": "America/New_York", "tokyo": "Asia/Tokyo"}
NAME: Final = "report"
NIGHTS: Final = 3


def schedules(topic: str) -> Iterator[RepeatedMessage]:
    """The schedules of all shops, as each start of the program sends them."""
    for shop, zone in ZONES.items():
        yield RepeatedMessage(topic, "make", shop, NAME, cron="30 2 * * *", zone=zone, only_if="absent")
    yield RepeatedMessage(topic, "make", "fast", NAME, every=timedelta(seconds=1), only_if="absent")


def deploy(producer: DelayedProducer, outcomes: OutcomeReader, topic: str) -> str:
    """Send all schedules; return what became of each."""
    receipts = list(producer.send_many(schedules(topic)))
    return ", ".join(outcomes.await_decision(receipt)["outcome"] for receipt in receipts)


def main() -> None:
    """Deploy twice, make some reports, and close the shops."""
    arguments = options(__doc__).parse_args()
    servers, intake, topic = arguments.bootstrap_servers, arguments.intake, f"{arguments.prefix}.reports"
    check_served(servers, intake)
    make_topics(servers, topic)
    with DelayedProducer(servers, intake) as producer, OutcomeReader(servers, intake) as outcomes:
        print(f"first deploy: {deploy(producer, outcomes, topic)}")
        print(f"second deploy: {deploy(producer, outcomes, topic)}")
        nights = []
        for record in records(servers, topic, f"{topic}.worker"):
            headers = dict(record.headers() or [])
            nights.append(f"{(record.key() or b'').decode()} {int(headers['tarry-occurrence'] or 0)}")
            if len(nights) == NIGHTS:
                break
        print(f"reports: {', '.join(nights)}")
        for shop in (*ZONES, "fast"):
            cancelled = outcomes.await_outcome(producer.cancel_named(shop, NAME))
            print(f"{shop} closes: {cancelled['outcome']}")


if __name__ == "__main__":
    main()
