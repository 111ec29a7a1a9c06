"""The topics of an intake as they must be, held against topics as they are."""

import pytest

from tarry.kafka.topics import (
    DEAD,
    DEFAULT_MAX_MESSAGE_BYTES,
    HEADROOM_BYTES,
    JOURNAL,
    RESULTS,
    Found,
    Topic,
    faults,
    max_bytes_of,
    topics_of,
)

MAX_BYTES = 2_000_000


def topics(*, fixed_delay: bool = False) -> dict[str, Topic]:
    made = topics_of("in", 4, 3, fixed_delay=fixed_delay, max_bytes=MAX_BYTES)
    return {topic.name: topic for topic in made}


def as_made(topic: Topic, **changes: str) -> Found:
    config = {"max.message.bytes": str(MAX_BYTES), **topic.config, **topic.extra}
    return Found(topic.partitions, {**config, **{name.replace("_", "."): value for name, value in changes.items()}})


def test_the_intake_comes_last_behind_all_that_belongs_to_it() -> None:
    assert list(topics()) == ["in" + RESULTS, "in" + JOURNAL, "in" + DEAD, "in"]
    assert {topic.partitions for topic in topics().values()} == {4}
    assert {topic.replication for topic in topics().values()} == {3}


@pytest.mark.parametrize("name", ["in", "in" + JOURNAL, "in" + DEAD])
def test_what_a_recovery_or_a_person_needs_is_kept_for_ever(name: str) -> None:
    config = topics()[name].config
    assert (config["cleanup.policy"], config["retention.ms"], config["retention.bytes"]) == ("delete", "-1", "-1")


def test_a_record_of_the_largest_size_fits_the_topics_beside_with_headers_added() -> None:
    for name in ("in" + JOURNAL, "in" + DEAD):
        assert topics()[name].extra["max.message.bytes"] == str(MAX_BYTES + HEADROOM_BYTES)
    assert HEADROOM_BYTES == 65_536


def test_results_are_kept_for_a_week_unless_an_operator_says_otherwise() -> None:
    results = topics()["in" + RESULTS]
    assert results.extra == {"retention.ms": str(7 * 86_400_000)}
    assert faults(results, as_made(results, retention_ms="3600000")) == []


def test_only_an_intake_with_a_fixed_delay_stamps_by_itself() -> None:
    assert topics(fixed_delay=True)["in"].config["message.timestamp.type"] == "LogAppendTime"
    assert all("message.timestamp.type" not in topic.config for topic in topics().values())


@pytest.mark.parametrize("name", list(topics()))
def test_a_topic_as_it_is_made_has_no_faults(name: str) -> None:
    topic = topics()[name]
    assert faults(topic, as_made(topic)) == []


def test_another_number_of_partitions_is_a_fault() -> None:
    topic = topics()["in"]
    assert faults(topic, Found(3, as_made(topic).config)) == ["in has 3 partitions, and 4 are configured"]


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


@pytest.mark.parametrize(("limit", "is_fault"), [(MAX_BYTES + 65_536, False), (MAX_BYTES + 65_535, True)])
def test_a_limit_below_what_a_dead_letter_needs_is_a_fault(limit: int, *, is_fault: bool) -> None:
    topic = topics()["in" + DEAD]
    found = as_made(topic, max_message_bytes=str(limit))
    lines = faults(topic, found, min_max_bytes=MAX_BYTES + HEADROOM_BYTES)
    assert bool(lines) is is_fault
    assert all(f"it must be at least {MAX_BYTES + HEADROOM_BYTES}" in line for line in lines)


def test_the_limit_of_an_intake_that_does_not_exist_is_kafkas_default() -> None:
    assert max_bytes_of(None) == DEFAULT_MAX_MESSAGE_BYTES == 1_048_588
    assert max_bytes_of(Found(1, {"max.message.bytes": "77"})) == 77
