"""The topics of an intake on a cluster: made where they are missing, the intake last, and refused where wrong."""

from collections.abc import Mapping

import pytest
from confluent_kafka.cimpl import NewTopic

from tarry.core.progress.checkpoint import Geometry
from tarry.errors import UsageError
from tarry.kafka.intake_topics import Checked, compare_topics, make_or_check
from tarry.kafka.topics import TopicAdmin, wheel_topic
from tests.contracts.steps import CALL_S
from tests.support.contract import Kafka

PARTITIONS = 2
GEOMETRY = Geometry(20_000, 2, 2)
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": "2000000"}


def _checked(kafka: Kafka, intake: str, geometry: Geometry = GEOMETRY) -> list[Checked]:
    return compare_topics(TopicAdmin(kafka.admin), intake, PARTITIONS, 1, geometry, fixed_delay=False)


def _make(kafka: Kafka, intake: str, geometry: Geometry = GEOMETRY) -> list[str]:
    """Make what is missing, and look what of it stands when the intake is about to be made."""
    standing: list[str] = []

    def look() -> None:
        others = {one.topic.name for one in _checked(kafka, intake, geometry)} - {intake}
        kafka.until(lambda: others <= set(TopicAdmin(kafka.admin).find([intake, *others])), "the others stand")
        standing.extend(TopicAdmin(kafka.admin).find([intake, *others]))

    made = make_or_check(
        TopicAdmin(kafka.admin), intake, PARTITIONS, 1, geometry, fixed_delay=False, before_intake=look
    )
    assert intake not in standing or intake not in made
    kafka.until(lambda: all(one.exists for one in _checked(kafka, intake, geometry)), "the intake stands")
    return made


def _make_level(
    kafka: Kafka, intake: str, level: int, partitions: int = PARTITIONS, settings: Mapping[str, str] = KEPT
) -> None:
    """A level's topic as the service would make it, but for what is said."""
    name = wheel_topic(intake, level)
    kafka.admin.create_topics([NewTopic(name, partitions, 1, config=dict(settings))])[name].result(CALL_S)
    kafka.until(lambda: TopicAdmin(kafka.admin).find([name]), f"{name} is known")


def _refusal(kafka: Kafka, intake: str) -> str:
    with pytest.raises(UsageError) as caught:
        _make(kafka, intake)
    assert [line for one in _checked(kafka, intake) for line in one.faults] == [str(caught.value)]
    assert TopicAdmin(kafka.admin).find([intake]) == {}
    return str(caught.value).removeprefix(intake)


def test_all_topics_of_an_intake_are_made_and_the_intake_last(kafka: Kafka) -> None:
    intake = kafka.name("in")
    made = _make(kafka, intake)
    others = [".results", ".journal", ".dead", ".parked", ".wheel-1", ".wheel-2"]
    assert sorted(made[:-1]) == sorted(intake + suffix for suffix in others)
    assert made[-1] == intake
    checked = {one.topic.name.removeprefix(intake): one for one in _checked(kafka, intake)}
    assert [one.faults for one in checked.values()] == [[]] * 7
    assert checked[".wheel-2"].topic.partitions == PARTITIONS


def test_topics_that_are_as_they_must_be_are_left_as_they_are(kafka: Kafka) -> None:
    intake = kafka.name("in")
    _make(kafka, intake)
    assert _make(kafka, intake) == []


def test_levels_are_added_to_an_existing_intake(kafka: Kafka) -> None:
    intake = kafka.name("in")
    assert len(_make(kafka, intake, Geometry(20_000, 2, 0))) == 5
    assert _make(kafka, intake) == [wheel_topic(intake, 1), wheel_topic(intake, 2)]


def test_a_level_with_another_number_of_partitions_is_refused_in_one_line(kafka: Kafka) -> None:
    intake = kafka.name("in")
    _make_level(kafka, intake, 1, partitions=12)
    assert _refusal(kafka, intake) == (
        f".wheel-1 has 12 partitions, and 2 are configured: "
        f"it was made by an earlier version of tarry, or for another number of partitions of {intake}: "
        "set `partitions` back to that number, or use an intake with another name"
    )


@pytest.mark.parametrize(
    ("setting", "value", "must_be"),
    [
        ("cleanup.policy", "compact", "be delete"),
        ("retention.ms", "3600000", "be -1"),
        ("retention.bytes", "1000000", "be -1"),
        ("message.timestamp.type", "LogAppendTime", "be CreateTime"),
        ("max.message.bytes", "1048588", "be at least 1114124"),
    ],
)
def test_a_level_with_a_setting_that_would_lose_messages_is_refused_in_one_line(
    kafka: Kafka, setting: str, value: str, must_be: str
) -> None:
    intake = kafka.name("in")
    _make_level(kafka, intake, 2, settings=KEPT | {setting: value})
    assert _refusal(kafka, intake).startswith(f".wheel-2 has {setting}={value}; it must {must_be}")
