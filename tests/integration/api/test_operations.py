"""Bulk acts: a dry run, then an operation on exactly the records that it saw, each handled once."""

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tarry.api.access.sessions import SKEW_MS, Sessions, read_keys
from tarry.api.operations.bulk import TOKEN_MS
from tarry.client import DelayedMessage
from tarry.clock import SystemClock
from tarry.testing import LiveService
from tarry.testing.manual_clock import ManualClock
from tarry.units import parse_instant_ms
from tests.support.api import Api, config_beside, make_token
from tests.support.brokers import wait_until
from tests.support.fate import STRUCK
from tests.support.processes import Serve
from tests.support.topics import read_topic

WHY: Final = {"reason": "the target is back"}


@dataclass(frozen=True)
class Place:
    """A service, and two replicas of its API that share tokens and session keys."""

    service: LiveService
    first: Api
    second: Api
    tokens: Mapping[str, str]
    keys: Path

    def client(self, name: str = "all", api: Api | None = None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        return httpx.Client(base_url=(api or self.first).url, headers=headers, timeout=60, trust_env=False)

    def dead(self, target: str, count: int, start: int = 0, **fields: Any) -> None:
        """Make dead letters: of messages for a topic that does not exist."""
        with self.service.producer() as producer:
            numbers = range(start, start + count)
            messages = [
                DelayedMessage(target, b"%d" % number, b"k%d" % (number % 7), delay=timedelta(0), **fields)
                for number in numbers
            ]
            list(producer.send_many(messages))
        with self.client() as client:
            wait_until(lambda: open_letters(client, target) >= start + count, f"{start + count} dead letters", 90)

    @contextmanager
    def killed(self) -> Iterator[Serve]:
        """The process of the first replica, to be killed; a new one serves afterwards, also if the test fails."""
        try:
            yield self.first.process
        finally:
            self.first.process.close()
            self.first.start()

    def delivered(self, target: str) -> Counter[bytes]:
        return Counter(record.value() or b"" for record in read_topic(self.service.bootstrap_servers, target))


def open_letters(client: httpx.Client, target: str) -> int:
    found = client.get("/v1/dead", params={"target": target}).json()
    return sum(one["count"] for one in found["counts"] if one["target"] == target)


def plan(client: httpx.Client, path: str, **fields: Any) -> dict[str, Any]:
    answer = client.post(path, json=fields)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def begin(client: httpx.Client, path: str, token: str) -> dict[str, Any]:
    answer = client.post(path, json={"token": token, **WHY})
    assert answer.status_code == 202, answer.text
    row = dict(answer.json())
    assert answer.headers["location"] == f"/v1/operations/{row['id']}"
    return row


def row_of(client: httpx.Client, row: Mapping[str, Any]) -> dict[str, Any]:
    answer = client.get(f"/v1/operations/{row['id']}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def over(client: httpx.Client, row: Mapping[str, Any], within_s: float = 60) -> dict[str, Any]:
    wait_until(lambda: row_of(client, row)["state"] in {"done", "stopped", "failed"}, "the operation is over", within_s)
    return row_of(client, row)


@pytest.fixture(scope="module")
def place(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("apis")
    path, keys = directory / "tokens.json", directory / "keys"
    keys.write_text("k" * 40, encoding="ascii")
    tokens = {
        "all": make_token(path, "all", "send", "look-keys", "look-values", "act"),
        "look": make_token(path, "look", "look"),
        "act elsewhere": make_token(path, "act.elsewhere", f"act:{service.name}.elsewhere"),
        "another": make_token(path, "another", "act"),
    }
    config = config_beside(service, 2, tokens=str(path), session_keys=str(keys))
    with ExitStack() as stack:
        first = stack.enter_context(Api(config, directory, "first", ["tests.support.dying_api"]))
        second = stack.enter_context(Api(config, directory, "second"))
        yield Place(service, first, second, tokens, keys)


def test_exactly_the_letters_of_the_dry_run_are_redriven_once(place: Place) -> None:
    target = f"{place.service.name}.exact"
    place.dead(target, 5)
    with place.client() as client, place.client(api=place.second) as other:
        found = plan(client, "/v1/dead:redrive", target=target)
        assert (found["count"], found["complete"]) == (5, True)
        assert found["by_code"] == {"unknown-target": 5}
        assert found["by_target"] == {target: 5}
        assert {one["key"]["text"] for one in found["letters"]} == {f"k{number}" for number in range(5)}
        assert place.service.make_topic("exact") == target
        # A letter that comes after the dry run stays; so the topic must be gone for it.
        place.dead(f"{target}-later", 2)
        done = over(other, begin(other, "/v1/dead:redrive", found["token"]))
        assert (done["state"], done["done"], done["failed"], done["total"]) == ("done", 5, {}, 5)
        assert (done["who"], done["reason"]) == ("all", WHY["reason"])
        wait_until(lambda: place.delivered(target).total() == 5, "all are delivered", 30)
        # The same token, at the other replica, is the same operation, and does nothing more.
        assert begin(client, "/v1/dead:redrive", found["token"])["id"] == done["id"]
        assert row_of(client, done)["done"] == 5
        assert plan(client, "/v1/dead:redrive", target=target)["count"] == 0
        assert open_letters(client, f"{target}-later") == 2
        assert place.delivered(target) == Counter({b"%d" % number: 1 for number in range(5)})


def test_letters_that_somebody_else_sends_again_meanwhile_are_left(place: Place) -> None:
    target = f"{place.service.name}.twice"
    place.dead(target, 4)
    with place.client() as client:
        first, second = (plan(client, "/v1/dead:redrive", target=target) for _ in range(2))
        place.service.make_topic("twice")
        assert over(client, begin(client, "/v1/dead:redrive", first["token"]))["done"] == 4
        done = over(client, begin(client, "/v1/dead:redrive", second["token"]))
        assert (done["state"], done["done"], done["failed"]) == ("done", 0, {"done-by-others": 4})
        wait_until(lambda: place.delivered(target).total() == 4, "all are delivered", 30)


def test_dismissed_letters_are_not_counted_and_not_sent(place: Place) -> None:
    target = f"{place.service.name}.dismissed"
    place.dead(target, 3)
    with place.client() as client:
        found = plan(client, "/v1/dead:dismiss", target=target, code="unknown-target")
        place.service.make_topic("dismissed")
        assert over(client, begin(client, "/v1/dead:dismiss", found["token"]))["done"] == 3
        wait_until(lambda: open_letters(client, target) == 0, "none is open", 10)
        letters = client.get("/v1/dead", params={"target": target, "sent_again": True}).json()["letters"]
        assert [(one["is_sent_again"], one["is_dismissed"]) for one in letters] == [(True, True)] * 3
        assert plan(client, "/v1/dead:redrive", target=target)["count"] == 0
        assert place.delivered(target).total() == 0


def test_of_a_name_only_the_youngest_letter_is_sent(place: Place) -> None:
    target = f"{place.service.name}.named"
    with place.service.producer() as producer:
        for number in range(3):
            producer.send(target, b"%d" % number, key=b"k", delay=timedelta(0), name=b"n")
            with place.client() as client:  # the next one would replace it while it waits
                wait_until(lambda: open_letters(client, target) == number + 1, "it is dead", 60)  # noqa: B023
    with place.client() as client:
        found = plan(client, "/v1/dead:redrive", target=target)
        place.service.make_topic("named")
        done = over(client, begin(client, "/v1/dead:redrive", found["token"]))
        assert (done["done"], done["failed"]) == (1, {"older-of-its-name": 2})
        wait_until(lambda: place.delivered(target) == Counter([b"2"]), "the youngest", 30)
        # Its name is free now, and the others are out of date all the same.
        found = plan(client, "/v1/dead:redrive", target=target)
        assert found["count"] == 2
        done = over(client, begin(client, "/v1/dead:redrive", found["token"]))
        assert (done["done"], done["failed"]) == (0, {"older-of-its-name": 2})


def waiting_of(place: Place, target: str, count: int, delay: timedelta = timedelta(minutes=30)) -> list[str]:
    with place.service.producer() as producer:
        messages = [DelayedMessage(target, b"%d" % number, b"key", delay=delay) for number in range(count)]
        return [str(one.handle) for one in producer.send_many(messages)]


def states(client: httpx.Client, handles: list[str]) -> Counter[str]:
    return Counter(client.get(f"/v1/messages/{handle}").json()["state"] for handle in handles)


def test_exactly_the_messages_of_the_dry_run_are_cancelled(place: Place) -> None:
    target = place.service.make_topic("cancelled")
    seen = waiting_of(place, target, 6, timedelta(seconds=20))
    with place.client() as client:
        found = plan(client, "/v1/pending:cancel", target=target)
        assert (found["count"], found["by_target"], found["by_code"]) == (6, {target: 6}, {})
        assert {one["handle"] for one in found["messages"]} == set(seen)
        later = waiting_of(place, target, 3)
        done = over(client, begin(client, "/v1/pending:cancel", found["token"]))
        assert (done["state"], done["done"], done["failed"]) == ("done", 6, {})
        wait_until(lambda: states(client, seen) == {"cancelled": 6}, "the service has decided", 60)
        assert states(client, later) == {"waiting": 3}
        again = plan(client, "/v1/pending:cancel", target=target, key="key")
        assert again["count"] == 3


def test_only_the_messages_of_some_handles_are_cancelled_or_moved(place: Place) -> None:
    target = place.service.make_topic("picked")
    seen = waiting_of(place, target, 4, timedelta(minutes=30))
    gone = f"1.{place.service.intake}.0.1795739167737.e1ef23e5-01e5-4ee6-98d0-cf2f4ce1b205"
    with place.client() as client:
        found = plan(client, "/v1/pending:cancel", handles=[seen[2], seen[0], gone])
        assert (found["count"], found["complete"], found["left_out"]) == (2, True, {"not-found": 1})
        done = over(client, begin(client, "/v1/pending:cancel", found["token"]))
        assert (done["done"], done["failed"]) == (2, {})
        rows = {handle: client.get(f"/v1/messages/{handle}").json() for handle in seen}
        assert [rows[handle].get("cancel_waits") for handle in seen] == [True, False, True, False]
        found = plan(client, "/v1/pending:move", handles=[seen[1]], by="10m")
        assert (found["count"], found["left_out"]) == (1, {})
    with place.client("act elsewhere") as client:
        found = plan(client, "/v1/pending:cancel", handles=[seen[1]])
        assert (found["count"], found["left_out"], found["messages"]) == (0, {"not-found": 1}, [])


def test_messages_are_moved_and_schedules_are_left_out(place: Place) -> None:
    target = place.service.make_topic("moved")
    seen = waiting_of(place, target, 5)
    with place.service.producer() as producer:
        named = producer.send(target, b"named", key=b"key", delay=timedelta(minutes=30), name=b"n")
        producer.repeat(target, b"s", key=b"key", name=b"s", every=timedelta(minutes=40))
    with place.client() as client:
        found = plan(client, "/v1/pending:move", target=f"{target[:-1]}*", by="10m")
        assert (found["count"], found["left_out"]) == (6, {"schedule": 1})
        done = over(client, begin(client, "/v1/pending:move", found["token"]))
        assert (done["done"], done["failed"], done["by_ms"]) == (6, {}, 600_000)

        old = {int(handle.split(".")[-2]) for handle in seen}
        new = Counter(int(handle.split(".")[-2]) + 600_000 for handle in [*seen, str(named.handle)])

        def dues() -> Counter[int]:
            rows = client.get("/v1/pending/messages", params={"target": target}).json()["messages"]
            return Counter(parse_instant_ms(one["due"]) for one in rows if one["schedule"] is None)

        wait_until(lambda: Counter({due: count for due, count in dues().items() if due not in old}) == new, "new times")
        for handle in seen:  # the service decides shortly before they are due
            assert client.get(f"/v1/messages/{handle}").json()["cancel_waits"] is True
        # What is moved already must not be sent once more.
        again = plan(client, "/v1/pending:move", target=target, by="5m")
        assert again["count"] == 11
        done = over(client, begin(client, "/v1/pending:move", again["token"]))
        assert (done["done"], done["failed"]) == (6, {"cancelled": 5})
        answer = client.post(f"/v1/messages/{seen[0]}:move", json={"delay": "20m"})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), answer.text


def test_messages_that_do_not_wait_any_more_are_left(place: Place) -> None:
    target = place.service.make_topic("late")
    seen = waiting_of(place, target, 2, timedelta(seconds=20))
    with place.client() as client:
        found = plan(client, "/v1/pending:move", target=target, by="10m")
        assert client.delete(f"/v1/messages/{seen[0]}", params={"wait": "30s"}).status_code == 200
        done = over(client, begin(client, "/v1/pending:move", found["token"]))
        assert (done["done"], done["failed"]) == (1, {"not-waiting": 1})


def test_what_is_due_and_waits_for_its_target_is_not_moved_and_arrives_once(place: Place) -> None:
    target = place.service.make_topic("due")
    body = {"reason": "its reader is away", "intake": place.service.intake}
    with place.client() as client:
        assert client.put(f"/v1/targets/{target}/pause", json=body).status_code == 200
        handles = waiting_of(place, target, 2, timedelta(seconds=15))
        found = plan(client, "/v1/pending:move", target=target, by="10s")
        assert (found["count"], found["left_out"]) == (2, {})

        def are_due() -> bool:
            left_out = plan(client, "/v1/pending:move", target=target, by="10s")["left_out"]
            return bool(left_out == {"being-delivered": 2})

        wait_until(are_due, "they are nearly due", 30)
        done = over(client, begin(client, "/v1/pending:move", found["token"]))
        assert (done["done"], done["failed"]) == (0, {"being-delivered": 2})
        due_ms = max(int(handle.split(".")[-2]) for handle in handles)
        wait_until(lambda: SystemClock().now_ms() >= due_ms, "they are due", 30)
        for act, moved in ((":move", {"delay": "10s"}), (":deliver-now", None)):
            answer = client.post(f"/v1/messages/{handles[0]}{act}", json=moved)
            assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), answer.text
        assert client.put(f"/v1/targets/{target}/resume", json=body).status_code == 200
        wait_until(lambda: place.delivered(target).total() == 2, "they are delivered", 30)


def test_another_replica_goes_on_after_kill_9_and_each_letter_is_sent_once(place: Place) -> None:
    target, count = f"{place.service.name}.killed", 3_000
    place.dead(target, count)
    with place.client() as client, place.client(api=place.second) as other:
        found = plan(client, "/v1/dead:redrive", target=target)
        assert found["count"] == count
        place.service.make_topic("killed")
        with place.killed() as process:
            process.signal(signal.SIGUSR1)
            row = begin(client, "/v1/dead:redrive", found["token"])
            assert process.wait_ended(60) == 128 + signal.SIGKILL
            wait_until(lambda: row_of(other, row)["done"] > 0, "it is known how far it was", 60)
            at_kill = row_of(other, row)
            assert 0 < at_kill["done"] < count
            done = over(other, row, 120)
        assert (done["state"], done["done"], done["failed"]) == ("done", count, {})
        assert done["replica"] != at_kill["replica"]
        wait_until(lambda: place.delivered(target).total() >= count, "all are delivered", 120)
        assert place.delivered(target) == Counter({b"%d" % number: 1 for number in range(count)})


def test_an_operation_that_is_stopped_does_nothing_more(place: Place) -> None:
    target, count = f"{place.service.name}.stopped", 3_000
    place.dead(target, count)
    with place.client() as client, place.client(api=place.second) as other:
        found = plan(client, "/v1/dead:redrive", target=target)
        place.service.make_topic("stopped")
        place.first.process.signal(signal.SIGUSR2)
        row = begin(client, "/v1/dead:redrive", found["token"])
        try:
            place.first.process.wait_said(STRUCK, 1, 60)
            answer = other.post(f"/v1/operations/{row['id']}:stop", json={"reason": "wrong target"})
            assert answer.status_code == 200, answer.text
        finally:
            place.first.process.signal(signal.SIGCONT)
        done = over(client, row)
        assert (done["state"], done["stopped_by"], done["stop_reason"]) == ("stopped", "all", "wrong target")
        assert 0 < done["done"] < count
        wait_until(lambda: place.delivered(target).total() >= done["done"], "what was sent", 60)
        assert place.delivered(target).total() == done["done"]
        rest = plan(client, "/v1/dead:dismiss", target=target)
        assert rest["count"] == count - done["done"]
        assert over(client, begin(client, "/v1/dead:dismiss", rest["token"]))["state"] == "done"


def test_who_may_not_act_on_a_target_neither_sees_nor_does_anything(place: Place) -> None:
    target = f"{place.service.name}.theirs"
    place.dead(target, 2)
    paths = ("/v1/dead:redrive", "/v1/dead:dismiss", "/v1/pending:cancel", "/v1/pending:move")
    with place.client() as client, place.client("look") as look, place.client("act elsewhere") as elsewhere:
        for path in paths:
            body = {"target": target} | ({"by": "1m"} if path.endswith("move") else {})
            assert look.post(path, json=body).json()["code"] == "forbidden"
            found = plan(elsewhere, path, **body)
            assert (found["count"], found["token"], found["letters"]) == (0, None, [])
            assert plan(elsewhere, path, **{name: one for name, one in body.items() if name != "target"})["count"] == 0
        found = plan(client, "/v1/dead:dismiss", target=target)
        for other in (elsewhere, look):
            answer = other.post("/v1/dead:dismiss", json={"token": found["token"], **WHY})
            assert answer.status_code in {403, 422}, answer.text
        row = begin(client, "/v1/dead:dismiss", found["token"])
        assert over(client, row)["done"] == 2
        assert elsewhere.get(f"/v1/operations/{row['id']}").status_code == 404
        assert elsewhere.post(f"/v1/operations/{row['id']}:stop", json=WHY).status_code == 404
        assert look.get(f"/v1/operations/{row['id']}").status_code == 200
        assert look.post(f"/v1/operations/{row['id']}:stop", json=WHY).status_code == 403
        listed = elsewhere.get("/v1/operations").json()["operations"]
        assert row["id"] not in {one["id"] for one in listed}
        assert target not in elsewhere.get("/v1/audit").text
        assert {"act": "dismiss", "who": "all", "records": 2, "operation": row["id"]}.items() <= next(
            one for one in look.get("/v1/audit").json()["acts"] if one["operation"] == row["id"]
        ).items()


def test_a_token_that_is_not_ones_own_or_too_old_is_refused(place: Place) -> None:
    target = f"{place.service.name}.tokens"
    place.dead(target, 1)
    with place.client() as client, place.client("another") as another:
        token = plan(client, "/v1/dead:dismiss", target=target)["token"]
        clock = ManualClock(SystemClock().now_ms() - TOKEN_MS - SKEW_MS)
        sessions = Sessions(lambda: read_keys(place.keys), clock)
        content = Sessions(lambda: read_keys(place.keys), SystemClock()).unseal("operation.dismiss", token, TOKEN_MS)
        assert content is not None
        forged = Sessions(lambda: ("x" * 40,), SystemClock()).seal("operation.dismiss", content)
        refused = [
            (client, "/v1/dead:dismiss", sessions.seal("operation.dismiss", content)),
            (client, "/v1/dead:dismiss", forged),
            (client, "/v1/dead:dismiss", token[:-3] + "AAA"),
            (client, "/v1/dead:dismiss", "ünreadable\x00"),
            (client, "/v1/dead:redrive", token),
            (client, "/v1/pending:cancel", token),
            (another, "/v1/dead:dismiss", token),
        ]
        for who, path, bad in refused:
            answer = who.post(path, json={"token": bad, **WHY})
            assert answer.status_code == 422, (path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["code"] == "dry-run-expired"
        without_reason = client.post("/v1/dead:dismiss", json={"token": token})
        assert (without_reason.status_code, without_reason.json()["code"]) == (422, "bad-request")
        with_more = client.post("/v1/dead:dismiss", json={"token": token, **WHY, "target": target})
        assert with_more.status_code == 422
        assert open_letters(client, target) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"target": "x" * 300},
        {"code": "\ud800"},
        {"intake": "no.such"},
        {"unknown": 1},
        {"handles": []},
        {"handles": ["1.not.a.handle"]},
        {"handles": ["1.tarry.delayed.0.1795739167737.e1ef23e5-01e5-4ee6-98d0-cf2f4ce1b205"], "target": "orders"},
        {"token": "x" * 100_000, "reason": "r"},
        {"token": "a.b.c", "reason": "\ud800"},
        {"token": "a.b.c", "reason": "r" * 1_001},
        [],
        "text",
    ],
)
def test_hostile_bodies_are_problems(place: Place, body: object) -> None:
    with place.client() as client:
        for path in ("/v1/dead:redrive", "/v1/pending:cancel"):
            answer = client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
            assert 400 <= answer.status_code < 500, (path, answer.status_code, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_target_of_html_and_bytes_is_text_in_the_answer(place: Place) -> None:
    target, key = "<script>alert(1)</script>", b"\xff\x00<b>"
    with place.service.producer() as producer:
        producer.send(f"{place.service.name}.none", b"v", key=key, delay=timedelta(0))
    with place.client() as client:
        wait_until(lambda: open_letters(client, f"{place.service.name}.none") >= 1, "a letter", 60)
        assert plan(client, "/v1/dead:redrive", target=target)["count"] == 0
        found = plan(client, "/v1/dead:redrive", target=f"{place.service.name}.none")
        assert found["letters"][0]["key"]["is_utf8"] is False


def test_pauses_and_what_people_do_are_recorded_for_all_replicas(
    place: Place, unique_name: Callable[[str], str]
) -> None:
    target = place.service.make_topic("audited")
    [by_hand, by_program] = waiting_of(place, target, 2)
    secret = unique_name("secret")
    with place.client() as client, place.client(api=place.second) as other:
        body = {"reason": "deploy", "intake": place.service.intake}
        assert client.put(f"/v1/targets/{target}/pause", json=body).status_code in {200, 202}
        assert client.put(f"/v1/targets/{target}/resume", json=body).status_code in {200, 202}
        assert client.put(f"/v1/targets/{target}.none/pause", json=body).status_code == 404
        browser = {"Sec-Fetch-Site": "same-origin"}
        params = {"reason": "wrong order"}
        assert client.delete(f"/v1/messages/{by_hand}", params=params, headers=browser).status_code == 202
        assert client.delete(f"/v1/messages/{by_program}", params=params).status_code == 202
        timer = {"key": secret, "name": secret}
        sent = {"target": target, "value": secret, "delay": "50m"}
        assert client.put("/v1/timers", params=timer, json=sent, headers=browser).status_code in {200, 202}

        def acts() -> list[tuple[str, str | None]]:
            found = other.get("/v1/audit").json()["acts"]
            return [(one["act"], one["handle"]) for one in found if one["handle"] or one["target"] == target]

        expected = {("pause", None), ("resume", None), ("cancel", by_hand), ("set-timer", None)}
        wait_until(lambda: expected <= set(acts()), "the acts are recorded", 30)
        assert ("cancel", by_program) not in acts()
        assert secret not in other.get("/v1/audit").text
        # What was refused, nobody did.
        assert f"{target}.none" not in other.get("/v1/audit").text
