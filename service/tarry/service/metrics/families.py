"""All metrics: name, meaning, labels and histogram buckets.

Names and units follow Prometheus's conventions: base units, and `_total` for counters. No label has values that a
sender can choose freely, such as a key or an id. The label `target` only has names of topics that exist, while messages
for them are parked.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with all its label values.

    Attributes:
        name: the name in Prometheus, without the `_total` of a counter.
        help: its meaning, for people.
        kind: counters and histograms are added up over all processes, including those that have ended; gauges only over
            those that run.
        labels: the names of its labels. The supervisor adds the value of `process`, which only gauges have.
        bounds: the upper bounds of a histogram's buckets, ascending, without infinity.
    """

    name: str
    help: str
    kind: MetricKind
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind == "histogram") != bool(self.bounds) or any(a >= b for a, b in pairwise(self.bounds)):
            raise ValueError(f"{self.name}: a histogram needs ascending bounds, and no other kind may have bounds")


RECEIVED: Final = Family(
    "tarry_received_messages",
    "Messages read from the intake, with those that a take-over reads again.",
    "counter",
    ("intake",),
)
PLACED: Final = Family(
    "tarry_placed_messages",
    "Messages that were given their place: in the timing wheel, or among the dead letters to be written.",
    "counter",
    ("intake",),
)
FIRED: Final = Family("tarry_fired_messages", "Messages delivered to their targets.", "counter", ("intake",))
FILED: Final = Family(
    "tarry_filed_messages",
    "Messages written to a bucket of the overflow wheel; one that goes down a level counts again.",
    "counter",
    ("intake",),
)
DEAD: Final = Family(
    "tarry_dead_messages", "Messages written to the intake's dead letters.", "counter", ("intake", "code")
)
REFUSED_LETTERS: Final = Family(
    "tarry_refused_letters",
    "Messages whose dead letter its topic refuses, even compressed: they wait where they stand for a higher limit.",
    "gauge",
    ("intake",),
)
WAITING: Final = Family("tarry_waiting_messages", "Messages held in memory until they are due.", "gauge", ("intake",))
IN_BUCKETS: Final = Family(
    "tarry_bucket_messages",
    "Messages that wait in buckets of the overflow wheel; at most, because markers of transactions are counted too.",
    "gauge",
    ("intake", "level"),
)
UNEMPTIED: Final = Family(
    "tarry_unemptied_buckets",
    "Buckets of a partition that are done, and whose records are not deleted yet; with 80 no more of it are closed.",
    "gauge",
    ("intake", "partition"),
)
PARKED: Final = Family(
    "tarry_parked_messages",
    "Messages of those waiting that are due, and whose target is away or takes them apart from others.",
    "gauge",
    ("intake", "target"),
)
LATENESS: Final = Family(
    "tarry_lateness_seconds",
    "From a message's due time to the commit of its delivery.",
    "histogram",
    ("intake",),
    (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.25, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)
TRANSACTION_SECONDS: Final = Family(
    "tarry_transaction_duration_seconds",
    "From the first record of a committed firing transaction to its commit.",
    "histogram",
    (),
    (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.25, 2.5, 5.0, 10.0, 30.0),
)
TRANSACTION_MESSAGES: Final = Family(
    "tarry_transaction_messages",
    "Messages that a committed firing transaction completed.",
    "histogram",
    (),
    (1.0, 5.0, 20.0, 100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 20_000.0),
)
ABORTED: Final = Family("tarry_aborted_transactions", "Firing transactions that aborted; tried again.", "counter")
LAG: Final = Family(
    "tarry_position_lag_messages",
    "Offsets from where a partition of the intake has been read to, to its end.",
    "gauge",
    ("intake", "partition"),
)
REBALANCES: Final = Family(
    "tarry_rebalances", "The group's decisions: assigned, revoked, lost.", "counter", ("decision",)
)
TAKEOVERS: Final = Family("tarry_takeovers", "Partitions taken over.", "counter", ("intake",))
TAKEOVER_SECONDS: Final = Family(
    "tarry_takeover_duration_seconds",
    "From being assigned partitions to having all of them taken over and replayed.",
    "histogram",
    (),
    (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0),
)
ASSIGNED: Final = Family("tarry_assigned_partitions", "Partitions that the group gave it.", "gauge", ("process",))
QUARANTINED: Final = Family(
    "tarry_quarantined_partitions",
    "1 for each partition that is not served until somebody mends it; the log and /readyz say why.",
    "gauge",
    ("intake", "partition"),
)
WITHOUT_LEADER: Final = Family(
    "tarry_waiting_partitions",
    "1 for each partition that waits for a log of its own: no leader, or not known; the log and /readyz say which.",
    "gauge",
    ("intake", "partition"),
)
REPLAYING: Final = Family(
    "tarry_replaying_partitions",
    "Partitions of it that are being taken over or replayed, and do not fire yet.",
    "gauge",
    ("process",),
)
HELD_BYTES: Final = Family(
    "tarry_held_bytes", "Memory of the messages held, and of what is known of others.", "gauge", ("process",)
)
BUDGET_BYTES: Final = Family("tarry_memory_budget_bytes", "Memory that messages held may take.", "gauge", ("process",))
CLOCK_AHEAD: Final = Family(
    "tarry_clock_ahead_seconds",
    "How far the machine's clock is ahead of the time that the process goes by; 0 where it follows that clock.",
    "gauge",
    ("process",),
)
UP: Final = Family("tarry_process_up", "Whether the process lives and was heard of in time.", "gauge", ("process",))
RESTARTS: Final = Family("tarry_process_restarts", "Times that processes were started anew.", "counter")
HANGS: Final = Family("tarry_process_hangs", "Times that processes were killed because they hung.", "counter")

FAMILIES: Final = (
    RECEIVED,
    PLACED,
    FILED,
    FIRED,
    DEAD,
    REFUSED_LETTERS,
    WAITING,
    IN_BUCKETS,
    UNEMPTIED,
    PARKED,
    LATENESS,
    TRANSACTION_SECONDS,
    TRANSACTION_MESSAGES,
    ABORTED,
    LAG,
    REBALANCES,
    TAKEOVERS,
    TAKEOVER_SECONDS,
    ASSIGNED,
    QUARANTINED,
    WITHOUT_LEADER,
    REPLAYING,
    HELD_BYTES,
    BUDGET_BYTES,
    CLOCK_AHEAD,
    UP,
    RESTARTS,
    HANGS,
)
