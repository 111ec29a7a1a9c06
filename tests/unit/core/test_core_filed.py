"""The header of a record in a level's log: what was written is read, and nothing else is taken for it."""

import pytest

from tarry.core.message import FiledMessage, HeldCancel, HeldMessage
from tarry.core.progress.name_index import HASH_BYTES
from tarry.core.progress.source import Source
from tarry.core.request.occurrence import Occurrence
from tarry.core.wheel.filed import FILED, due_ms_of, filed_headers, read_filed, target_of
from tarry.headers import EXPIRES_AT

BUCKET = Source(1, 7)
DUE_MS = 1_700_000_060_000
ID = b"0198c1f2-8a37-7c22-9f6e-2f4f5d3b1a10"
FORM_BYTES = 58
"""The length of the fixed part of the header."""

Headers = list[tuple[str, bytes | None]]


def message(
    kind: type[FiledMessage] = FiledMessage, *, name: bytes | None = None, carries: bool = True
) -> FiledMessage:
    made = kind(DUE_MS, 300, b"k", b"v", [("a", b"1")], carries, "orders", 2, ID)
    made.name = name
    return made


def filed(one: HeldMessage) -> Headers:
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in filed_headers(one)]


def content(headers: Headers) -> bytes:
    return headers[-1][1] or b""


@pytest.mark.parametrize("name", [None, b"h" * HASH_BYTES])
@pytest.mark.parametrize("kind", [FiledMessage, HeldCancel])
@pytest.mark.parametrize("carries", [False, True])
def test_what_was_written_is_read(kind: type[FiledMessage], name: bytes | None, carries: bool) -> None:
    one = message(kind, name=name, carries=carries)
    headers = filed(one)
    assert (due_ms_of(headers), target_of(headers)) == (DUE_MS, "orders")
    back = read_filed(BUCKET, 9, b"k", b"v", headers)
    assert type(back) is kind
    assert (back.source, back.offset, back.sequence, back.due_ms) == (BUCKET, 9, 300, DUE_MS)
    assert (back.target, back.target_partition, back.id, back.name) == ("orders", 2, ID, name)
    assert (back.carries, back.original_headers) == (carries, [("a", b"1")])


def test_a_message_that_expires_is_still_a_message() -> None:
    one = message()
    one.expires_ms = DUE_MS + 1
    headers: Headers = [(EXPIRES_AT, b"%d" % one.expires_ms), *filed(one)]
    back = read_filed(BUCKET, 9, b"k", b"v", headers)
    assert (type(back), back.expires_ms) == (FiledMessage, one.expires_ms)


def test_the_flags_are_bits_that_other_versions_read() -> None:
    occurrence = Occurrence(DUE_MS, 300, b"k", b"v", [], False, "orders", -1, ID)
    occurrence.schedule, occurrence.number = ID, 4
    expiring = message(carries=False)
    expiring.expires_ms = DUE_MS + 1
    flags = [content(filed(one))[21] for one in (message(), message(HeldCancel, carries=False), expiring, occurrence)]
    assert flags == [1, 2, 8, 16]


@pytest.mark.parametrize("headers", [None, [], [("a", b"1")], [(FILED, b"x" * 80), ("a", b"1")]])
def test_a_record_without_the_header_at_its_end_was_not_filed(headers: Headers | None) -> None:
    assert target_of(headers) is None
    with pytest.raises(ValueError, match="has not filed"):
        due_ms_of(headers)
    with pytest.raises(ValueError, match="has not filed"):
        read_filed(BUCKET, 9, b"k", b"v", headers)


@pytest.mark.parametrize("name", [None, b"h" * HASH_BYTES])
def test_a_header_that_is_cut_off_is_refused(name: bytes | None) -> None:
    packed = content(filed(message(name=name)))
    whole = FORM_BYTES + len(name or b"")
    assert packed[whole:] == b"orders"
    for length in (0, 1, 9, FORM_BYTES - 1, whole - 1):
        for read in (due_ms_of, target_of, lambda headers: read_filed(BUCKET, 9, b"k", b"v", headers)):
            with pytest.raises(ValueError, match="truncated"):
                read([(FILED, packed[:length])])
    # A cancel has no target: nothing follows what is fixed.
    assert due_ms_of([(FILED, packed[:whole])]) == DUE_MS
    assert target_of([(FILED, packed[:whole])]) == ""


def test_a_later_version_is_refused_by_its_number() -> None:
    packed = content(filed(message()))
    with pytest.raises(ValueError, match=r"filed in version 3; this version of tarry reads up to 2"):
        due_ms_of([(FILED, b"\x03" + packed[1:])])
