"""The topics of an intake as they must be, held against topics as they are."""

import pytest

from tarry.core.progress.checkpoint import Geometry
from tarry.kafka.intake_topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    HEADROOM_BYTES,
    SEGMENT_BYTES,
    faults,
    max_bytes_of,
    topics_of,
)
from tarry.kafka.settings import BATCH_BYTES
from tarry.kafka.topics import DEAD, JOURNAL, PARKED, RESULTS, Found, Topic, wheel_topic

MAX_BYTES = 2_000_000
BESIDE = ["in" + suffix for suffix in (RESULTS, JOURNAL, DEAD, PARKED)]
WHEEL_1, WHEEL_2 = wheel_topic("in", 1), wheel_topic("in", 2)


def topics(*, levels: int = 2, fixed_delay: bool = False, max_bytes: int = MAX_BYTES) -> dict[str, Topic]:
    made = topics_of("in", 4, 3, Geometry(20_000, 10, levels), fixed_delay=fixed_delay, max_bytes=max_bytes)
    return {topic.name: topic for topic in made}


def as_made(topic: Topic, **changes: str) -> Found:
    config = {"max.message.bytes": str(MAX_BYTES), **topic.config, **topic.extra}
    return Found(topic.partitions, {**config, **{name.replace("_", "."): value for name, value in changes.items()}})


def test_the_intake_comes_last_behind_all_that_belongs_to_it() -> None:
    assert list(topics()) == [
        "in" + RESULTS,
        "in" + JOURNAL,
        "in" + DEAD,
        "in" + PARKED,
        "in.wheel-1",
        "in.wheel-2",
        "in",
    ]
    assert {topic.replication for topic in topics().values()} == {3}


def test_without_an_overflow_wheel_there_are_no_topics_for_it() -> None:
    assert list(topics(levels=0)) == [*BESIDE, "in"]


def test_each_partition_of_the_intake_has_one_beside_it_in_each_topic_and_in_each_level() -> None:
    for levels in (0, 2, 4):
        made = topics(levels=levels)
        assert len(made) == 5 + levels
        assert {topic.partitions for topic in made.values()} == {4}


@pytest.mark.parametrize("name", ["in", "in" + JOURNAL, "in" + DEAD, "in" + PARKED, WHEEL_1, WHEEL_2])
def test_topics_that_a_recovery_or_an_operator_needs_have_no_retention(name: str) -> None:
    config = topics()[name].config
    assert (config["cleanup.policy"], config["retention.ms"], config["retention.bytes"]) == ("delete", "-1", "-1")


def test_a_record_of_the_largest_size_fits_the_topics_beside_with_headers_added() -> None:
    for name in ("in" + JOURNAL, "in" + DEAD, "in" + PARKED, WHEEL_1, WHEEL_2):
        assert topics()[name].extra["max.message.bytes"] == str(MAX_BYTES + HEADROOM_BYTES)
    assert HEADROOM_BYTES == 65_536


def test_the_services_largest_batch_fits_into_the_topics_of_an_intake_of_small_messages() -> None:
    small = topics(max_bytes=20_000)
    for name in ("in" + RESULTS, "in" + JOURNAL, "in" + DEAD, WHEEL_1, WHEEL_2):
        assert small[name].extra["max.message.bytes"] == str(BATCH_BYTES)
        assert faults(small[name], as_made(small[name], max_message_bytes=str(BATCH_BYTES))) == []
        (line,) = faults(small[name], as_made(small[name], max_message_bytes=str(BATCH_BYTES - 1)))
        assert f"it must be at least {BATCH_BYTES}" in line


def test_results_are_kept_for_a_week_unless_an_operator_says_otherwise() -> None:
    results = topics()["in" + RESULTS]
    assert results.extra["retention.ms"] == str(7 * 86_400_000)
    assert results.extra["max.message.bytes"] == str(MAX_BYTES + HEADROOM_BYTES)
    assert faults(results, as_made(results, retention_ms="3600000")) == []


def test_only_an_intake_with_a_fixed_delay_stamps_by_itself() -> None:
    assert topics(fixed_delay=True)["in"].config["message.timestamp.type"] == "LogAppendTime"
    assert "message.timestamp.type" not in topics()["in"].config


