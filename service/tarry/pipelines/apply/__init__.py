"""`apply`: the changes that a database's log tells of, row for row in order, to PostgreSQL and to Delta tables."""

from tarry.pipelines.apply.job import apply
from tarry.pipelines.apply.lake import Lake
from tarry.pipelines.apply.postgres import Postgres

__all__ = ["Lake", "Postgres", "apply"]
