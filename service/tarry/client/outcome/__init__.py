"""Waiting for the outcomes of messages and cancels, with one reader for any number of waiting callers."""

from tarry.client.outcome.metrics import OutcomeMetrics
from tarry.client.outcome.reader import OutcomeReader
from tarry.client.outcome.result import parsed_result

__all__ = ["OutcomeMetrics", "OutcomeReader", "parsed_result"]
