"""`audit` on a real broker: a clean run of the service has no fault, and faults planted in its topics are found."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tarry.client import OutcomeReader
from tarry.clock import SystemClock
from tarry.core.murmur2 import partition_of
from tarry.core.request.intake_policy import IntakePolicy
from tarry.errors import UsageError
from tarry.headers import derived_id
from tarry.pipelines.audit import Audit, Span
from tarry.pipelines.faults import FAULTS
from tarry.pipelines.topics import TopicTables
from tarry.testing import LiveService
from tests.support.ignoring import ignore
from tests.support.spark_job import SparkJob
from tests.support.stage import Later, Stage
from tests.support.topics import read_topic

pytestmark = [pytest.mark.broker, pytest.mark.stage(partitions=2, intake=True)]

NONE = {kind: 0 for kind in FAULTS if kind != "late"}
DELIVERED = 60


@pytest.mark.exhaustive
def test_a_clean_run_has_no_fault_and_what_waits_is_judged_by_the_next_run(
    bootstrap: str, unique_name: Callable[[str], str], topics: TopicTables, tmp_path: Path
) -> None:
    live = LiveService(bootstrap, tmp_path, unique_name("audit"), max_delay="2h")
    with live as service, service.producer() as producer:
        target = service.make_topic("out", 2)
        for number in range(DELIVERED):
            producer.send(
                target, b"%d" % number, key=b"%d" % (number % 7), delay=timedelta(milliseconds=3_000 - 20 * number)
            )
        taken_back = producer.send(target, b"taken back", delay=timedelta(seconds=4))
        producer.cancel(taken_back.handle)
        producer.send(f"{service.name}.nowhere", b"dead", delay=timedelta(0))
        producer.send(target, b"much later", delay=timedelta(hours=1))
        service.read(target, DELIVERED)
        service.read(f"{service.intake}.results", DELIVERED + 2)
        audit = Audit([IntakePolicy(service.intake)], str(tmp_path / "out"), str(tmp_path / "state"), grace_ms=0)

        # A run that looks as if an hour ago: it has seen everything, and may judge nothing but what is dead.
        first = audit.run(topics, ignore, Later(-3_600_000))
        assert (first.fates, first.faults) == ({"waiting": DELIVERED + 2, "dead": 1}, NONE)

        second = audit.run(topics, ignore, Later(10_000))
        assert (second.fates, second.faults) == ({"delivered": DELIVERED, "cancelled": 1, "waiting": 1}, NONE)
        assert first.account == f"{DELIVERED} records at targets = matched 0 + carried {DELIVERED}"
        assert second.account == f"{DELIVERED} records at targets = matched {DELIVERED} + carried 0"
        assert (second.carried, second.accepted, second.order["judged"] > 0) == (DELIVERED + 2, DELIVERED + 2, True)

        # As if after the last has been due: the service has not delivered it, and a lost one is told once.
        third, fourth = (audit.run(topics, ignore, Later(7_200_000)) for _ in range(2))
        assert (third.fates, third.faults) == ({"lost": 1}, {**NONE, "lost": 1})
        assert (fourth.fates, fourth.faults) == ({"still lost": 1}, NONE)

        # One that an earlier run has settled comes again.
        again = read_topic(bootstrap, target)[0]
        copier = Producer({"bootstrap.servers": bootstrap})
        copier.produce(target, again.value(), again.key(), again.partition() or 0, headers=again.headers())
        assert copier.flush(20) == 0
        copier.close()
        assert audit.run(topics, ignore).faults == {**NONE, "duplicate": 1}

        # All of it once more, by time and apart from the series.
        whole = Audit(audit.policies, str(tmp_path / "span"), "", Span(first.horizon_ms), grace_ms=0)
        of_span = whole.run(topics, ignore)
        assert of_span.fates == {"delivered": DELIVERED, "cancelled": 1, "waiting": 1, "dead": 1}
        assert of_span.faults == {**NONE, "duplicate": 1}
        nothing = Audit(audit.policies, str(tmp_path / "none"), "", Span(None, first.horizon_ms), grace_ms=0)
        assert nothing.run(topics, ignore).accepted == 0


def test_occurrences_of_schedules_are_delivered_messages_whatever_ends_their_schedules(
    bootstrap: str, unique_name: Callable[[str], str], topics: TopicTables, tmp_path: Path
) -> None:
    live = LiveService(bootstrap, tmp_path, unique_name("audit"), max_delay="2h")
    second = timedelta(seconds=1)
    with live as service, service.producer() as producer:
        target = service.make_topic("out", 2)
        ends = datetime.now(UTC) + 3 * second
        cancelled = producer.repeat(target, b"cancelled", b"a", name="n", every=second)
        replaced = producer.repeat(target, b"replaced", b"b", name="n", every=second)
        expired = producer.repeat(target, b"expired", b"c", name="n", every=second, expires_at=ends)
        producer.repeat(target, b"yearly", b"d", name="n", cron="0 0 1 1 *")
        with OutcomeReader(bootstrap, service.intake) as outcomes:
            assert outcomes.await_outcome(expired, 30)["reason"] == "expired"
            producer.cancel_named(b"a", "n")
            producer.send(target, b"single", b"b", name="n", delay=second)
            assert outcomes.await_outcome(cancelled, 30)["outcome"] == "cancelled"
            assert outcomes.await_outcome(replaced, 30)["outcome"] == "replaced"
            assert outcomes.await_outcome(producer.send(target, b"last", delay=2 * second), 30)["outcome"] == "fired"
        delivered = len(read_topic(bootstrap, target))
        audit = Audit([IntakePolicy(service.intake)], str(tmp_path / "out"), str(tmp_path / "state"), grace_ms=0)
        found = audit.run(topics, ignore, Later(10_000))
        assert found.faults == NONE
        assert (found.fates["delivered"], found.fates["dead"]) == (delivered, 1)
        # The end of a schedule may name the record that was delivered last.
        assert found.fates.keys() <= {"delivered", "dead", "waiting", "cancelled", "replaced"}
        assert found.account == f"{delivered} records at targets = matched {delivered} + carried 0"


class Page(HTMLParser):
    """The content of an HTML page, and the external resources that it requests."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []
        self.foreign: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "use", "path", "br"}:
            self.open.append(tag)
        self.seen.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "srcset", "data", "action"} and not (value or "").startswith("#"):
                self.foreign.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open[-1:] == [tag]:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"meta", "use", "path", "br"}:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


