"""The faults that an audit knows. Without PySpark, for the command that names them."""

from typing import Final

FAULTS: Final = {
    "lost": "due, and not at the target",
    "duplicate": "delivered twice",
    "early": "delivered before it was due",
    "order": "behind one of its key that was due later",
    "damaged": "key, value, id or due time are others at the target",
    "cancelled": "cancelled, and delivered nevertheless",
    "unexpected": "at a target, and accepted nowhere, or dead",
}
"""What each means."""
