"""The ids that an intake knows: those of waiting messages, and those of ended messages as long as results are kept.

A message moves from the intake to a bucket, down from bucket to bucket, perhaps to the parked log, and to the results.
The topics are read in the same order, each to its end before the end of the next one is requested. So a message that
left a topic before that topic was read is found in a later one.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tarry.headers import CANCEL, ID
from tarry.kafka.topics import PARKED, RESULTS, WHEEL
from tarry.pipelines import archive
from tarry.pipelines.columns import has_header, text_header
from tarry.pipelines.topics import TopicTables


def of_messages(records: DataFrame) -> DataFrame:
    """The ids in the headers of messages in an intake or a bucket: column `id`, 36 characters."""
    return records.where(~has_header(CANCEL)).select(f.lower(text_header(ID)).alias("id")).where("id is not null")


def of_results(records: DataFrame) -> DataFrame:
    """The ids of messages with a final result: column `id`, 36 characters.

    The results of cancels are left out, because they do not show that the message ever existed.
    """
    # Only the outcome is parsed, so a damaged result still counts as known and its row is not sent twice.
    outcome = f.get_json_object(f.col("value").cast("string"), "$.outcome")
    return records.where(outcome.isin(*archive.ENDS)).select(f.col("key").cast("string").alias("id"))


def known_ids(
    topics: TopicTables, intake: str, on_progress: Callable[[str], None], until_the_end: ExitStack
) -> DataFrame:
    """All ids that an intake knows: column `id`, each once.

    They include all records that are written when this function is called. It waits until transactions that are open
    at that time have ended.

    Args:
        topics: the topics to read.
        intake: the intake's name.
        on_progress: called with one line for each topic.
        until_the_end: when it closes, it releases the tables that Spark keeps on disk.

    Raises:
        UsageError: a topic is missing.
        RetriableError: a transaction stays open on a topic.
    """
    kept = []
    for topic in (intake, *_buckets(topics, intake), intake + PARKED, intake + RESULTS):
        records = topics.read_all([topic], may_be_trimmed=True)
        ids = of_results(records) if topic == intake + RESULTS else of_messages(records)
        ids = ids.persist(StorageLevel.DISK_ONLY)
        until_the_end.callback(ids.unpersist)
        # The count makes Spark read the topic now, to its current end.
        on_progress(f"{topic}: {ids.count():,} ids")
        kept.append(ids)
    return reduce(DataFrame.union, kept).distinct()


def _buckets(topics: TopicTables, intake: str) -> list[str]:
    """The topics of the overflow wheel, the highest level first, because messages move downwards."""
    prefix = f"{intake}{WHEEL}"
    levels = (name.removeprefix(prefix) for name in topics.names() if name.startswith(prefix))
    return [f"{prefix}{level}" for level in sorted((int(one) for one in levels if one.isdecimal()), reverse=True)]
