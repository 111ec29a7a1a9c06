"""The origin of a checkpoint: another topic is named in the error; an unknown id is not compared."""

from dataclasses import replace

import pytest

from tarry.core.progress.origin import Origin

HAD = Origin("cluster-a", "intake-a", "journal-a", ("one-a", "two-a"))


def test_the_same_ids_are_no_change() -> None:
    assert HAD.changes("in", HAD) == []
    assert HAD.knows_all_of(HAD)


@pytest.mark.parametrize(
    ("now", "name"),
    [
        (replace(HAD, intake="b"), "in with id intake-a, and it has b now"),
        (replace(HAD, journal="b"), "in.journal with id journal-a, and it has b now"),
        (replace(HAD, levels=("one-a", "b")), "in.wheel-2 with id two-a, and it has b now"),
    ],
)
def test_a_recreated_topic_is_named_with_both_ids(now: Origin, name: str) -> None:
    assert HAD.changes("in", now) == [f"topic {name}: it was deleted and recreated"]


def test_in_another_cluster_the_topics_need_not_be_named() -> None:
    assert HAD.changes("in", Origin("cluster-b", "b", "b", ("b", "b"))) == [
        "cluster cluster-a, and this is cluster cluster-b"
    ]
    assert not HAD.is_of_cluster(replace(HAD, cluster="cluster-b"))


@pytest.mark.parametrize(
    "now", [Origin(), Origin("", "", "journal-a"), replace(HAD, levels=()), replace(HAD, intake="")]
)
def test_an_unknown_id_is_no_change(now: Origin) -> None:
    assert HAD.changes("in", now) == []
    assert now.changes("in", HAD) == []


def test_levels_that_came_or_went_with_the_wheels_shape_are_no_change() -> None:
    more = replace(HAD, levels=(*HAD.levels, "three-a"))
    assert HAD.changes("in", more) == more.changes("in", HAD) == []
    assert not HAD.knows_all_of(more)
    assert more.knows_all_of(HAD)


def test_an_origin_that_lacks_a_known_id_is_not_complete() -> None:
    assert not replace(HAD, intake="").knows_all_of(HAD)
    assert not Origin().knows_all_of(HAD)
    assert HAD.knows_all_of(replace(HAD, intake=""))


def test_a_level_is_told_by_itself() -> None:
    now = replace(HAD, levels=("one-a", "b"))
    assert [HAD.has_level(level, now) for level in (1, 2, 3)] == [True, False, True]
