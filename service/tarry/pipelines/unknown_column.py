"""The options of `apply` for columns that its target lacks. The module does not import PySpark: the CLI uses it."""

from enum import StrEnum


class OnUnknownColumn(StrEnum):
    """What to do if a change has a column that its table lacks."""

    FAIL = "fail"
    """End the run before it applies any change of the batch."""
    IGNORE = "ignore"
    """Ignore its values, and count them."""
    ADD = "add"
    """Add the column to the table as text, which holds every value as the log writes it."""
