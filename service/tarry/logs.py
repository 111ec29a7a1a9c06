"""Logging to stderr: one JSON line for each event, or a human-readable line on a terminal.

Event names are constants; variable data goes into fields. Payloads are never logged. Events of single messages are
logged at DEBUG at most.
"""

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import structlog

from tarry.library_log import Repeats, library_log

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


ERRORS: Final = frozenset(
    {
        "checkpoint_unreadable",
        "clock_ahead",
        "failed",
        "parked_messages_missing",
        "partition_quarantined",
        "pauses_lost",
        "process_failed",
        "process_garbled",
        "process_hung",
        "process_killed",
        "process_not_started",
        "request_failed",
        "shut_out",
    }
)
"""Events that mean harm, or that somebody has to do something."""

WARNINGS: Final = frozenset(
    {
        "adopted",
        "begin_anew",
        "buckets_not_emptied",
        "checkpoint_from_copy",
        "checkpoint_not_committed",
        "checkpoint_not_copied",
        "clock_back",
        "clock_followed",
        "clock_not_compared",
        "clock_stepped",
        "control_topic_unfit",
        "credentials_unreadable",
        "dead_letter_refused",
        "dead_letters_apart",
        "dead_letters_not_written",
        "fencing",
        "file_unreadable",
        "filing_aborted",
        "group_gone",
        "instance_in_use",
        "joining_anew",
        "kafka_warning",
        "lost",
        "names_changed",
        "not_acknowledged",
        "not_left",
        "not_released",
        "partition_waits",
        "pause_unreadable",
        "pauses_not_confirmed",
        "pauses_not_read",
        "pausing_not_possible",
        "pending_offsets_ended",
        "process_ended",
        "purge_aborted",
        "reading_paused",
        "results_not_read",
        "shut_out_by_itself",
        "status_not_published",
        "status_topic_unfit",
        "take_over_refused",
        "target_apart",
        "target_away",
        "target_still_away",
        "transaction_aborted",
        "transaction_stays_open",
        "trim_failed",
    }
)
"""Events from which the service recovers by itself, and that should be rare."""

REPEATED: Final = frozenset(
    {
        "checkpoint_not_committed",
        "checkpoint_not_copied",
        "dead_letters_not_written",
        "filing_aborted",
        "kafka_warning",
        "purge_aborted",
        "take_over_refused",
        "target_still_away",
        "transaction_aborted",
        "trim_failed",
    }
)
"""Events that come again with each try while something is away."""


def speaker(logger: Any, seconds: Callable[[], float] = time.monotonic) -> Callable[..., None]:
    """Return a function that logs events at the level that each deserves, and thins out those that repeat themselves.

    Args:
        logger: from `configure`.
        seconds: the time, for the events that repeat themselves.
    """
    repeats = Repeats()

    def say(event: str, **fields: object) -> None:
        if event in REPEATED:
            left_out = repeats.left_out(f"{event} {sorted(fields.items())}", seconds())
            if left_out is None:
                return
            if left_out:
                fields["left_out"] = left_out
        if event in ERRORS:
            logger.error(event, **fields)
        elif event in WARNINGS:
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
