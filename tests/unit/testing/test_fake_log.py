"""The log of one partition."""

from tarry.testing.fake.log import Changes, Draft, PartitionLog


def drafts(*values: bytes) -> list[Draft]:
    return [Draft(None, value, None, at) for at, value in enumerate(values)]


def values(log: PartitionLog, *, committed: bool = True) -> list[bytes | None]:
    return [record.value for record in log.read(log.start, 100, committed=committed)[0]]


def test_a_reader_of_committed_records_stops_at_the_first_open_transaction() -> None:
    log = PartitionLog(Changes())
    log.append(drafts(b"a"), None, None)
    log.append(drafts(b"b"), 1, None)
    log.append(drafts(b"c"), 2, None)
    log.append(drafts(b"d"), None, None)
    assert (log.stable_end, log.end) == (1, 4)
    assert values(log) == [b"a"]
    assert values(log, committed=False) == [b"a", b"b", b"c", b"d"]
    log.mark(1, 0, commit=True)
    assert (log.stable_end, values(log)) == (2, [b"a", b"b"])
    log.mark(2, 0, commit=False)
    assert (log.stable_end, values(log)) == (6, [b"a", b"b", b"d"])


def test_a_reader_goes_past_what_it_will_never_see() -> None:
    log = PartitionLog(Changes())
    log.append(drafts(b"a"), 1, None)
    log.mark(1, 0, commit=True)
    log.append(drafts(b"b", b"c"), 1, None)
    log.mark(1, 0, commit=False)
    assert [(record.offset, record.value) for record in log.read(0, 1, committed=True)[0]] == [(0, b"a")]
    assert log.read(0, 1, committed=True)[1] == 5
    assert log.read(0, 1, committed=False)[1] == 2


def test_trimmed_records_are_gone_and_offsets_stay() -> None:
    log = PartitionLog(Changes())
    log.append(drafts(b"a", b"b", b"c"), None, None)
    log.trim(2)
    log.trim(1)
    assert (log.start, log.end, values(log)) == (2, 3, [b"c"])
    assert log.append(drafts(b"d"), None, None) == 3


def test_the_log_stamps_where_it_is_told_to() -> None:
    log = PartitionLog(Changes())
    log.append(drafts(b"a"), None, 77)
    assert log.read(0, 1, committed=True)[0][0].timestamp_ms == 77
    assert log.since(77) == (0, 77)
    assert log.since(78) == (-1, -1)
