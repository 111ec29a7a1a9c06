"""The content of a summary, and the effect of its commit on the pointers."""

from tarry.core.partition_progress import MOST_BYTES, Progress
from tarry.core.progress.checkpoint import Checkpoint, Geometry, decode_checkpoint
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.intake import IntakeProgress
from tarry.core.progress.journal import DoneEntry, decode_entry
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.progress.source import INTAKE, Source
from tarry.core.wheel.overflow import STRANGE, OverflowWheel
from tarry.core.window.parked_log import ParkedLog
from tests.support.naming import no_names


def progress_of(records: int) -> tuple[Progress, IntakeProgress]:
    """A partition of which so many records were read and none is done, with a journal of 500."""
    checkpoint = Checkpoint(writer=("w",), released=False, geometry=Geometry(20_000, 10, 0), pointer=3)
    intake = IntakeProgress(Recovered(0, checkpoint, DoneSet(), 0), keeps_order=False)
    for offset in range(records):
        intake.ledger.read(offset)
    progress = Progress(
        checkpoint, intake, OverflowWheel(checkpoint, Buckets()), ParkedLog({}, (0, 0), 0, 0), no_names()
    )
    progress.note_journal_end(500)
    return progress, intake


def test_a_summary_lists_all_offsets_done_above_the_watermark_and_moves_the_pointer_to_the_last_known_end() -> None:
    progress, _ = progress_of(8)
    progress.mark({INTAKE: [1, 2, 5]})
    assert progress.behind == 497
    settled = progress.settle_checkpoint(released=False, sums_up=True)
    assert [decode_entry(record) for record in settled.before] == [DoneEntry({INTAKE: [(1, 3), (5, 6)]})]
    assert (settled.low, decode_checkpoint(settled.metadata).pointer) == (0, 500)
    assert progress.pointer == 3, "it is not committed yet"
    progress.confirm()
    assert (progress.pointer, progress.behind) == (500, 0)


def test_where_nothing_is_done_above_the_watermark_the_pointer_moves_and_nothing_is_said() -> None:
    progress, _ = progress_of(0)
    settled = progress.settle_checkpoint(released=False, sums_up=True)
    assert (settled.before, decode_checkpoint(settled.metadata).pointer) == ((), 500)
    progress.confirm()
    assert (progress.pointer, progress.behind) == (500, 0)


def test_a_summary_that_was_not_committed_moves_no_pointer() -> None:
    progress, _ = progress_of(8)
    progress.mark({INTAKE: [1]})
    progress.settle_checkpoint(released=False, sums_up=True)
    settled = progress.settle({INTAKE: [2]})
    progress.confirm()
    assert (decode_checkpoint(settled.metadata).pointer, progress.pointer) == (3, 3)


def test_a_summary_that_is_too_large_is_not_written() -> None:
    records = 3 * MOST_BYTES
    progress, intake = progress_of(records)
    intake.ledger.mark(range(1, records, 2))
    settled = progress.settle_checkpoint(released=False, sums_up=True)
    assert settled.before == ()
    assert decode_checkpoint(settled.metadata).pointer == 3
    progress.confirm()
    assert progress.pointer == 3


def test_the_journal_is_needed_from_the_committed_pointer_on_and_not_from_the_present_one() -> None:
    checkpoint = Checkpoint(
        ("w",), False, Geometry(1_000, 4, 1), (4_000,), (4_000,), (0,), wheel_pointer=3, pointer=700, index_pointer=600
    )
    overflow = OverflowWheel(checkpoint, Buckets({1: (0, 4)}, {}, 500))
    intake = IntakeProgress(Recovered(0, checkpoint, DoneSet(), 0), keeps_order=False)
    progress = Progress(checkpoint, intake, overflow, ParkedLog({}, (0, 0), 0, 0), no_names())
    assert overflow.meet(1, 2)
    [survey] = overflow.to_read(1, 1)
    overflow.reach_end(survey)
    progress.note_journal_end(900)
    settled = progress.settle({Source(1, STRANGE): [2]})
    progress.confirm()
    assert decode_checkpoint(settled.metadata).reads_from == progress.reads_from == 500
    assert progress.pointer == 700, "the committed low watermark has passed the stranger: it is forgotten"
    progress.settle_checkpoint(released=False, sums_up=False)
    progress.confirm()
    assert progress.reads_from == 700
