"""Numbers about the service: workers count them, the supervisor adds them up and shows them."""

from tarry.metrics.exposition import Exposition
from tarry.metrics.tally import Snapshot, Tally
from tarry.metrics.totals import Totals

__all__ = ["Exposition", "Snapshot", "Tally", "Totals"]
