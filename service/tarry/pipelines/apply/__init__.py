"""`apply`: apply a database's change log to PostgreSQL or to Delta tables, the changes of each row in order."""

from tarry.pipelines.apply.batch import ApplyRules
from tarry.pipelines.apply.job import ApplyJob
from tarry.pipelines.apply.lake import Lake
from tarry.pipelines.apply.postgres import Postgres
from tarry.pipelines.unknown_column import OnUnknownColumn

__all__ = ["ApplyJob", "ApplyRules", "Lake", "OnUnknownColumn", "Postgres"]
