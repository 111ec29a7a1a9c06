"""Leases: the holder of each is told to renew it before it ends, and not after it.

All leases end at the same instant. A window spreads the messages, so that not all holders come at once. A message that
is late, because the service or the target was away, would make its holder renew a lease that somebody else has by then.
So it expires with the lease, and is a dead letter instead.

    python -m examples.leases --bootstrap-servers 127.0.0.1:9092
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from examples.common import check_served, make_topics, options, records
from tarry.client import DelayedMessage, DelayedProducer, OutcomeReader

LEASES: Final = 12
RENEW_IN: Final = timedelta(seconds=1)
WINDOW: Final = timedelta(seconds=3)
ENDS_IN: Final = timedelta(minutes=1)


def renewals(topic: str, now: datetime) -> Iterator[DelayedMessage]:
    """The messages to the holders. The last lease ended while this program was down: its message comes too late."""
    for number in range(LEASES):
        yield DelayedMessage(
            topic, "renew", f"lease-{number}", at=now + RENEW_IN, window=WINDOW, expires_at=now + ENDS_IN
        )
    yield DelayedMessage(topic, "renew", "lease-late", at=now - ENDS_IN, expires_at=now - RENEW_IN)


def main() -> None:
    """Send a message for each lease, and print when they arrive, and what became of the late one."""
    arguments = options(__doc__).parse_args()
    servers, intake, topic = arguments.bootstrap_servers, arguments.intake, f"{arguments.prefix}.leases"
    check_served(servers, intake)
    make_topics(servers, topic)
    with DelayedProducer(servers, intake) as producer, OutcomeReader(servers, intake) as outcomes:
        *sent, late = producer.send_many(renewals(topic, datetime.now(UTC)))
        spread = max(one.due for one in sent) - min(one.due for one in sent)
        print(f"{len(sent)} leases are to be renewed within {spread.total_seconds():.1f} s")
        arrived = set()
        for record in records(servers, topic, f"{topic}.reader"):
            arrived.add((record.key() or b"").decode())
            if len(arrived) == len(sent):
                break
        print(f"{len(arrived)} holders were told, lease-late among them: {'lease-late' in arrived}")
        result = outcomes.await_outcome(late)
        print(f"lease-late: {result['outcome']}, {result['reason']}")


if __name__ == "__main__":
    main()
