"""Metrics of the service: worker processes count, the supervisor adds up and exposes."""

from tarry.service.metrics.exposition import Exposition
from tarry.service.metrics.tally import Snapshot, Tally
from tarry.service.metrics.totals import Totals

__all__ = ["Exposition", "Snapshot", "Tally", "Totals"]