def test_a_bucket_keeps_a_message_as_it_came() -> None:
    for level in (topics(fixed_delay=fixed_delay)[WHEEL_1] for fixed_delay in (False, True)):
        assert level.config["message.timestamp.type"] == "CreateTime"
        assert level.extra["compression.type"] == "producer"


def test_what_the_service_trims_all_the_time_has_small_segments_and_what_is_kept_has_not() -> None:
    small = {name for name, topic in topics().items() if topic.extra.get("segment.bytes") == str(SEGMENT_BYTES)}
    assert small == {WHEEL_1, WHEEL_2, "in" + PARKED}


@pytest.mark.parametrize("name", list(topics()))
def test_a_topic_as_it_is_made_has_no_faults(name: str) -> None:
    topic = topics()[name]
    assert faults(topic, as_made(topic)) == []


def test_another_number_of_partitions_is_a_fault() -> None:
    topic = topics()["in"]
    assert faults(topic, Found(3, as_made(topic).config)) == [
        (
            "in has 3 partitions, and 4 are configured"
            ": give the intake that number of partitions, or delete the topic if it is empty"
        )
    ]


def test_a_level_with_another_number_of_partitions_tells_what_was_changed() -> None:
    topic = topics()[WHEEL_1]
    (line,) = faults(topic, Found(4 * 22, as_made(topic).config))
    assert line.startswith(
        "in.wheel-1 has 88 partitions, and 4 are configured: it was made by an earlier version of tarry"
    )
    assert line.endswith(
        "or for another number of partitions of in: set `partitions` back to that number, or use an intake "
        "with another name"
    )


def test_a_setting_that_would_lose_records_is_a_fault_with_the_command_that_mends_it() -> None:
    topic = topics()["in"]
    (line,) = faults(topic, as_made(topic, retention_ms="604800000"))
    assert line.startswith("in has retention.ms=604800000; it must be -1")
    assert "kafka-configs --alter --topic in --add-config retention.ms=-1" in line
    assert len(faults(topic, as_made(topic, cleanup_policy="compact", retention_bytes="1000"))) == 2


def test_a_setting_that_the_cluster_does_not_tell_is_a_fault() -> None:
    topic = topics()["in"]
    assert len(faults(topic, Found(4, {}))) == 3


def test_stamps_of_the_producers_are_a_fault_where_the_delay_is_fixed() -> None:
    topic = topics(fixed_delay=True)["in"]
    (line,) = faults(topic, as_made(topic, message_timestamp_type="CreateTime"))
    assert "message.timestamp.type=CreateTime; it must be LogAppendTime" in line
    plain = topics()["in"]
    assert faults(plain, as_made(plain, message_timestamp_type="CreateTime")) == []


def test_stamps_of_the_log_are_a_fault_in_a_bucket() -> None:
    topic = topics(fixed_delay=True)[WHEEL_2]
    (line,) = faults(topic, as_made(topic, message_timestamp_type="LogAppendTime"))
    assert "in.wheel-2 has message.timestamp.type=LogAppendTime; it must be CreateTime" in line


@pytest.mark.parametrize("name", ["in" + JOURNAL, "in" + DEAD, WHEEL_2])
@pytest.mark.parametrize(("limit", "is_fault"), [(MAX_BYTES + 65_536, False), (MAX_BYTES + 65_535, True)])
def test_a_limit_below_what_a_message_with_headers_added_needs_is_a_fault(
    name: str, limit: int, *, is_fault: bool
) -> None:
    topic = topics()[name]
    lines = faults(topic, as_made(topic, max_message_bytes=str(limit)))
    assert bool(lines) is is_fault
    assert all(f"it must be at least {MAX_BYTES + HEADROOM_BYTES}" in line for line in lines)


def test_the_limit_of_an_intake_that_does_not_exist_is_kafkas_default() -> None:
    assert max_bytes_of(None) == DEFAULT_MAX_MESSAGE_BYTES == 1_048_588
    assert max_bytes_of(Found(1, {"max.message.bytes": "77"})) == 77
