"""Logging: one JSON line an event on stderr, or a readable line on a terminal.

Event names are constants; what varies stands in fields. Never a payload, and nothing per message above DEBUG.
"""

import logging
import sys
from typing import Any, Literal

import structlog

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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logger = structlog.get_logger(**fields)
    library = logging.getLogger("librdkafka")
    library.handlers = [_Forward(logger)]
    library.setLevel(numeric)
    library.propagate = False
    return logger


class _Forward(logging.Handler):
    """The client library's own lines, in our form."""

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(record.levelno, "librdkafka", text=record.getMessage())
