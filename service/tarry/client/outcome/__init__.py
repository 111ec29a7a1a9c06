"""What became of messages and of cancels: waiting for it, however many wait in one process."""

from tarry.client.outcome.metrics import OutcomeMetrics
from tarry.client.outcome.reader import OutcomeReader
from tarry.client.outcome.result import parsed_result

__all__ = ["OutcomeMetrics", "OutcomeReader", "parsed_result"]
