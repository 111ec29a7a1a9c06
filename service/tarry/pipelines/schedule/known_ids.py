"""The ids that an intake knows: of all that waits, and of all that came to an end as long as results are kept.

A message moves: from the intake to a bucket, from bucket to bucket downwards, and to the results. Where it has left a
place before that is read, it is found in one that is read later: each topic is read to its end before the next one is
asked for its own.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tarry.headers import CANCEL, ID
from tarry.kafka.topics import RESULTS, WHEEL
from tarry.pipelines import archive
from tarry.pipelines.columns import has_header, text_header
from tarry.pipelines.topics import Topics


def of_messages(records: DataFrame) -> DataFrame:
    """The ids that messages in an intake or a bucket bring, column `id`, 36 characters."""
    return records.where(~has_header(CANCEL)).select(f.lower(text_header(ID)).alias("id")).where("id is not null")


def of_results(records: DataFrame) -> DataFrame:
    """The ids of messages that came to an end, column `id`, 36 characters.

    The outcomes of cancels do not say whether there ever was such a message.
    """
    # All but the outcome may be damaged: what is known is not sent twice for that.
    outcome = f.get_json_object(f.col("value").cast("string"), "$.outcome")
    return records.where(outcome.isin(*archive.ENDS)).select(f.col("key").cast("string").alias("id"))


def known_ids(topics: Topics, intake: str, on_progress: Callable[[str], None], until_the_end: ExitStack) -> DataFrame:
    """All ids that an intake knows, column `id`, each once.

    What is written when this is called is among them, also behind a transaction that is open then: it is waited for.

    Args:
        topics: where to read.
        intake: whose.
        on_progress: told of each topic.
        until_the_end: forgets what is kept on disk meanwhile.

    Raises:
        UsageError: a topic is missing.
        RetriableError: a transaction stays open on one.
    """
    kept = []
    for topic in (intake, *_buckets(topics, intake), intake + RESULTS):
        records = topics.read_all([topic], may_be_trimmed=True)
        ids = of_results(records) if topic == intake + RESULTS else of_messages(records)
        ids = ids.persist(StorageLevel.DISK_ONLY)
        until_the_end.callback(ids.unpersist)
        # Counted so that it is read now, to the end that it has now.
        on_progress(f"{topic}: {ids.count():,} ids")
        kept.append(ids)
    return reduce(DataFrame.union, kept).distinct()


def _buckets(topics: Topics, intake: str) -> list[str]:
    """The levels of the overflow wheel, the highest first: messages move downwards."""
    prefix = f"{intake}{WHEEL}"
    levels = (name.removeprefix(prefix) for name in topics.names() if name.startswith(prefix))
    return [f"{prefix}{level}" for level in sorted((int(one) for one in levels if one.isdecimal()), reverse=True)]
