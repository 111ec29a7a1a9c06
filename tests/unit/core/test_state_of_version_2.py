"""The formats in Kafka, of a checkpoint version 2: every later version must read them, or an upgrade loses messages.

These texts and bytes are records of what was, never made by the code that reads them. A form that changes gets a file
of its own beside this one, and this one stays.
"""

import pytest

from tarry.client.outcome.result import Wanted
from tarry.core.message import Headers, HeldCancel
from tarry.core.progress import checkpoint, journal
from tarry.core.progress.checkpoint import Checkpoint, CheckpointError, Geometry
from tarry.core.progress.journal import Copy, DoneEntry
from tarry.core.progress.source import INTAKE, Source
from tarry.core.request.translated import TranslatedMessage
from tarry.core.wheel.filed import read_filed
from tarry.handle import Handle

ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
DUE_MS = 1_767_225_660_000
BUCKET = Source(1, 4)
CHECKPOINT = (
    "2|0|4e20,10,2|5444942,544494|2,0|389,4e2|29|28|19b76db9260|tarry.3f2ac1d09b7e-fire,tarry.a%2Cb%7Cc%25-file"
)
FILED = b"\x01\x00\x00\x01\x9b\x76\xdb\x92\x60\x00\x00\x00\x00\x00\x00\x00\x2a\xff\xff\xff\xff"


def test_a_checkpoint() -> None:
    assert checkpoint.decode_checkpoint(CHECKPOINT) == Checkpoint(
        writer=("tarry.3f2ac1d09b7e-fire", "tarry.a,b|c%-file"),
        released=False,
        geometry=Geometry(20_000, 16, 2),
        closed_ms=(88_361_282 * 20_000, 5_522_580 * 320_000),
        done_ms=(88_361_280 * 20_000, 5_522_580 * 320_000),
        low=(905, 1250),
        wheel_pointer=41,
        pointer=40,
        due_below_ms=DUE_MS,
    )


def test_the_checkpoint_of_a_partition_just_born_without_an_overflow_wheel() -> None:
    born = Checkpoint(writer=(), released=True, geometry=Geometry(20_000, 10, 0))
    assert checkpoint.decode_checkpoint("2|1|4e20,a,0||||0|0||") == born


def test_a_checkpoint_of_a_version_whose_buckets_were_partitions_is_refused() -> None:
    former = "1|0|4e20,a,2|5444942,86d422|1.15.5.384.28,1.16.0.7.29.1|1.14.4e2|28|19b76db9260|tarry.3f2ac1d09b7e-fire"
    with pytest.raises(CheckpointError, match="reads version 2"):
        checkpoint.decode_checkpoint(former)


def test_a_record_of_the_journal_that_says_what_is_done() -> None:
    record = b"D\x01" + bytes([0, 0, 5, 3, 3, 2, 1]) + bytes([1, 21, 0xAC, 0x02, 1, 4])
    assert journal.decode_entry(record) == DoneEntry({INTAKE: [(5, 8), (10, 11)], Source(1, 21): [(300, 304)]})


def test_a_copy_of_a_checkpoint_in_the_journal() -> None:
    assert journal.decode_entry(b"C\x011234 " + CHECKPOINT.encode()) == Copy(1234, CHECKPOINT)


def test_a_message_in_a_bucket() -> None:
    headers: Headers = [("trace", b"7"), ("tarry-filed", FILED + b"\x01" + ID.encode() + b"orders")]
    found = read_filed(BUCKET, 7, b"k", b"v", headers)
    assert (found.source, found.offset, found.sequence) == (BUCKET, 7, 42)
    assert (found.due_ms, found.id, found.target, found.target_partition) == (DUE_MS, ID.encode(), "orders", -1)
    assert (found.key, found.value, found.headers, found.carries) == (b"k", b"v", [("trace", b"7")], True)


def test_a_cancel_in_a_bucket() -> None:
    found = read_filed(BUCKET, 8, None, None, [("tarry-filed", FILED + b"\x02" + ID.encode())])
    assert isinstance(found, HeldCancel)
    assert (found.due_ms, found.id) == (DUE_MS, ID.encode())


def test_a_message_of_a_dialect_in_a_bucket() -> None:
    asked: Headers = [("x-delay", b"60000"), ("tarry-target", b"orders")]
    text = b"\x05" + ID.encode() + b"orders rabbitmq 1767225600000 in"
    found = read_filed(BUCKET, 9, b"k", b"v", [*asked, ("tarry-filed", FILED + text)])
    assert isinstance(found, TranslatedMessage)
    assert (found.dialect.name, found.timestamp_ms, found.intake) == ("rabbitmq", DUE_MS - 60_000, "in")
    assert (found.target, found.original_headers) == ("orders", asked)


def test_a_handle_and_the_result_that_answers_it() -> None:
    handle = Handle.parse(f"1.tarry.delayed.3.{DUE_MS}.{ID}")
    assert handle == Handle("tarry.delayed", 3, DUE_MS, ID)
    result = (
        b'{"v":1,"outcome":"fired","id":"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21","source":"tarry.delayed/3/41",'
        b'"due_ms":1767225660000,"at_ms":1767225660004,"target":"orders"}'
    )
    answer = Wanted(handle).answer(result)
    assert answer is not None
    assert (answer["outcome"], answer["target"], answer["at_ms"]) == ("fired", "orders", DUE_MS + 4)
