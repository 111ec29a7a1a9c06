"""Pages of what waits while the service files, brings down, files again and delivers: on the fake cluster.

Whatever happens between two pages, a listing that comes to its end has each message once that waited all the time.
"""

import random
from collections import Counter
from http import HTTPStatus
from typing import Any

import pytest

from tarry.api.looking import crowds, paging
from tarry.api.looking.cursor import message_cursor
from tarry.api.looking.paging import Page, Wanted, read_page
from tarry.api.problems import ProblemError
from tarry.config import Config, Intake
from tests.support.inspected_intake import InspectedIntake

SETTINGS = Config(intake=(Intake(topic="in"),))
EVERYTHING = Wanted()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of some messages is a crowd."""
    monkeypatch.setattr(paging, "MOST", 8)
    monkeypatch.setattr(crowds, "JUMP", 1)


def page_of(scene: InspectedIntake, cursor: str | None, most: int, wanted: Wanted = EVERYTHING) -> Page:
    at = None if cursor is None else message_cursor(cursor)
    return read_page(scene.inspector, SETTINGS, scene.clock, "in", wanted, at, most)


def sent(scene: InspectedIntake, choose: random.Random, count: int) -> None:
    """Messages for one bucket, and for any; some have names, and replace others."""
    crowd_ms = choose.randrange(14_000, 40_000)
    for _ in range(count):
        delay_ms = crowd_ms + choose.randrange(2_000) if choose.random() < 0.8 else choose.randrange(100, 60_000)
        name = b"n%d" % choose.randrange(4) if choose.random() < 0.1 else None
        scene.send(delay_ms, choose.randrange(2), name)


def ids(scene: InspectedIntake) -> set[str]:
    return {one.id for one in scene.waiting() if one.kind == "message"}


@pytest.mark.parametrize("number", range(25))
def test_what_waits_throughout_is_listed_once_whatever_moves(number: int, seed: int) -> None:
    choose, scene = random.Random(f"{seed} {number}"), InspectedIntake()
    sent(scene, choose, choose.randrange(40, 150))
    scene.serve(choose.randrange(400, 3_000))
    sent(scene, choose, choose.randrange(20))  # perhaps not filed yet
    calm = choose.random() < 0.5
    for _ in range(20):
        before, listed, cursor = ids(scene), Counter[str](), None
        try:
            while True:
                page = page_of(scene, cursor, choose.randrange(2, 9))
                listed.update(one.id for one in page.found)
                assert [one.due_ms for one in page.found] == sorted(one.due_ms or 0 for one in page.found)
                if page.next is None:
                    break
                cursor = page.next.text()
                if choose.random() < (0.1 if calm else 0.4):
                    sent(scene, choose, choose.randrange(6))
                    scene.serve(choose.choice([0, 5, 100, 3_000]))
        except ProblemError as problem:
            assert problem.status == HTTPStatus.GONE  # noqa: PT017 - it may come, at any page
            continue
        assert {id_: count for id_, count in listed.items() if count > 1} == {}
        assert before & ids(scene) <= listed.keys() <= before
        return
    assert not calm


def test_a_crowd_is_listed_as_it_was_filed_and_the_rest_by_due_time() -> None:
    scene = InspectedIntake()
    for number in range(40):
        scene.send(29_000 - number * 20, number % 2)
        scene.send(2_000 + 1_000 * number)
    scene.serve(1_000)
    pages, cursor = list[Page](), None
    while not pages or cursor is not None:
        pages.append(page_of(scene, cursor, 5))
        cursor = pages[-1].next.text() if (pages[-1].next is not None) else None
    assert {page.is_sorted for page in pages} == {True, False}
    assert all(page.searched <= 40 for page in pages)
    by_due = [one.due_ms or 0 for page in pages if page.is_sorted for one in page.found]
    assert by_due == sorted(by_due)
    assert sum(len(page.found) for page in pages) == 80


def test_a_listing_may_begin_in_the_middle_of_a_crowd() -> None:
    scene = InspectedIntake()
    handles = [scene.send(30_000 + number * 10, number % 2) for number in range(40)]
    scene.serve(1_000)
    wanted, found, cursor = Wanted(from_ms=handles[20].due_ms, until_ms=handles[30].due_ms), list[str](), None
    while True:
        page = page_of(scene, cursor, 3, wanted)
        found += [one.id for one in page.found]
        if page.next is None:
            break
        cursor = page.next.text()
    assert sorted(found) == sorted(handle.id for handle in handles[20:30])


def test_a_listing_of_a_crowd_expires_when_its_bucket_is_closed() -> None:
    scene = InspectedIntake()
    for number in range(60):
        scene.send(20_000 + number * 10, number % 2)
    scene.serve(1_000)
    page = page_of(scene, None, 5, Wanted(from_ms=scene.clock.now_ms() + 18_500))
    assert page.next is not None
    assert not page.is_sorted
    scene.serve(15_000)
    with pytest.raises(ProblemError, match="were moved") as refused:
        page_of(scene, page.next.text(), 5)
    assert refused.value.status == HTTPStatus.GONE


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"level": 99}, HTTPStatus.GONE),
        ({"level": 2**70}, HTTPStatus.GONE),
        ({"offset": 2**63}, HTTPStatus.BAD_REQUEST),
        ({"below": [2**63, 0]}, HTTPStatus.BAD_REQUEST),
    ],
)
def test_a_cursor_of_a_crowd_that_cannot_be_is_refused(change: dict[str, Any], status: HTTPStatus) -> None:
    scene = InspectedIntake()
    for number in range(60):
        scene.send(20_000 + number * 10, number % 2)
    scene.serve(1_000)
    page = page_of(scene, None, 5, Wanted(from_ms=scene.clock.now_ms() + 18_500))
    assert page.next is not None
    assert page.next.crowd is not None
    forged = page.next._replace(crowd=page.next.crowd._replace(**change))
    with pytest.raises(ProblemError) as refused:
        page_of(scene, forged.text(), 5)
    assert refused.value.status == status


def test_what_is_filed_again_is_not_listed_twice() -> None:
    scene = InspectedIntake()
    far = {scene.send(70_000 + number * 10).id for number in range(14)}
    for number in range(160):
        scene.send(15_000 + number * 20)
    scene.serve(1_000)
    from_ms = scene.clock.now_ms() + 60_000
    page = page_of(scene, None, 5, Wanted(from_ms=from_ms))
    assert not page.is_sorted
    before = {one.id: one.offset for one in scene.waiting() if one.id in far}
    scene.serve(24_000)
    after = {one.id: one.offset for one in scene.waiting() if one.id in far}
    assert after.keys() == before.keys()
    assert any(after[id_] > before[id_] for id_ in far)
    listed = Counter(one.id for one in page.found)

    def go_on(page: Page) -> None:
        while page.next is not None:
            page = page_of(scene, page.next.text(), 5, Wanted(from_ms=from_ms))
            listed.update(one.id for one in page.found)

    with pytest.raises(ProblemError, match="were moved"):
        go_on(page)
    assert max(listed.values()) == 1
