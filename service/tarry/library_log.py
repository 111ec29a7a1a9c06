"""A rate limit for log lines, and the log of librdkafka's lines.

While a broker is down, each client logs the failure of each connection several times a second: a thousand lines in half
a minute (librdkafka 2.16), which differ in numbers only.
"""

import logging
import re

AGAIN_AFTER_S = 10.0
"""The least time between two lines that differ in numbers only, in seconds."""

MOST_KINDS = 1_000
"""How many different lines are remembered; beyond that, all are forgotten, so that memory stays bounded."""

_VARYING = re.compile(r"[0-9]+")


class Repeats:
    """Lets one line of each kind pass within `AGAIN_AFTER_S`; lines that differ in numbers only are of one kind."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, int]] = {}
        """For each kind of line: when the last one passed, and how many were dropped since."""

    def left_out(self, text: str, at_s: float) -> int | None:
        """Return how many lines of this kind were dropped since the last one; None: this one is to be dropped, too."""
        kind = _VARYING.sub("", text)
        last_s, left_out = self._said.get(kind, (-AGAIN_AFTER_S, 0))
        if at_s - last_s < AGAIN_AFTER_S:
            self._said[kind] = (last_s, left_out + 1)
            return None
        if len(self._said) >= MOST_KINDS:
            self._said.clear()
        self._said[kind] = (at_s, 0)
        return left_out


class Thinning(logging.Filter):
    """Passes one line of each kind within `AGAIN_AFTER_S`; its `left_out` counts those dropped since the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._repeats = Repeats()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line passes."""
        left_out = self._repeats.left_out(record.getMessage(), record.created)
        record.left_out = left_out
        return left_out is not None


def library_log() -> logging.Logger:
    """Return the logger for librdkafka clients, with the rate limit."""
    log = logging.getLogger("librdkafka")
    if not any(isinstance(one, Thinning) for one in log.filters):
        log.addFilter(Thinning())
    return log
