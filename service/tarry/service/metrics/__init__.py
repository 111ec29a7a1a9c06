"""Numbers about the service: workers count them, the supervisor adds them up and shows them."""

from tarry.service.metrics.exposition import Exposition
from tarry.service.metrics.tally import Snapshot, Tally
from tarry.service.metrics.totals import Totals

__all__ = ["Exposition", "Snapshot", "Tally", "Totals"]
