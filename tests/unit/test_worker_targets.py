"""What is known of target topics: asked once for all of a batch, and kept for a minute; a missing one for a second."""

from collections.abc import Collection

import pytest

from tarry.errors import RetriableError
from tarry.kafka.topics import Target
from tarry.worker.targets import KEPT_MS, MISSING_MS, Targets

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


def test_topics_that_exist_are_asked_for_once_and_together() -> None:
    cluster = Cluster(a=Target(3), b=Target(1))
    targets = Targets(cluster)
    assert targets.learn(["a", "b", "a"], 1) == NOTHING
    assert targets.learn(["a"], 2) == NOTHING
    assert targets.partitions == {"a": 3, "b": 1}
    assert cluster.asked == [{"a", "b"}]


def test_a_topic_that_is_missing_is_asked_for_again_after_a_second_and_found_when_it_is_made() -> None:
    cluster = Cluster()
    targets = Targets(cluster)
    assert targets.learn(["a"], 1) == ({"a"}, {})
    cluster.topics["a"] = Target(2)
    assert targets.learn(["a"], 1 + MISSING_MS) == ({"a"}, {})
    assert cluster.asked == [{"a"}]
    assert targets.learn(["a"], 2 + MISSING_MS) == NOTHING
    assert targets.partitions == {"a": 2}


def test_after_a_minute_all_are_asked_for_anew() -> None:
    cluster = Cluster(a=Target(1))
    targets = Targets(cluster)
    targets.learn(["a"], 10)
    cluster.topics["a"] = Target(5, max_bytes=100)
    targets.learn(["a"], KEPT_MS)
    assert (targets.partitions, targets.max_bytes("a")) == ({"a": 1}, None)
    targets.learn(["a"], KEPT_MS + 1)
    assert (targets.partitions, targets.max_bytes("a")) == ({"a": 5}, 100)


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_topic_that_was_forgotten_is_asked_for_anew(*, all_of_them: bool) -> None:
    cluster = Cluster(a=Target(1, compacted=True))
    targets = Targets(cluster)
    targets.learn(["a"], 1)
    del cluster.topics["a"]
    if all_of_them:
        targets.forget_all()
    else:
        targets.forget("a")
        targets.forget("never known")
    assert not targets.needs_keys("a")
    assert targets.learn(["a"], 2) == ({"a"}, {})
    assert targets.partitions == {}


def test_a_topic_that_cannot_be_written_to_is_neither_there_nor_missing_and_is_asked_for_each_time() -> None:
    cluster = Cluster(a=Target(4, "no leader"), b=Target(2))
    targets = Targets(cluster)
    assert targets.learn(["a", "b", "c"], 1) == ({"c"}, {"a": "no leader"})
    cluster.topics["a"] = Target(4)
    assert targets.learn(["a", "b"], 2) == NOTHING
    assert targets.partitions == {"a": 4, "b": 2}


def test_what_a_target_is_known_to_refuse_depends_on_its_settings() -> None:
    cluster = Cluster(small=Target(1, max_bytes=100), compacted=Target(1, compacted=True), hidden=Target(1))
    targets = Targets(cluster)
    targets.learn(cluster.topics, 1)
    assert [targets.refuses_from(topic) for topic in cluster.topics] == [101, None, None]
    assert [targets.needs_keys(topic) for topic in cluster.topics] == [False, True, False]
    assert (targets.refuses_from("unknown"), targets.needs_keys("unknown")) == (None, False)


def test_where_records_are_compressed_only_the_brokers_know_their_size() -> None:
    targets = Targets(Cluster(small=Target(1, max_bytes=100)), compresses=True)
    targets.learn(["small"], 1)
    assert targets.refuses_from("small") is None
    assert targets.max_bytes("small") == 100


def test_a_cluster_that_does_not_answer_is_no_verdict() -> None:
    def silent(topics: Collection[str]) -> dict[str, Target]:
        raise RetriableError(f"no answer about {topics}")

    targets = Targets(silent)
    with pytest.raises(RetriableError):
        targets.learn(["a"], 1)
    assert targets.partitions == {}
