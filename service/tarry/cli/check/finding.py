"""What `tarry check` says: one line for each thing that it looked at."""

from typing import Final, NamedTuple

ANSWER_WITHIN_S: Final = 8.0
"""How long a broker may take to answer: people wait for this command."""

OK, FAIL, NOTE = "ok", "FAIL", "note"


class Finding(NamedTuple):
    """One line of the report.

    Args:
        word: `OK`, `FAIL` or `NOTE`.
        text: what was looked at, a colon, and how it is.
    """

    word: str
    text: str
