"""What is known of target topics: asked once, kept for a minute, and never trusted that one is missing."""

import pytest

from tarry.errors import RetriableError
from tarry.worker.targets import KEPT_MS, Targets

NOTHING: tuple[set[str], set[str]] = (set(), set())
"""Neither a topic that is missing, nor one that can't be told of."""


class Cluster:
    """Topics and their partitions, and the questions asked about them."""

    def __init__(self, **partitions: int | None) -> None:
        self.partitions = partitions
        self.asked: list[str] = []

    def __call__(self, topic: str) -> int | None:
        self.asked.append(topic)
        return self.partitions.get(topic, 0)


def test_a_topic_that_exists_is_asked_for_once() -> None:
    cluster = Cluster(a=3, b=1)
    targets = Targets(cluster)
    assert targets.learn(["a", "b", "a"], 1) == NOTHING
    assert targets.learn(["a"], 2) == NOTHING
    assert targets.partitions == {"a": 3, "b": 1}
    assert sorted(cluster.asked) == ["a", "b"]


def test_a_topic_that_is_missing_is_asked_for_each_time_and_found_when_it_is_made() -> None:
    cluster = Cluster()
    targets = Targets(cluster)
    assert targets.learn(["a"], 1) == ({"a"}, set())
    assert targets.learn(["a"], 2) == ({"a"}, set())
    cluster.partitions["a"] = 2
    assert targets.learn(["a"], 3) == NOTHING
    assert targets.partitions == {"a": 2}


def test_after_a_minute_all_are_asked_for_anew() -> None:
    cluster = Cluster(a=1)
    targets = Targets(cluster)
    targets.learn(["a"], 10)
    cluster.partitions["a"] = 5
    targets.learn(["a"], KEPT_MS)
    assert targets.partitions == {"a": 1}
    targets.learn(["a"], KEPT_MS + 1)
    assert targets.partitions == {"a": 5}


def test_a_topic_that_was_forgotten_is_asked_for_anew() -> None:
    cluster = Cluster(a=1)
    targets = Targets(cluster)
    targets.learn(["a"], 1)
    del cluster.partitions["a"]
    targets.forget("a")
    targets.forget("never known")
    assert targets.learn(["a"], 2) == ({"a"}, set())
    assert targets.partitions == {}


def test_a_topic_that_cannot_be_told_of_now_is_neither_there_nor_missing() -> None:
    cluster = Cluster(a=None, b=2)
    targets = Targets(cluster)
    assert targets.learn(["a", "b", "c"], 1) == ({"c"}, {"a"})
    cluster.partitions["a"] = 4
    assert targets.learn(["a", "b"], 2) == NOTHING
    assert targets.partitions == {"a": 4, "b": 2}


def test_a_cluster_that_does_not_answer_is_no_verdict() -> None:
    def silent(topic: str) -> int:
        raise RetriableError(f"no answer about {topic}")

    targets = Targets(silent)
    with pytest.raises(RetriableError):
        targets.learn(["a"], 1)
    assert targets.partitions == {}
