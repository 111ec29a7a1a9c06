"""The faults that an audit knows, and what else a record at a target may be. Without PySpark, for the command."""

from typing import Final

FAULTS: Final = {
    "lost": "due, and not at the target",
    "duplicate": "delivered twice",
    "early": "delivered before it was due",
    "order": "behind one of its key that was due later",
    "damaged": "key, value, id or due time are others at the target",
    "misplaced": "at another partition of the target than its key's, or than it asked for",
    "late": "later than --max-late allows",
    "cancelled": "cancelled, and delivered nevertheless",
    "no-result": "delivered, and no result says so",
    "settled-twice": "several results say what became of it",
    "unexpected": "at a target, and accepted nowhere, or dead",
}
"""What each means. A record with several faults is counted once among the records, under the last of them here."""

MATCHED: Final = "matched"
CARRIED: Final = "carried"
OTHERWISE: Final = "otherwise"

NO_FAULTS: Final = {
    MATCHED: "the delivery of a message, with no fault",
    CARRIED: "of a message that the next run judges",
    OTHERWISE: "due sooner, or to another target, than the intake's delay and target of now say",
    "elsewhere": "a copy of a message that was for another target",
    "foreign": "without tarry-source: the service did not write it",
    "other-intake": "of an intake that this audit does not look at",
    "unjudged": "of a message that no run could read, or that is not of --from and --to",
}
"""What a record at a target is where it is no fault."""
