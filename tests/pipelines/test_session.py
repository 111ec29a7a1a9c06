"""What a session of the jobs keeps in memory."""

from typing import Any

from pyspark.sql import SparkSession


def test_persist_clones_no_session_because_spark_never_frees_a_clone(spark: SparkSession) -> None:
    own: Any = spark._jsparkSession
    table: Any = spark.range(3).persist()
    cached = own.sharedState().cacheManager().lookupCachedData(table._jdf).get()
    used = cached.cachedRepresentation().cacheBuilder().cachedPlan().session()
    table.unpersist()
    assert used.sessionUUID() == own.sessionUUID()
