"""Logging: one JSON line an event on stderr, or a readable line on a terminal.

Event names are constants; what varies stands in fields. Never a payload, and nothing per message above DEBUG.
"""

import logging
import re
import sys
from typing import Any, Literal

import structlog

AGAIN_AFTER_S = 10.0
"""How soon a line of the client library that differs in numbers alone may come again."""

MOST_KINDS = 1_000

_VARYING = re.compile(r"[0-9]+")

Level = Literal["debug", "info", "warning", "error"]


def configure(level: Level = "info", **fields: object) -> Any:
    """Set logging up for this process.

    Args:
        level: what is logged: this and what is worse.
        fields: stand in every event of this process.

    Returns:
        The logger: `logger.info("event_name", field=value)`.
    """
    numeric = logging.getLevelNamesMapping()[level.upper()]
    render: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, render],
        wrapper_class=structlog.make_filtering_bound_logger(numeric),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger = structlog.get_logger(**fields)
    library = logging.getLogger("librdkafka")
    library.handlers = [_Forward(logger)]
    library.setLevel(numeric)
    library.propagate = False
    return logger


class _Forward(logging.Handler):
    """The client library's own lines, in our form; a line that comes again and again is thinned out.

    Where a broker is away, each client says so of each of its connections, several times a second.
    """

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = logger
        self._said: dict[str, tuple[float, int]] = {}
        """When each kind of line was forwarded last, and how many of it were left out since."""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        kind = _VARYING.sub("", text)
        last_s, left_out = self._said.get(kind, (-AGAIN_AFTER_S, 0))
        if record.created - last_s < AGAIN_AFTER_S:
            self._said[kind] = (last_s, left_out + 1)
            return
        if len(self._said) >= MOST_KINDS:
            self._said.clear()
        self._said[kind] = (record.created, 0)
        more = {"left_out": left_out} if left_out else {}
        self._logger.log(record.levelno, "librdkafka", text=text, **more)
