"""`apply`: apply a database's change log to PostgreSQL or to Delta tables, the changes of each row in order."""

from tarry.pipelines.apply.batch import Rules
from tarry.pipelines.apply.job import apply, apply_rejected
from tarry.pipelines.apply.lake import Lake
from tarry.pipelines.apply.postgres import Postgres
from tarry.pipelines.unknown_column import OnUnknownColumn

__all__ = ["Lake", "OnUnknownColumn", "Postgres", "Rules", "apply", "apply_rejected"]
