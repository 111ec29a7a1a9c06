"""The client library's own lines, thinned out.

Where a broker is away, each client says so of each of its connections, several times a second: a thousand lines in half
a minute (librdkafka 2.16), which differ in numbers alone.
"""

import logging
import re

AGAIN_AFTER_S = 10.0
"""How soon a line is let through that says the same as one before."""

MOST_KINDS = 1_000

_VARYING = re.compile(r"[0-9]+")


class Thinning(logging.Filter):
    """Lets a line through once in a while; its `left_out` says how many like it were not, since the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, tuple[float, int]] = {}
        """When each kind of line was let through last, and how many of it were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is let through."""
        kind = _VARYING.sub("", record.getMessage())
        last_s, left_out = self._said.get(kind, (-AGAIN_AFTER_S, 0))
        if record.created - last_s < AGAIN_AFTER_S:
            self._said[kind] = (last_s, left_out + 1)
            return False
        if len(self._said) >= MOST_KINDS:
            self._said.clear()
        self._said[kind] = (record.created, 0)
        record.left_out = left_out
        return True


def library_log() -> logging.Logger:
    """The logger that each client gets."""
    log = logging.getLogger("librdkafka")
    if not any(isinstance(one, Thinning) for one in log.filters):
        log.addFilter(Thinning())
    return log
