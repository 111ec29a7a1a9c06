"""What `apply` does with columns that its target has not. Without PySpark, for the command."""

from enum import StrEnum


class OnUnknownColumn(StrEnum):
    """What is done where a change has a column that its table has not."""

    FAIL = "fail"
    """End, before anything of the batch is applied."""
    IGNORE = "ignore"
    """Leave its values out, and count them."""
    ADD = "add"
    """Add the column to the table, as text, which holds every value as the log writes it."""
