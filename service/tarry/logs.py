"""Logging to stderr: one JSON line for each event, or a human-readable line on a terminal.

Event names are constants; variable data goes into fields. Payloads are never logged. Events of single messages are
logged at DEBUG at most.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any, Final, Literal

import structlog

from tarry.library_log import library_log

Level = Literal["debug", "info", "warning", "error"]


def configure(level: Level = "info", **fields: object) -> Any:
    """Configure logging for this process.

    Args:
        level: the lowest level to log.
        fields: added to every event of this process.

    Returns:
        The logger; call it as `logger.info("event_name", field=value)`.
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
    library = library_log()
    library.handlers = [_Forward(logger)]
    library.setLevel(numeric)
    library.propagate = False
    return logger


_ERRORS: Final = frozenset({"partition_quarantined", "clock_ahead"})
_WARNINGS: Final = frozenset({"partition_waits", "clock_stepped", "clock_not_compared", "dead_letter_refused"})


def speaker(logger: Any) -> Callable[..., None]:
    """Return a function that logs events: a few names as errors or warnings, all others as info.

    Args:
        logger: from `configure`.
    """

    def say(event: str, **fields: object) -> None:
        if event in _ERRORS:
            logger.error(event, **fields)
        elif event in _WARNINGS:
            logger.warning(event, **fields)
        else:
            logger.info(event, **fields)

    return say


class _Forward(logging.Handler):
    """Forwards librdkafka's log lines to our logger, as events `librdkafka`."""

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        left_out = getattr(record, "left_out", 0)
        more = {"left_out": left_out} if left_out else {}
        self._logger.log(record.levelno, "librdkafka", text=record.getMessage(), **more)
