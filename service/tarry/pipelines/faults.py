"""The faults that an audit finds, and the other kinds of records at a target.

The module does not import PySpark, because the CLI uses it.
"""

from typing import Final

FAULTS: Final = {
    "lost": "due, and not at the target",
    "duplicate": "delivered twice",
    "early": "delivered before it was due",
    "order": "after a message of the same key that was due later",
    "damaged": "key, value, id or due time differ at the target",
    "misplaced": "not at the partition of its key, or not at the requested partition",
    "late": "later than --max-late allows",
    "cancelled": "cancelled, replaced or skipped, but delivered",
    "no-result": "delivered without a result",
    "settled-twice": "has several final results",
    "unexpected": "at a target, but accepted by no intake, or dead",
}
"""Each fault and its meaning. Among the records, one with several faults is counted once, under the last of them."""

MATCHED: Final = "matched"
CARRIED: Final = "carried"
OTHERWISE: Final = "otherwise"

NO_FAULTS: Final = {
    MATCHED: "the delivery of a message, without a fault",
    CARRIED: "of a message that the next run judges",
    OTHERWISE: "its due time is earlier, or its target another, than the current delay and target of the intake give",
    "elsewhere": "a copy of a message for another target",
    "foreign": "without tarry-source: the service did not write it",
    "other-intake": "of an intake that this run does not audit",
    "unjudged": "of a message that no run could read, or outside --from and --to",
}
"""The kinds of records at a target that are no fault."""
