"""`audit`: compare each accepted message with its result and with the records at its target."""

from tarry.pipelines.audit.job import Audit, Span
from tarry.pipelines.audit.summary import Summary

__all__ = ["Audit", "Span", "Summary"]
