"""The result of one check of `tarry check`."""

from typing import Final, NamedTuple

ANSWER_WITHIN_S: Final = 8.0
"""How long the command waits for an answer of a broker, in seconds. Short, because a person waits for the command."""

OK, FAIL, NOTE = "ok", "FAIL", "note"


class Finding(NamedTuple):
    """One line of the report.

    Args:
        word: `OK`, `FAIL` or `NOTE`.
        text: the thing that was checked, a colon, and the result.
    """

    word: str
    text: str
