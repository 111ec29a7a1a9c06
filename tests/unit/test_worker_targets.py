"""Knowledge of target topics: one request for a batch, cached for a minute; a missing topic for a second."""

from collections.abc import Collection

import pytest

from tarry.errors import RetriableError
from tarry.kafka.topics import Target
from tarry.service.worker.targets import KEPT_MS, MISSING_MS, SURE_MS, Ask, Targets

NOTHING: tuple[set[str], dict[str, str]] = (set(), {})
"""Neither a topic that is missing, nor one that can't be written to."""


class Cluster:
    """Topics, and the questions asked about them."""

    def __init__(self, **topics: Target) -> None:
        self.topics = topics
        self.asked: list[set[str]] = []

    def __call__(self, topics: Collection[str]) -> dict[str, Target]:
        self.asked.append(set(topics))
        return {topic: self.topics.get(topic, Target(0)) for topic in topics}


def targets_of(ask: Ask, *, others: Ask | None = None, compresses: bool = False) -> Targets:
    return Targets(ask, others or ask, compresses=compresses)


def surely_missing(cluster: Cluster, topic: str, *, others: Ask | None = None) -> Targets:
    """A topic that was not found, and was not found again so much later."""
    targets = targets_of(cluster, others=others)
    targets.learn([topic], 1 - SURE_MS)
    return targets


def test_topics_that_exist_are_asked_for_once_and_together() -> None:
    cluster = Cluster(a=Target(3), b=Target(1))
    targets = targets_of(cluster)
    assert targets.learn(["a", "b", "a"], 1) == NOTHING
    assert targets.learn(["a"], 2) == NOTHING
    assert targets.partitions == {"a": 3, "b": 1}
    assert cluster.asked == [{"a", "b"}]


def test_a_topic_that_is_missing_is_asked_for_again_after_a_second_and_found_when_it_is_made() -> None:
    cluster = Cluster()
    targets = surely_missing(cluster, "a")
    assert targets.learn(["a"], 1) == ({"a"}, {})
    cluster.asked = [{"a"}]
    cluster.topics["a"] = Target(2)
    assert targets.learn(["a"], 1 + MISSING_MS) == ({"a"}, {})
    assert cluster.asked == [{"a"}]
    assert targets.learn(["a"], 2 + MISSING_MS) == NOTHING
    assert targets.partitions == {"a": 2}


def test_after_a_minute_all_targets_are_asked_for_again() -> None:
    cluster = Cluster(a=Target(1))
    targets = targets_of(cluster)
    targets.learn(["a"], 10)
    cluster.topics["a"] = Target(5, max_bytes=100)
    targets.learn(["a"], KEPT_MS)
    assert (targets.partitions, targets.max_bytes("a")) == ({"a": 1}, None)
    targets.learn(["a"], KEPT_MS + 1)
    assert (targets.partitions, targets.max_bytes("a")) == ({"a": 5}, 100)


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_forgotten_topic_is_asked_for_again(*, all_of_them: bool) -> None:
    cluster = Cluster(a=Target(1, compacted=True))
    targets = targets_of(cluster)
    targets.learn(["a"], 1)
    del cluster.topics["a"]
    if all_of_them:
        targets.forget_all()
    else:
        targets.forget("a")
        targets.forget("never known")
    assert not targets.needs_keys("a")
    assert targets.learn(["a"], 2)[1].keys() == {"a"}
    assert targets.partitions == {}


def test_a_topic_that_cannot_be_written_to_is_neither_there_nor_missing_and_is_asked_for_each_time() -> None:
    cluster = Cluster(a=Target(4, "no leader"), b=Target(2))
    targets = surely_missing(cluster, "c")
    assert targets.learn(["a", "b", "c"], 1) == ({"c"}, {"a": "no leader"})
    cluster.topics["a"] = Target(4)
    assert targets.learn(["a", "b"], 2) == NOTHING
    assert targets.partitions == {"a": 4, "b": 2}


def test_predicted_refusals_depend_on_the_targets_settings() -> None:
    cluster = Cluster(small=Target(1, max_bytes=100), compacted=Target(1, compacted=True), hidden=Target(1))
    targets = targets_of(cluster)
    targets.learn(cluster.topics, 1)
    assert [targets.refuses_from(topic) for topic in cluster.topics] == [101, None, None]
    assert [targets.needs_keys(topic) for topic in cluster.topics] == [False, True, False]
    assert (targets.refuses_from("unknown"), targets.needs_keys("unknown")) == (None, False)


def test_where_records_are_compressed_only_the_brokers_know_their_size() -> None:
    targets = targets_of(Cluster(small=Target(1, max_bytes=100)), compresses=True)
    targets.learn(["small"], 1)
    assert targets.refuses_from("small") is None
    assert targets.max_bytes("small") == 100


def test_a_cluster_that_does_not_answer_is_no_verdict() -> None:
    def silent(topics: Collection[str]) -> dict[str, Target]:
        raise RetriableError(f"no answer about {topics}")

    targets = targets_of(silent)
    with pytest.raises(RetriableError):
        targets.learn(["a"], 1)
    assert targets.partitions == {}


def test_a_topic_that_a_broker_does_not_know_is_away_before_it_is_missing() -> None:
    cluster = Cluster()
    targets = targets_of(cluster)
    for now_ms in (10, 10 + SURE_MS - 1):
        missing, obstacles = targets.learn(["a"], now_ms)
        assert not missing
        assert "knows no topic of this name" in obstacles["a"]
    assert targets.learn(["a"], 10 + SURE_MS) == ({"a"}, {})


def test_a_topic_that_another_broker_knows_is_there() -> None:
    others = Cluster(a=Target(3))
    targets = surely_missing(Cluster(), "a", others=others)
    assert others.asked == []
    assert targets.learn(["a"], 1) == NOTHING
    assert (targets.partitions, others.asked) == ({"a": 3}, [{"a"}])


def test_a_topic_that_was_found_meanwhile_begins_a_new_doubt() -> None:
    cluster = Cluster()
    targets = surely_missing(cluster, "a")
    cluster.topics["a"] = Target(1)
    assert targets.learn(["a"], 1) == NOTHING
    targets.forget("a")
    del cluster.topics["a"]
    assert targets.learn(["a"], 2)[1].keys() == {"a"}


def test_other_brokers_are_asked_now_and_then_about_what_they_did_not_know() -> None:
    others = Cluster()
    targets = surely_missing(Cluster(), "a", others=others)
    for now_ms in range(1, 2 * SURE_MS, MISSING_MS + 1):
        assert targets.learn(["a"], now_ms) == ({"a"}, {})
    assert len(others.asked) == 2


def test_without_an_answer_of_another_broker_no_topic_counts_as_missing() -> None:
    def silent(topics: Collection[str]) -> dict[str, Target]:
        raise RetriableError(f"no answer about {topics}")

    targets = surely_missing(Cluster(), "a", others=silent)
    with pytest.raises(RetriableError):
        targets.learn(["a"], 1)
