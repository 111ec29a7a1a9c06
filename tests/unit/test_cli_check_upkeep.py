"""What `tarry check` notes of copies, from what the brokers say of the topics."""

from tarry.cli.check.upkeep import short_of_copies
from tarry.config import Intake


def test_topics_with_fewer_copies_than_are_configured_are_one_line() -> None:
    copies = {"in": 3, "in.journal": 1, "in.wheel-2": 2, "in.results": 4, "other": 1, "other.journal": 1, "in.x": 1}
    [line] = short_of_copies(Intake(topic="in", replication=3), copies)
    assert line == (
        "intake in: replication = 3, and there are fewer copies of in.journal (1), in.wheel-2 (2); "
        "kafka-reassign-partitions makes more"
    )


def test_topics_that_are_not_there_or_have_enough_copies_are_no_line() -> None:
    assert not list(short_of_copies(Intake(topic="in", replication=3), {"in": 3, "in.dead": 5}))