class Planter:
    """Writes what a service would have written, and faults among it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.target = stage.target
        self.now_ms = SystemClock().now_ms()
        self._producer = Producer(stage.cluster.client())
        self._offset = 0

    def send(self, due_ms: int, key: bytes = b"key") -> tuple[int, int, bytes]:
        """Accepted ten minutes ago, to partition 0 of the intake."""
        headers = [("tarry-target", self.target), ("tarry-deliver-at", str(due_ms))]
        self._produce(self.stage.intake, b"payload", key, headers, self.now_ms - 600_000)
        self._offset += 1
        return self._offset - 1, due_ms, key

    def cancel(self) -> None:
        """A record of the intake that is no message."""
        self._produce(self.stage.intake, b"", b"key", [("tarry-cancel", "1.no.handle")], self.now_ms - 600_000)
        self._offset += 1

    def settle(self, sent: tuple[int, int, bytes], outcome: str = "fired", **more: str) -> None:
        offset, due_ms, _ = sent
        source = f"{self.stage.intake}/0/{offset}"
        fields = {"v": 1, "outcome": outcome, "id": self._id(offset), "source": source, "due_ms": due_ms}
        value = json.dumps(fields | {"at_ms": due_ms, "target": self.target} | more).encode()
        self._produce(f"{self.stage.intake}.results", value, self._id(offset).encode(), None, self.now_ms)

    def deliver(self, sent: tuple[int, int, bytes], late_ms: int = 3, value: bytes = b"payload") -> None:
        offset, due_ms, key = sent
        headers = [
            ("tarry-id", self._id(offset)),
            ("tarry-due-ms", str(due_ms)),
            ("tarry-source", f"{self.stage.intake}/0/{offset}"),
        ]
        self._produce(self.target, value, key, headers, due_ms + late_ms)

    def forge(self, source: str | bytes | None) -> None:
        """A record that names a place, or none, and no result tells of it."""
        headers: list[tuple[str, str | bytes]] = [("tarry-id", "x"), ("tarry-due-ms", str(self.now_ms))]
        headers += [] if source is None else [("tarry-source", source)]
        self._produce(self.target, b"payload", b"k", headers, self.now_ms)

    def fire(self, sent: tuple[int, int, bytes], late_ms: int = 3) -> None:
        self.settle(sent)
        self.deliver(sent, late_ms)

    def flush(self) -> None:
        assert self._producer.flush(20) == 0

    def close(self) -> None:
        self.flush()
        self._producer.close()

    def _id(self, offset: int) -> str:
        return derived_id(self.stage.intake, 0, offset).decode()

    def _produce(self, topic: str, value: bytes, key: bytes, headers: Any, at_ms: int) -> None:
        self._producer.produce(topic, value, key, 0, timestamp=at_ms, headers=headers)


@pytest.mark.exhaustive
def test_planted_faults_are_found_by_the_command_after_one_that_was_killed_and_stand_in_its_report(
    stage: Stage, tmp_path: Path
) -> None:
    planter = Planter(stage)
    due_ms = planter.now_ms - 300_000
    for number in range(100):
        planter.fire(planter.send(due_ms - 1_000 + number))
    planter.settle(planter.send(due_ms))  # 100: lost
    twice = planter.send(due_ms, b"twice")  # 101
    planter.fire(twice)
    planter.deliver(twice, 900)
    planter.fire(planter.send(due_ms, b"early"), -1)  # 102
    behind, ahead = planter.send(due_ms, b"order"), planter.send(due_ms + 1, b"order")  # 103, 104
    planter.fire(ahead)
    planter.fire(behind, 900)
    cancelled = planter.send(due_ms, b"cancelled")  # 105
    planter.settle(cancelled, "cancelled")
    planter.deliver(cancelled)
    planter.settle(planter.send(due_ms, b"<script>"), "dead", reason="unknown-target")  # 106
    planter.cancel()  # 107
    planter.deliver((107, due_ms, b"accepted by nobody"))
    planter.send(planter.now_ms + 3_600_000)  # 108, not due yet
    planter.close()
    command = ["audit", "--out", str(tmp_path / "out"), "--intake", stage.intake, "--json", "--fail-on", "early,order"]
    command += ["--bootstrap-servers", stage.cluster.bootstrap_servers]
    # One that is killed in the middle leaves nothing behind that the next would go on from.
    with SparkJob(tmp_path / "1", *command) as doomed:
        doomed.kill_when(lambda: "tarry: validating" in doomed.errors, "it validates")
    with SparkJob(tmp_path / "2", *command) as job:
        assert job.ended() == 1, job.errors
        summary = json.loads(job.output)
    planted = ("lost", "duplicate", "early", "order", "cancelled", "unexpected")
    assert summary["faults"] == {**NONE, **dict.fromkeys(planted, 1)}
    assert summary["fates"] == {"delivered": 105, "lost": 1, "dead": 1, "waiting": 1}
    assert summary["order"] == {"judged": 105, "unjudged": 0}
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert (page.open, page.foreign) == ([], [])
    assert "url(http" not in text
    assert page.seen.count("svg") == 3
    assert {"unknown-target", "Faults were found."} <= set(page.words)


@pytest.mark.exhaustive
def test_one_of_every_kind_of_forged_record_is_counted_under_its_name(
    stage: Stage, topics: TopicTables, tmp_path: Path
) -> None:
    planter = Planter(stage)
    due_ms = planter.now_ms - 300_000
    for number in range(20):
        planter.fire(planter.send(due_ms - 1_000 + number))
    for source in (
        f"{stage.intake}/0/999999",
        f"{stage.intake}/7/1",
        "nosuch.in/0/1",
        "garbage",
        b"\xff\xfe",
        f"{stage.intake}/0/07",
    ):
        planter.forge(source)
    planter.forge(None)
    planter.deliver(planter.send(due_ms, b"no result"))
    twice = planter.send(due_ms, b"settled twice")
    planter.settle(twice)
    planter.fire(twice)
    damaged = planter.send(due_ms, b"damaged second")
    planter.fire(damaged)
    planter.deliver(damaged, 900, b"another payload")
    planter.fire(planter.send(due_ms, b"late"), 200_000)
    planter.target = stage.make_topic(f"{stage.target}.two", 2)
    planter.fire(planter.send(due_ms, next(key for key in (b"a", b"b", b"c", b"d") if partition_of(key, 2) == 1)))
    planter.close()
    command = ["audit", "--out", str(tmp_path / "out"), "--intake", stage.intake, "--max-late", "100s"]
    command += ["--bootstrap-servers", stage.cluster.bootstrap_servers]
    with SparkJob(tmp_path / "1", *command, "--fail-on", "unexpected") as job:
        assert job.ended() == 1, job.errors
        lines = job.output.splitlines()
    print(*lines, sep="\n")  # noqa: T201 (what a person sees)
    found, account = lines
    assert found == (
        "accepted 25, delivered 25, dead 0, waiting 0, lost 0, duplicate 1, early 0, order 0, damaged 1, misplaced 1, "
        "late 1, cancelled but delivered 0, no-result 1, settled-twice 1, unexpected 6"
    )
    assert account == (
        "33 records at targets = matched 21 + carried 0 + duplicate 1 + misplaced 1 + late 1 + no-result 1"
        " + settled-twice 1 + unexpected 6 + foreign 1"
    )
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert {"nosuch.in/0/1", "garbage", "FFFE", f"{stage.intake}/0/07"} <= set(Page(text).words)
    again = Audit([IntakePolicy(stage.intake)], str(tmp_path / "out"), str(tmp_path / "out" / "state"))
    assert again.run(topics, ignore).account == "0 records at targets = matched 0 + carried 0"


@pytest.mark.exhaustive
def test_a_record_after_the_run_that_settled_or_did_not_judge_its_message_is_no_duplicate(
    stage: Stage, topics: TopicTables, tmp_path: Path
) -> None:
    other = stage.make_topic(f"{stage.target}.other")
    compacted = stage.make_topic(f"{stage.target}.compacted", cleanup_policy="compact")
    planter = Planter(stage)
    due_ms = planter.now_ms - 300_000
    settled = planter.send(due_ms)
    planter.fire(settled)
    planter.target = other
    planter.fire(planter.send(due_ms))
    planter.target = compacted
    late = planter.send(due_ms)
    planter.flush()
    audit = Audit([IntakePolicy(stage.intake)], str(tmp_path / "out"), str(tmp_path / "state"))
    first = audit.run(topics, ignore)
    assert (first.fates, first.faults) == ({"delivered": 2, "unjudged": 1}, NONE)

    planter.fire(late, 290_000)
    # A consumer sends on what it has read, with all headers, to a topic that is a target as well; and once to its own.
    planter.target = other
    planter.deliver(settled)
    planter.target = stage.target
    planter.deliver(settled)
    planter.close()
    second = audit.run(topics, ignore)
    assert (second.fates, second.faults) == ({"delivered": 1}, {**NONE, "duplicate": 1})
    assert second.account == "3 records at targets = matched 1 + carried 0 + duplicate 1 + elsewhere 1"


@pytest.mark.exhaustive
def test_messages_accepted_while_the_targets_are_read_are_judged_by_the_next_run(
    stage: Stage, bootstrap: str, topics: TopicTables, tmp_path: Path
) -> None:
    next_one = Stage(bootstrap, f"{stage.intake}.next", 1, stage.until_the_end)
    next_one.make_intake()
    planter, behind = Planter(stage), Planter(next_one)
    due_ms = planter.now_ms - 300_000
    planter.target = next_one.intake
    planter.fire(planter.send(due_ms))
    planter.close()

    def accept_more(line: str) -> None:
        if "messages accepted" in line:
            behind.send(due_ms)
            behind.flush()

    audit = Audit([IntakePolicy(one.intake) for one in (stage, next_one)], str(tmp_path / "out"), str(tmp_path / "s"))
    # What was delivered to the second intake asks for nothing, and is dead there.
    first = audit.run(topics, accept_more)
    assert (first.records, first.accounted["matched"], first.accounted["foreign"]) == (2, 1, 1)
    second = audit.run(topics, ignore)
    assert (second.accepted - second.carried, second.faults["lost"]) == (1, 1)
    behind.close()


def test_an_intake_that_is_not_there_is_one_line(topics: TopicTables, tmp_path: Path) -> None:
    audit = Audit([IntakePolicy("nowhere")], str(tmp_path / "out"), str(tmp_path / "state"))
    with pytest.raises(UsageError, match="there is no topic nowhere"):
        audit.run(topics, ignore)
