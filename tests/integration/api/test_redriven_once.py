"""A dead letter is sent again once, whoever redrives at the same time and whatever hides the notes for a while."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.api.operations.board import Board
from tarry.api.operations.letters import WantedLetters, pick_letters
from tarry.api.operations.records import Act, Asked, State
from tarry.api.operations.running import Execution
from tarry.api.parts import Parts
from tarry.client.retry.core.redrive import Condition
from tarry.client.retry.redrive import Redrive
from tarry.clock import SystemClock
from tarry.config import load
from tarry.errors import RetriableError
from tarry.kafka.inspector import Inspector
from tarry.kafka.origins import topic_id_of
from tarry.kafka.reader import Reader
from tarry.kafka.settings import Cluster
from tarry.kafka.transaction import Transactor
from tarry.service.app import cluster_of
from tarry.testing import LiveService
from tests.support.api import config_beside
from tests.support.brokers import wait_until
from tests.support.topics import read_topic


def silent(*_: object, **_fields: object) -> None:
    """Hear nothing."""


def write_letters(bootstrap: str, dead: str, values: list[bytes], target: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 2_000_000})
    for value in values:
        headers: Any = [("tarry-error", b"no-target"), ("tarry-target", target.encode()), ("tarry-delay-ms", b"0")]
        producer.produce(dead, value, b"k", 0, headers=headers)
    assert producer.flush(30) == 0


def test_a_redrive_waits_for_the_transaction_that_hides_the_notes_of_an_earlier_one(
    bootstrap: str, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, to = unique_name("dead"), unique_name("to")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(one, 1, 1) for one in (dead, to)]).values():
        future.result(30)
    write_letters(bootstrap, dead, [b"a", b"b"], to)
    other = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique_name("killed")})
    other.init_transactions(30)

    begun: list[int] = []

    def hide(done: int, _more: int) -> None:
        """As soon as the letters are known, somebody else leaves a transaction open before the notes."""
        if done:
            return
        begun.append(len(begun))  # first the look begins, then the sending
        if len(begun) == 2:
            other.begin_transaction()
            other.produce(dead, b"not committed", partition=0)
            other.flush(30)

    cluster = Cluster(bootstrap, {})
    sent = [Redrive(cluster, dead, silent, hide).run(to, [])]
    read, letters, further = Reader.read, list[int](), list[int]()

    def counted(reader: Reader, most: int, timeout_s: float) -> Any:
        if len(letters) == 2:  # both were read, and there is more to read
            further.append(most)
        return read(reader, most, timeout_s)

    def look(done: int, _more: int) -> None:
        if done == 1:
            letters.append(done)

    monkeypatch.setattr(Reader, "read", counted)
    again = threading.Thread(target=lambda: sent.append(Redrive(cluster, dead, silent, look).run(to, [])))
    again.start()
    # It waits for what the transaction hides; one that does not has sent both again.
    wait_until(lambda: len(further) >= 3 or not again.is_alive(), "the second redrive reads on", 60)
    other.abort_transaction(30)
    again.join(60)
    assert sent == [2, 0]
    assert sorted(record.value() or b"" for record in read_topic(bootstrap, to)) == [b"a", b"b"]


@contextmanager
def following(service: LiveService, directory: Path) -> Iterator[Board]:
    """The operations of a service's intake, as a replica knows them that executes none by itself."""
    config = config_beside(service, 2, read_only=True)
    path = directory / "tarry.toml"
    path.write_text(config.toml(), encoding="utf-8")
    settings = load(path, {})
    board = Board(Parts(settings, cluster_of(settings), SystemClock(), silent), "here")
    with closing(board):
        board.start()
        yield board


def asked_for(service: LiveService, cluster: Cluster, target: str, id_: str) -> Asked:
    """What a dry run of a redrive of the letters for a target finds."""
    dead, clock = f"{service.intake}.dead", SystemClock()
    with closing(Inspector(cluster, f"{service.name}.group", clock)) as inspector:
        topic_id = topic_id_of(inspector.admin, dead)
        pick = pick_letters(
            inspector, service.intake, topic_id, WantedLetters(target=target), lambda _target: True, clock
        )
    return Asked(id_, Act.REDRIVE, service.intake, topic_id, pick.picked(), pick.targets, pick.codes, who="me")


def test_an_operation_that_registers_again_sends_nothing_that_a_command_has_sent_meanwhile(
    service: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, intake = service.make_topic("registered"), service.intake
    # The second one is too large for the intake: to refuse it lets the operation register again.
    write_letters(service.bootstrap_servers, f"{intake}.dead", [b"small", b"x" * 1_090_000], target)
    cluster = Cluster(service.bootstrap_servers, {})
    register, registrations = Transactor.renew, list[str]()

    def renew(transactor: Transactor) -> None:
        registrations.append(transactor.transactional_id)
        if len(registrations) == 2:
            monkeypatch.setattr(Transactor, "renew", register)
            assert Redrive(cluster, f"{intake}.dead", silent, silent).run(intake, [Condition.parse("value=small")]) == 1
        register(transactor)

    with following(service, tmp_path) as board:
        around = board._around
        asked = asked_for(service, cluster, target, "an-operation")
        board.ask(asked)
        monkeypatch.setattr(Transactor, "renew", renew)
        with pytest.raises(RetriableError):
            Execution(around, asked).run()
        Execution(around, asked).run()
        row = board.find(intake, asked.id)
        assert row is not None
        assert row.progress is not None
        assert (row.progress.done, sum(row.progress.failed.values())) == (0, 2)
    assert len(registrations) == 2
    wait_until(lambda: len(read_topic(service.bootstrap_servers, target)) == 1, "the message")
    assert [record.value() for record in read_topic(service.bootstrap_servers, target)] == [b"small"]


def test_an_operation_goes_on_behind_a_letter_that_is_refused(
    service: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, intake = service.make_topic("refused"), service.intake
    sent = [b"%d" % number for number in range(5)]
    too_large = [b"x" * 1_090_000] * 2
    write_letters(
        service.bootstrap_servers, f"{intake}.dead", [sent[0], too_large[0], *sent[1:4], too_large[1], sent[4]], target
    )
    monkeypatch.setattr("tarry.api.operations.letters.AT_ONCE", 2)
    cluster = Cluster(service.bootstrap_servers, {})
    with following(service, tmp_path) as board:
        asked = asked_for(service, cluster, target, "behind-what-is-refused")
        board.ask(asked)
        running = threading.Thread(target=Execution(board._around, asked).run, daemon=True)
        running.start()
        running.join(60)
        assert not running.is_alive()
        wait_until(lambda: (row := board.find(intake, asked.id)) is not None and row.state is State.DONE, "its end")
        row = board.find(intake, asked.id)
        assert row is not None
        assert row.progress is not None
        assert (row.progress.done, row.progress.failed) == (5, {"msg_size_too_large": 2})
    wait_until(lambda: len(read_topic(service.bootstrap_servers, target)) == 5, "the messages")
    assert sorted(record.value() or b"" for record in read_topic(service.bootstrap_servers, target)) == sent
