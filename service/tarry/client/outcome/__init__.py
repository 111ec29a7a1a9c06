"""Waiting for the outcomes of messages and cancels, with one reader for any number of waiting callers."""

from typing import TYPE_CHECKING, Any

from tarry.client.outcome.reader import OutcomeReader
from tarry.client.outcome.result import parsed_result

if TYPE_CHECKING:
    from tarry.client.outcome.metrics import OutcomeMetrics

__all__ = ["OutcomeMetrics", "OutcomeReader", "parsed_result"]


def __getattr__(name: str) -> Any:
    if name != "OutcomeMetrics":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tarry.client.outcome.metrics import OutcomeMetrics  # noqa: PLC0415 (the client needs no prometheus-client)
    except ModuleNotFoundError as error:
        raise ImportError("OutcomeMetrics needs prometheus-client: pip install prometheus-client") from error
    return OutcomeMetrics
