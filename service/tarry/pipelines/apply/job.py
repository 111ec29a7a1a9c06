"""The job: a stream of a change log's records, and what makes a killed run whole."""

from collections.abc import Callable, Sequence
from typing import Final

from tarry.errors import TarryError, UsageError
from tarry.pipelines import streaming
from tarry.pipelines.apply.batch import Batches, Target
from tarry.pipelines.topics import Topics

ROWS_A_BATCH: Final = 100_000


def apply(
    topics: Topics,
    names: Sequence[str],
    target: Target,
    checkpoint: str,
    *,
    tables: Sequence[str] = ("*",),
    rows_a_batch: int = ROWS_A_BATCH,
    every_ms: int | None = None,
    on_progress: Callable[[str], None],
) -> None:
    """Apply the changes of topics: those that are new, and then end, or on and on.

    Args:
        topics: where to read.
        names: of the topics with a change log.
        target: where to apply it.
        checkpoint: a directory for what the stream has read.
        tables: globs over `database.table`; the changes of others are left out.
        rows_a_batch: at most so many records at once.
        every_ms: how often; None: once.
        on_progress: told of each batch.

    Raises:
        UsageError: a topic is missing or was made anew, a table has no key, the target failed, or Spark did.
    """
    ends = topics.ends(names)
    for place, offset in target.next_offsets().items():
        if place in ends and offset > ends[place]:
            raise UsageError(
                f"{place[0]}/{place[1]} ends at {ends[place]}, and all below {offset} is applied: the topic was made"
                " anew; give the job another name"
            )
    batches = Batches(target, tables, on_progress)
    source = topics.stream(names).option("maxOffsetsPerTrigger", rows_a_batch)
    writer = source.load().writeStream.foreachBatch(batches).queryName("apply").option("checkpointLocation", checkpoint)
    try:
        # The batches tell of themselves.
        streaming.run([streaming.trigger(writer, every_ms).start()], lambda _line: None)
    except UsageError as error:
        if isinstance(batches.error, TarryError):
            raise batches.error from error
        raise
