"""`audit`: everything accepted, beside its results and what the targets hold."""

from tarry.pipelines.audit.job import Audit, Span
from tarry.pipelines.audit.summary import Summary

__all__ = ["Audit", "Span", "Summary"]
