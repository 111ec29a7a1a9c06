"""The notes of `tarry check` about copies and groups, from the brokers' answers about topics and settings."""

from tarry.cli.check.upkeep import short_of_copies, slow_to_notice
from tarry.config import Intake


def test_topics_with_fewer_copies_than_are_configured_are_one_line() -> None:
    copies = {"in": 3, "in.journal": 1, "in.wheel-2": 2, "in.results": 4, "other": 1, "other.journal": 1, "in.x": 1}
    [line] = short_of_copies(Intake(topic="in", replication=3), copies)
    assert line == (
        "intake in: replication = 3, but these topics have fewer replicas: in.journal (1), in.wheel-2 (2); "
        "add replicas with kafka-reassign-partitions"
    )


def test_topics_that_are_not_there_or_have_enough_copies_are_no_line() -> None:
    assert not list(short_of_copies(Intake(topic="in", replication=3), {"in": 3, "in.dead": 5}))


def test_brokers_whose_members_hear_of_each_other_late_are_a_line_for_each_setting() -> None:
    by_default = {"group.consumer.heartbeat.interval.ms": "5000", "group.consumer.session.timeout.ms": "45000"}
    heartbeat, session = slow_to_notice(3, by_default)
    assert heartbeat == (
        "broker 3: group.consumer.heartbeat.interval.ms=5000: "
        "after a service ends, its partitions wait up to this long (ms) for a new owner; set 1000 or less"
    )
    assert session == (
        "broker 3: group.consumer.session.timeout.ms=45000: "
        "after a process dies, its partitions wait up to this long (ms) for a new owner; set 10000 or less"
    )


def test_brokers_that_are_quick_or_know_no_such_groups_are_no_line() -> None:
    quick = {"group.consumer.heartbeat.interval.ms": "1000", "group.consumer.session.timeout.ms": "10000"}
    assert not list(slow_to_notice(1, quick))
    assert not list(slow_to_notice(1, {"group.min.session.timeout.ms": "6000"}))
