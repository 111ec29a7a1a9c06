"""All metrics: name, meaning, labels and histogram buckets.

Names and units follow Prometheus's conventions: base units, and `_total` for counters. No label has values that a
sender can choose freely, such as a key or an id. The label `target` has only names of topics that exist, and has a name
only while messages for that topic are parked. The label `topic` has only the intake and its own topics.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, help text, kind, label names and bucket bounds.

    Attributes:
        name: the name in Prometheus, without the `_total` of a counter.
        help: the text of its `# HELP` line.
        kind: the supervisor adds up counters and histograms over all processes, including processes that have ended;
            gauges only over processes that run.
        labels: the names of its labels. Only gauges have the label `process`; the supervisor adds its value.
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
    "Messages read from the intake, including messages that a take-over reads again.",
    "counter",
    ("intake",),
)
PLACED: Final = Family(
    "tarry_placed_messages",
    "Received messages that were not known to be done: put into the timing wheel, or queued to be filed or "
    "to be written as dead letters.",
    "counter",
    ("intake",),
)
FIRED: Final = Family(
    "tarry_fired_messages", "Committed deliveries of messages to their targets.", "counter", ("intake",)
)
FILED: Final = Family(
    "tarry_filed_messages",
    "Messages written to a bucket of the overflow wheel, or to the parked log; each time that a message moves down a "
    "level or is filed again counts.",
    "counter",
    ("intake",),
)
DEAD: Final = Family("tarry_dead_messages", "Committed dead letters, by error code.", "counter", ("intake", "code"))
REFUSED_LETTERS: Final = Family(
    "tarry_refused_letters",
    "Messages whose dead letter the dead-letter topic refuses as too large, even compressed; they stay where they are "
    "until an operator raises the limit of that topic and restarts the service.",
    "gauge",
    ("intake",),
)
WAITING: Final = Family("tarry_waiting_messages", "Messages in memory or in the parked log.", "gauge", ("intake",))
PASSED_OVER: Final = Family(
    "tarry_passed_over_messages",
    "Messages that are due far in the future, and that the process reads again when it can file them.",
    "gauge",
    ("intake",),
)
IN_BUCKETS: Final = Family(
    "tarry_bucket_messages",
    "Messages that wait in buckets of the overflow wheel; an upper bound while not all records of their logs are read.",
    "gauge",
    ("intake", "level"),
)
DUE_WITHIN: Final = Family(
    "tarry_due_messages",
    "Messages of tarry_bucket_messages that are due within a time from now, as far as whole buckets tell.",
    "gauge",
    ("intake", "within"),
)
OVERDUE: Final = Family(
    "tarry_oldest_overdue_seconds",
    "For how long the oldest message of the partition has been due: in memory or in a closed bucket, and not parked.",
    "gauge",
    ("intake", "partition"),
)
SILENT: Final = Family(
    "tarry_brokers_silent_seconds",
    "For how long no broker has answered the process; 0 if one has answered within the last 3 seconds.",
    "gauge",
    ("process",),
)
TRIM_FAILURES: Final = Family(
    "tarry_trim_failures",
    "Tries to delete done records from a topic of the intake that the brokers refused, or did not answer.",
    "counter",
    ("intake",),
)
UNTRIMMED: Final = Family(
    "tarry_untrimmed_records",
    "Records in the logs of the partition's levels that may be deleted and are not deleted yet: the brokers are asked "
    "once a second.",
    "gauge",
    ("intake", "partition"),
)
OPEN_TRANSACTION: Final = Family(
    "tarry_open_transaction_seconds",
    "For how long a transaction has been open in a log of the partition that the service reads: records behind it are "
    "hidden. A log has a row only while its transaction is a minute old or older.",
    "gauge",
    ("intake", "partition", "topic"),
)
NAMES: Final = Family("tarry_names", "Names under which messages wait.", "gauge", ("intake",))
NAMED: Final = Family(
    "tarry_named_records",
    "Committed results of decisions on named records: replaced, scheduled, skipped, cancelled, and so on.",
    "counter",
    ("intake", "outcome"),
)
SCHEDULES_CONTINUED: Final = Family(
    "tarry_schedules_continued",
    "Committed deliveries of occurrences of schedules that go on: the next record of each is in the intake.",
    "counter",
    ("intake",),
)
SCHEDULES_DEAD: Final = Family(
    "tarry_schedules_dead",
    "Schedules that ended with a dead letter, because an occurrence of them could not be delivered.",
    "counter",
    ("intake",),
)
NAMED_ADOPTED: Final = Family(
    "tarry_named_adopted_messages",
    "Committed deliveries of named messages that were adopted without their names: some may have been replaced before.",
    "counter",
    ("intake",),
)
PARKED: Final = Family(
    "tarry_parked_messages",
    "Messages that are due, in memory or in the parked log, whose target is away, or set apart from the others.",
    "gauge",
    ("intake", "target"),
)
PAUSED: Final = Family(
    "tarry_target_paused_seconds",
    "For how long the target has been paused, for each process that obeys it.",
    "gauge",
    ("intake", "target", "process"),
)
PAUSED_TARGETS: Final = Family(
    "tarry_paused_targets", "Targets of the intake that are paused.", "gauge", ("intake", "process")
)
UNREADABLE_PAUSES: Final = Family(
    "tarry_unreadable_pauses",
    "Records of the intake's log of pauses that could not be read; each counts as a pause of its target.",
    "counter",
    ("intake",),
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
    "Messages that one committed firing transaction completed.",
    "histogram",
    (),
    (1.0, 5.0, 20.0, 100.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 20_000.0),
)
ABORTED: Final = Family(
    "tarry_aborted_transactions", "Firing transactions that aborted; the process tries their messages again.", "counter"
)
LAG: Final = Family(
    "tarry_position_lag_messages",
    "Offsets of the intake partition that are not read yet, up to its end; transaction markers are counted too.",
    "gauge",
    ("intake", "partition"),
)
REBALANCES: Final = Family(
    "tarry_rebalances",
    "Decisions of the group about the partitions of a process: assigned, revoked, lost.",
    "counter",
    ("decision",),
)
TAKEOVERS: Final = Family("tarry_takeovers", "Partitions taken over.", "counter", ("intake",))
TAKEOVER_SECONDS: Final = Family(
    "tarry_takeover_duration_seconds",
    "From the assignment of partitions to the end of their take-over and replay.",
    "histogram",
    (),
    (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0),
)
ASSIGNED: Final = Family(
    "tarry_assigned_partitions", "Partitions that the group assigned to the process.", "gauge", ("process",)
)
SERVED: Final = Family(
    "tarry_served_partitions",
    "1 while a process of the service has taken the partition over; 0 while none of them has.",
    "gauge",
    ("intake", "partition"),
)
QUARANTINED: Final = Family(
    "tarry_quarantined_partitions",
    "1 while the partition is not served and only an operator can repair it; the log and /readyz say why.",
    "gauge",
    ("intake", "partition"),
)
WITHOUT_LEADER: Final = Family(
    "tarry_waiting_partitions",
    "1 while the partition is not served because one of its own logs has no leader, or a broker does not know that "
    "log; the log and /readyz say which.",
    "gauge",
    ("intake", "partition"),
)
REPLAYING: Final = Family(
    "tarry_replaying_partitions",
    "Partitions of the process that are being taken over or replayed, and do not fire yet.",
    "gauge",
    ("process",),
)
HELD_BYTES: Final = Family(
    "tarry_held_bytes",
    "Memory of the messages that the process holds, and of what it remembers about other messages.",
    "gauge",
    ("process",),
)
BUDGET_BYTES: Final = Family(
    "tarry_memory_budget_bytes", "Limit for tarry_held_bytes; beyond it reading pauses.", "gauge", ("process",)
)
CLOCK_AHEAD: Final = Family(
    "tarry_clock_ahead_seconds",
    "How far the machine's clock is ahead of the time that the process uses; 0 if the process follows that clock.",
    "gauge",
    ("process",),
)
CLOCK_SKEW: Final = Family(
    "tarry_clock_skew_seconds",
    "The machine's clock less the brokers' clock, by their last answer; negative if the machine's clock is behind.",
    "gauge",
    ("process",),
)
UP: Final = Family(
    "tarry_process_up", "1 if the process lives and reported in time, otherwise 0.", "gauge", ("process",)
)
RESTARTS: Final = Family("tarry_process_restarts", "Restarts of processes.", "counter")
HANGS: Final = Family("tarry_process_hangs", "Processes that were killed because they hung.", "counter")

FAMILIES: Final = (
    RECEIVED,
    PLACED,
    FILED,
    FIRED,
    DEAD,
    REFUSED_LETTERS,
    WAITING,
    PASSED_OVER,
    IN_BUCKETS,
    DUE_WITHIN,
    OVERDUE,
    SILENT,
    TRIM_FAILURES,
    UNTRIMMED,
    OPEN_TRANSACTION,
    PARKED,
    PAUSED,
    PAUSED_TARGETS,
    UNREADABLE_PAUSES,
    NAMES,
    NAMED,
    NAMED_ADOPTED,
    SCHEDULES_CONTINUED,
    SCHEDULES_DEAD,
    LATENESS,
    TRANSACTION_SECONDS,
    TRANSACTION_MESSAGES,
    ABORTED,
    LAG,
    REBALANCES,
    TAKEOVERS,
    TAKEOVER_SECONDS,
    ASSIGNED,
    SERVED,
    QUARANTINED,
    WITHOUT_LEADER,
    REPLAYING,
    HELD_BYTES,
    BUDGET_BYTES,
    CLOCK_AHEAD,
    CLOCK_SKEW,
    UP,
    RESTARTS,
    HANGS,
)
