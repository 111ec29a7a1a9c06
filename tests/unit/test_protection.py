"""How topics are protected against the failure of a broker: how many copies, and the settings."""

import pytest

from tarry.cli.check.upkeep import unprotected
from tarry.config import Config, Intake
from tarry.kafka.intake_topics import IN_SYNC, UNCLEAN, protection


@pytest.mark.parametrize(("brokers", "copies"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_without_a_replication_factor_there_are_as_many_copies_as_brokers_and_three_at_most(
    brokers: int, copies: int
) -> None:
    assert [one.replication for one in Config().with_copies(brokers).intakes] == [copies]


def test_a_replication_factor_that_is_given_is_kept() -> None:
    config = Config(intake=(Intake(topic="a", replication=1), Intake(topic="b")))
    assert [one.replication for one in config.with_copies(3).intakes] == [1, 3]


@pytest.mark.parametrize(("copies", "in_sync"), [(1, "1"), (2, "1"), (3, "2"), (4, "2")])
def test_topics_of_three_copies_need_two_of_them_and_none_has_an_unclean_leader(copies: int, in_sync: str) -> None:
    assert protection(copies) == {UNCLEAN: "false", IN_SYNC: in_sync}


def test_each_setting_that_may_lose_messages_is_named_with_the_command_that_mends_it() -> None:
    configs = {
        "a": {UNCLEAN: "true", IN_SYNC: "1"},
        "b": {UNCLEAN: "false", IN_SYNC: "1"},
        "c": {UNCLEAN: "false", IN_SYNC: "2"},
    }
    unclean, in_sync = unprotected(configs, {"a": 1, "b": 3, "c": 3})
    assert unclean.startswith(f"topic a: {UNCLEAN}=true: ")
    assert unclean.endswith(f"(kafka-configs --alter --topic a --add-config {UNCLEAN}=false)")
    assert in_sync.startswith(f"topic b: {IN_SYNC}=1: ")
    assert in_sync.endswith(f"(kafka-configs --alter --topic b --add-config {IN_SYNC}=2)")
