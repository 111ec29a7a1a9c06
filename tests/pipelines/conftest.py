"""Fixtures that several tests of the pipelines need."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tarry.pipelines.topics import TopicTables
from tests.support.applying import LakeSide, PostgresSide, Side
from tests.support.stage import pytest_configure, stage

__all__ = ["pytest_configure", "stage"]


@pytest.fixture(params=["postgres", pytest.param("lake", marks=pytest.mark.exhaustive)])
def side(request: pytest.FixtureRequest, spark: SparkSession, topics: TopicTables, tmp_path: Path) -> Side:
    if request.param == "lake":
        return LakeSide(spark, topics, tmp_path)
    return PostgresSide(request.getfixturevalue("shared_postgres"), topics, tmp_path)
