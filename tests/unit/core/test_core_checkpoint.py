"""The checkpoint's text: it comes back whole, keeps Kafka's limit to the character, and anything else is refused."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.core.progress.checkpoint import (
    LIMIT,
    Checkpoint,
    CheckpointError,
    Geometry,
    Obeyed,
    decode_checkpoint,
    is_checkpoint,
)
from tarry.core.progress.origin import Origin
from tarry.core.wheel.levels import MOST_LEVELS

NO_WHEEL = Geometry(20_000, 10, 0)
PLAIN = Checkpoint(writer=("tarry.1-fire",), released=False, geometry=NO_WHEEL)
ORIGIN = Origin("5L6g3nShT-eMCtK--X86sw", "aZ3kQ0RxS1y8mC7oVd-2Wg", "bZ3kQ0RxS1y8mC7oVd-2Wg", ("c" * 22, "d" * 22))

numbers = st.integers(0, 2**50)
ids = st.text("abc-_|,%", max_size=22)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    geometry = Geometry(draw(st.integers(1, 10**6)), draw(st.integers(2, 20)), draw(st.integers(0, 6)))
    closed = [
        draw(st.integers(0, 10**7)) * geometry.width_of(level)
        for level in range(1, draw(st.integers(0, geometry.levels)) + 1)
    ]
    before = [draw(st.integers(0, 1_000)) * geometry.width_of(level) for level in range(1, len(closed) + 1)]
    return Checkpoint(
        writer=tuple(draw(st.lists(st.text(min_size=1, max_size=30), max_size=3))),
        released=draw(st.booleans()),
        geometry=geometry,
        closed_ms=tuple(closed),
        done_ms=tuple(at - some for at, some in zip(closed, before, strict=True)),
        low=tuple(draw(numbers) for _ in closed),
        wheel_pointer=draw(numbers),
        pointer=draw(numbers),
        due_below_ms=draw(st.none() | numbers),
        origin=draw(
            st.builds(Origin, ids, ids, ids, st.lists(ids, max_size=6).map(tuple)).filter(lambda one: any(one.ids()))
            | st.just(Origin())
        ),
        obeyed=draw(st.none() | st.builds(Obeyed, numbers, ids)),
    )


@settings(max_examples=200)
@given(checkpoints())
def test_a_checkpoint_comes_back(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(checkpoint.encode()) == checkpoint


def test_the_form_is_that_of_version_2() -> None:
    checkpoint = Checkpoint(
        writer=("tarry.a-fire", "tarry.a-file"),
        released=True,
        geometry=Geometry(20_000, 10, 2),
        closed_ms=(60_000, 400_000),
        done_ms=(20_000, 400_000),
        low=(256, 255),
        wheel_pointer=31,
        pointer=16,
        due_below_ms=1_000,
    )
    text = "2|1|4e20,a,2|3,2|2,0|100,ff|1f|10|3e8|tarry.a-fire,tarry.a-file"
    assert checkpoint.encode() == text
    assert decode_checkpoint(text) == checkpoint


@pytest.mark.parametrize(
    "name", ["a,b", "a|b", "a%b", "%2C", "%7C", "%25", "%%", "%2", ",|%", "%257C", "host-ü-1", "a.b c"]
)
def test_any_transactional_id_comes_back(name: str) -> None:
    checkpoint = replace(PLAIN, writer=(name, "other", name))
    assert decode_checkpoint(checkpoint.encode()).writer == (name, "other", name)


def test_a_recovery_reads_from_the_lower_pointer_of_the_intake_and_of_the_overflow_wheel() -> None:
    levels = replace(PLAIN, pointer=7, wheel_pointer=5, geometry=Geometry(20_000, 16, 1), closed_ms=(20_000,))
    assert (levels.reads_from, replace(levels, wheel_pointer=9).reads_from) == (5, 7)
    assert replace(PLAIN, pointer=7).reads_from == 7, "without an overflow wheel there is none"


def test_at_first_nothing_waits_in_the_levels() -> None:
    born = Checkpoint((), True, Geometry(20_000, 16, 2), (20_000, 320_000))
    assert (born.done_ms, born.low) == (born.closed_ms, (0, 0))


def test_the_first_copy_of_a_partition_has_no_writer() -> None:
    assert decode_checkpoint(replace(PLAIN, writer=(), released=True).encode()).writer == ()


@pytest.mark.parametrize("length", [LIMIT - 1, LIMIT])
def test_a_text_up_to_the_limit_is_written(length: int) -> None:
    room = length - len(replace(PLAIN, writer=("",)).encode())
    checkpoint = replace(PLAIN, writer=("x" * room,))
    text = checkpoint.encode()
    assert len(text) == length
    assert decode_checkpoint(text) == checkpoint


def test_a_text_of_one_character_more_than_kafka_takes_is_refused() -> None:
    room = LIMIT + 1 - len(replace(PLAIN, writer=("",)).encode())
    with pytest.raises(CheckpointError, match="4096 characters, but Kafka accepts at most 4095"):
        replace(PLAIN, writer=("x" * room,)).encode()


def test_escapes_count_towards_the_limit() -> None:
    with pytest.raises(CheckpointError, match="Kafka accepts at most 4095"):
        replace(PLAIN, writer=("|" * 1_400,)).encode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1",
        "2",
        "2|",
        "0|0|4e20,a,0||||0|0||x",
        "1|0|4e20,a,0||||0||x",
        "|0|4e20,a,0||||0|0||x",
        "some consumer's own metadata",
        '{"timestamp": 1}',
        "2|2|4e20,a,0||||0|0||x",
        "2||4e20,a,0||||0|0||x",
        "2|0|4e20,a||||0|0||x",
        "2|0|4e20,a,0,1||||0|0||x",
        "2|0|zz,a,0||||0|0||x",
        "2|0|4e20,a,1|q|0|0|0|0||x",
        "2|0|4e20,a,1|5|q|0|0|0||x",
        "2|0|4e20,a,1|5|0|q|0|0||x",
        "2|0|4e20,a,1|5|0,0|0|0|0||x",
        "2|0|4e20,a,1|5|0|0,0|0|0||x",
        "2|0|4e20,a,1|5|0||0|0||x",
        "2|0|4e20,a,1|5||0|0|0||x",
        "2|0|4e20,a,0|||||0||x",
        "2|0|4e20,a,0||||0|||x",
        "2|0|4e20,a,0||||0|0|later|x",
        "2|0|4e20,a,0||||0|0||x|cluster,intake",
    ],
)
def test_a_malformed_checkpoint_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(CheckpointError) as refusal:
        decode_checkpoint(text)
    assert "\n" not in str(refusal.value)
    assert "not a checkpoint that this version of tarry can read" in str(refusal.value)


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="reads version 2"):
        decode_checkpoint("3" + PLAIN.encode()[1:])


def test_a_field_that_a_later_version_adds_behind_is_passed_over() -> None:
    known = replace(PLAIN, origin=ORIGIN, parked_pointer=7, index_pointer=9, names_pointer=8, obeyed=Obeyed(3, "id"))
    assert decode_checkpoint(known.encode() + "|something|new") == known


@pytest.mark.parametrize("obeyed", [Obeyed(0, "5L6g3nShT-eMCtK--X86sw"), Obeyed(17, ""), Obeyed(1 << 40, "a,b|c%")])
def test_how_far_pauses_are_obeyed_comes_back(obeyed: Obeyed) -> None:
    known = replace(PLAIN, obeyed=obeyed)
    assert decode_checkpoint(known.encode()) == known
    assert replace(known, obeyed=None).encode() == PLAIN.encode(), "without it the text is as before"


def test_a_version_that_knows_no_pauses_reads_all_but_how_far_they_are_obeyed() -> None:
    # It takes the fields up to the fourteenth, and passes over what stands behind them.
    known = replace(PLAIN, origin=ORIGIN, names_pointer=8)
    text = replace(known, obeyed=Obeyed(3, "id")).encode()
    assert "|".join(text.split("|")[:14]) == known.encode()


@pytest.mark.parametrize("origin", [ORIGIN, Origin()])
@pytest.mark.parametrize(("pointer", "complete_from"), [(10, 0), (None, 7), (10, 7)])
def test_the_pointer_of_names_is_there_only_if_names_wait(
    origin: Origin, pointer: int | None, complete_from: int
) -> None:
    known = replace(PLAIN, origin=origin, pointer=30, wheel_pointer=20)
    named = replace(known, names_pointer=pointer, names_complete_from=complete_from)
    assert decode_checkpoint(named.encode()) == named
    assert named.encode().startswith(known.encode())
    assert named.reads_from == (known.reads_from if pointer is None else pointer)


@pytest.mark.parametrize("origin", [ORIGIN, Origin()])
def test_the_pointer_of_the_parked_log_is_there_only_if_something_is_parked(origin: Origin) -> None:
    known = replace(PLAIN, origin=origin, pointer=30, wheel_pointer=20)
    parked = replace(known, parked_pointer=10)
    assert decode_checkpoint(parked.encode()) == parked
    assert decode_checkpoint(known.encode()).parked_pointer is None
    assert parked.encode().startswith(known.encode())
    assert (known.reads_from, parked.reads_from) == (min(30, 20) if PLAIN.geometry.levels else 30, 10)


@pytest.mark.parametrize("parked", [None, 10])
@pytest.mark.parametrize("origin", [ORIGIN, Origin()])
def test_the_pointer_of_the_index_is_there_only_if_an_index_is(origin: Origin, parked: int | None) -> None:
    known = replace(PLAIN, origin=origin, pointer=30, wheel_pointer=20, parked_pointer=parked)
    indexed = replace(known, index_pointer=5)
    assert decode_checkpoint(indexed.encode()) == indexed
    assert decode_checkpoint(known.encode()).index_pointer is None
    assert indexed.encode().startswith(known.encode())
    assert indexed.reads_from == 5


def test_the_origin_is_the_last_field_while_nothing_is_parked() -> None:
    text = replace(PLAIN, origin=ORIGIN).encode()
    assert text == PLAIN.encode() + "|" + ",".join([ORIGIN.cluster, ORIGIN.intake, ORIGIN.journal, *ORIGIN.levels])
    assert decode_checkpoint(text).origin == ORIGIN


def test_a_checkpoint_that_was_written_before_there_were_ids_is_of_anything() -> None:
    assert decode_checkpoint(PLAIN.encode()).origin == Origin()
    assert Origin().changes("in", ORIGIN) == []


def test_the_version_before_reads_all_but_the_ids() -> None:
    # It takes the first ten fields, the version among them, as this one passes over what stands behind the eleventh.
    text = replace(PLAIN, origin=ORIGIN).encode()
    assert "|".join(text.split("|")[:10]) == PLAIN.encode()


def test_the_longest_checkpoint_has_room() -> None:
    """With the longest names, offsets of decades, and the most levels: no configuration can come to the limit."""
    name, topic_id = "tarry." + "x" * 240 + "-fire", "x" * 36
    longest = Checkpoint(
        writer=(name,) * 4,
        released=True,
        geometry=Geometry(3_600_000, 32, MOST_LEVELS),
        closed_ms=(2**44 * 3_600_000 * 32**3,) * MOST_LEVELS,
        done_ms=(0,) * MOST_LEVELS,
        low=(2**62,) * MOST_LEVELS,
        wheel_pointer=2**62,
        pointer=2**62,
        due_below_ms=2**62,
        origin=Origin(topic_id, topic_id, topic_id, (topic_id,) * MOST_LEVELS),
        parked_pointer=2**62,
        index_pointer=2**62,
        names_pointer=2**62,
        names_complete_from=2**62,
        obeyed=Obeyed(2**62, topic_id),
    )
    assert len(longest.encode()) < LIMIT / 2


@settings(max_examples=100)
@given(checkpoints(), st.data())
def test_a_text_with_fields_missing_is_refused(checkpoint: Checkpoint, data: st.DataObject) -> None:
    fields = checkpoint.encode().split("|")[:10]
    kept = data.draw(st.integers(0, len(fields) - 1))
    with pytest.raises(CheckpointError):
        decode_checkpoint("|".join(fields[:kept]))


@settings(max_examples=300)
@given(st.text(max_size=40) | st.text(alphabet="01|,.a-%", max_size=40).map(lambda rest: "2|0|4e20,a,2|" + rest))
def test_any_text_is_a_checkpoint_or_an_error_of_its_own(text: str) -> None:
    try:
        found = decode_checkpoint(text)
    except CheckpointError:
        return
    assert isinstance(found, Checkpoint)


def test_a_level_is_as_wide_as_its_buckets_below_together() -> None:
    geometry = Geometry(20_000, 10, 5)
    assert [geometry.width_of(level) for level in (1, 2, 3)] == [20_000, 200_000, 2_000_000]


def test_only_a_text_that_can_be_read_is_a_checkpoint() -> None:
    assert is_checkpoint(PLAIN.encode())
    assert not is_checkpoint("")
    assert not is_checkpoint("offset 12, committed by another consumer")
