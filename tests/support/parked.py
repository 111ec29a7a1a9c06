"""The parked log of a `PartitionState` as a list: filing to it, and reading from it, as the worker does."""

from tarry.core.batch import FiledRun
from tarry.core.partition import PartitionState
from tarry.core.wheel.filed import filed_headers
from tests.support.durable import Filed, LevelLog


def file_parked(state: PartitionState, log: LevelLog, now_ms: int, limit: int = 1_000) -> list[bytes]:
    """File what is to be filed to the parked log now; return the records of the journal, none if nothing was."""
    filing = state.take_to_file(limit, now_ms, only="parked")
    if not filing:
        return []
    journal = state.journal_of(filing)
    records = [
        Filed(message.original_key, message.value, filed_headers(message))  # type: ignore[arg-type]  # all are bytes
        for message, _ in filing.records
    ]
    first = log.write(records, commit=True)
    filing.runs += [FiledRun(source, at, at + 1, 1) for at, (_, source) in enumerate(filing.records, first)]
    journal += state.journal_of_filed(filing)
    state.confirm_filed(filing)
    return journal


def read_parked(state: PartitionState, log: LevelLog, topic: str, limit_bytes: int = 1 << 40) -> int:
    """Read the next messages of a target; return how many the log lacks."""
    wanted = state.parked.wanted(topic, limit_bytes)
    if wanted is None:
        return 0
    assert wanted.start >= log.start, "deleted before it was read"
    while not wanted.is_complete:
        if filed := log.records.get(offset := wanted.position):
            wanted.accept(offset, filed.key, filed.value, filed.headers)
        else:
            wanted.reach(offset + 1)
    return state.parked.restore(wanted)
