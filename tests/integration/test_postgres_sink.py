"""The sink on a real PostgreSQL and a real broker: each message becomes a row once, whoever is killed when."""

import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.client.dedup import DeliveredMessage, PostgresSink
from tarry.client.dedup.loop import Loop
from tarry.client.dedup.store import Store, TakenOverError
from tarry.client.dedup.tables import Tables
from tarry.client.group_consumer import Begin, GroupClients
from tarry.errors import UsageError
from tarry.kafka.settings import Cluster
from tarry.testing import FakeBroker, ManualClock
from tarry.testing import Step as Request
from tests.support.brokers import wait_until
from tests.support.postgres import Postgres
from tests.support.raw_headers import produce_raw
from tests.support.sinking import MAKE_ROWS, STEPS, SinkConfig, Step, send, sink_of, sinking, write_rows

PARTITIONS = 3
WITHIN_S = 60.0


@pytest.fixture
def database(shared_postgres: Postgres) -> Postgres:
    shared_postgres.rows(MAKE_ROWS)
    return shared_postgres


@pytest.fixture
def config(bootstrap: str, topic_name: str, unique_name: Callable[[str], str], database: Postgres) -> SinkConfig:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic_name, PARTITIONS, 1)])[topic_name].result(timeout=30)
    return SinkConfig(bootstrap, topic_name, unique_name("sink"), database.conninfo)


def wait_written(database: Postgres, config: SinkConfig, count: int) -> None:
    query = "SELECT count(DISTINCT id) FROM rows WHERE sink = %s"
    wait_until(lambda: bool(database.rows(query, config.group)[0][0] >= count), f"{count} ids are written", WITHIN_S)


def wait_read(database: Postgres, config: SinkConfig, count: int) -> None:
    query = "SELECT coalesce(sum(next_offset), 0) FROM tarry_sink_offsets WHERE sink = %s"
    wait_until(lambda: bool(database.rows(query, config.group)[0][0] >= count), f"{count} are read", WITHIN_S)


def assert_written_once(database: Postgres, config: SinkConfig, sent: dict[str, bytes]) -> None:
    written = database.rows("SELECT id, value FROM rows WHERE sink = %s", config.group)
    assert sorted(written) == sorted(sent.items())


@contextmanager
def running(sink: PostgresSink) -> Iterator[None]:
    """Run a sink in a thread; at the end of the block it is stopped."""
    thread = threading.Thread(target=sink.run)
    thread.start()
    try:
        yield
    finally:
        sink.stop()
        thread.join(30)
    assert not thread.is_alive()


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_each_id_is_written_once_and_a_restart_reads_on_where_the_offsets_say(
    database: Postgres, config: SinkConfig, tmp_path: Path, group_protocol: str
) -> None:
    config = replace(config, group_protocol=group_protocol)
    sent = send(config.bootstrap, config.topic, 200, again=50)
    with sinking(config, tmp_path) as sink:
        wait_written(database, config, 200)
        wait_read(database, config, 250)
        assert sink.end() == 0, sink.tail()
    # Without the ids only the offsets keep what was read from being read again.
    database.rows("DELETE FROM tarry_sink_ids WHERE sink = %s", config.group)
    sent |= send(config.bootstrap, config.topic, 100)
    with sinking(config, tmp_path) as sink:
        wait_read(database, config, 350)
        assert sink.end() == 0, sink.tail()
    assert_written_once(database, config, sent)
    offsets = database.rows("SELECT sum(next_offset) FROM tarry_sink_offsets WHERE sink = %s", config.group)
    assert offsets == [(350,)]


@pytest.mark.some_of("step")
@pytest.mark.parametrize("step", STEPS)
def test_a_sink_that_is_killed_at_any_step_of_its_transaction_loses_and_doubles_nothing(
    database: Postgres, config: SinkConfig, tmp_path: Path, step: Step
) -> None:
    sent = send(config.bootstrap, config.topic, 200, again=50)
    with sinking(replace(config, step=step), tmp_path) as victim:
        assert victim.process.wait(WITHIN_S) == -signal.SIGKILL, victim.tail()
        assert victim.says("struck")
    with sinking(config, tmp_path) as sink:
        wait_written(database, config, 200)
        assert sink.end() == 0, sink.tail()
    assert_written_once(database, config, sent)


def test_a_sink_that_wakes_in_mid_transaction_writes_nothing_more_of_what_another_has_taken_over(
    database: Postgres, config: SinkConfig, tmp_path: Path
) -> None:
    config = replace(config, idle_limit_s=2.0)
    sent = send(config.bootstrap, config.topic, 200)
    with ExitStack() as until_the_end:
        zombie = until_the_end.enter_context(sinking(replace(config, step="rows", signal="STOP"), tmp_path))
        wait_until(lambda: zombie.says("struck"), "it stands in mid-transaction", WITHIN_S)
        sink = until_the_end.enter_context(sinking(config, tmp_path))
        wait_written(database, config, 200)
        zombie.process.send_signal(signal.SIGCONT)
        wait_until(lambda: zombie.says("begin_anew") or zombie.says("fenced"), "its transaction is refused")
        sent |= send(config.bootstrap, config.topic, 100)
        wait_written(database, config, 300)
        assert [sink.end(), zombie.end()] == [0, 0], sink.tail() + zombie.tail()
    assert_written_once(database, config, sent)


@pytest.mark.some_of("group_protocol")
@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_partitions_that_move_between_two_sinks_of_which_one_is_killed_are_written_once(
    database: Postgres, config: SinkConfig, tmp_path: Path, group_protocol: str
) -> None:
    config = replace(config, group_protocol=group_protocol, batch=5)
    sent = send(config.bootstrap, config.topic, 200)
    with sinking(config, tmp_path) as first:
        wait_written(database, config, 20)
        with sinking(config, tmp_path) as second:
            sent |= send(config.bootstrap, config.topic, 200, again=50)
            wait_until(lambda: second.says("taken_over"), "the second has partitions", WITHIN_S)
            sent |= send(config.bootstrap, config.topic, 200, again=50)
            first.end(signal.SIGKILL)
            wait_written(database, config, 600)
            assert second.end() == 0, second.tail()
    assert_written_once(database, config, sent)


def test_a_database_that_is_killed_in_mid_transaction_is_waited_for(
    start_postgres: Callable[[], Postgres], config: SinkConfig
) -> None:
    database = start_postgres()
    database.rows(MAKE_ROWS)
    config = replace(config, conninfo=database.conninfo)
    sent = send(config.bootstrap, config.topic, 200, again=50)
    killed = threading.Event()
    calls = 0

    def write(cursor: Any, messages: Sequence[DeliveredMessage]) -> None:
        nonlocal calls
        calls += 1
        write_rows(config.group, cursor, messages)
        if calls == 3:
            database.kill()
            killed.set()

    with running(sink_of(config, write)):
        assert killed.wait(WITHIN_S)
        database.start()
        wait_written(database, config, 200)
    assert_written_once(database, config, sent)


def test_an_exception_of_the_application_ends_the_sink_and_nothing_of_the_batch_is_written(
    database: Postgres, config: SinkConfig
) -> None:
    send(config.bootstrap, config.topic, 10)

    def fail(cursor: Any, messages: Sequence[DeliveredMessage]) -> None:
        write_rows(config.group, cursor, messages)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sink_of(config, fail).run()
    assert_written_once(database, config, {})
    assert database.rows("SELECT 1 FROM tarry_sink_ids WHERE sink = %s", config.group) == []


def test_a_database_that_is_away_at_the_start_is_waited_for(
    start_postgres: Callable[[], Postgres], config: SinkConfig
) -> None:
    database = start_postgres()
    database.rows(MAKE_ROWS)
    database.kill()
    config = replace(config, conninfo=database.conninfo)
    sent = send(config.bootstrap, config.topic, 50)
    refusals: list[str] = []

    def tell(event: str, **fields: Any) -> None:
        if event == "take_over_refused":
            refusals.append(fields["reason"])

    with running(sink_of(config, partial(write_rows, config.group), on_event=tell)):
        wait_until(lambda: len(refusals) >= 2, "it is refused, and tries again", WITHIN_S)
        assert refusals[0].startswith("the database is unreachable or aborted the transaction: ")
        database.start()
        wait_written(database, config, 50)
    assert_written_once(database, config, sent)


def test_a_header_whose_name_is_not_utf_8_does_not_end_the_sink(
    database: Postgres, config: SinkConfig, tmp_path: Path
) -> None:
    sent = send(config.bootstrap, config.topic, 40)
    id_ = str(uuid.uuid4())
    headers = [(b"\xff", b"1"), (b"tarry-id", id_.encode())]
    produce_raw(config.bootstrap, config.topic, headers, b"k", b"foreign", times=60)
    sent |= {id_: b"foreign"}
    with sinking(config, tmp_path) as sink:
        wait_written(database, config, 41)
        wait_read(database, config, 100)
        assert sink.end() == 0, sink.tail()
    assert_written_once(database, config, sent)


def test_a_topic_that_does_not_exist_is_one_line(config: SinkConfig) -> None:
    with pytest.raises(UsageError, match=r"^no such topic: nowhere$"):
        sink_of(replace(config, topic="nowhere"), print).run()


# -- the store alone --------------------------------------------------------------------------------------------------

PLACE = ("orders", 0)


@pytest.fixture
def make_store(database: Postgres, unique_name: Callable[[str], str]) -> Any:
    name = unique_name("store")
    with ExitStack() as until_the_end:

        def make(write: Any = None, keep_ids_ms: int = 60_000, **tables: str) -> Store:
            names = {"offsets": "tarry_sink_offsets", "ids": "tarry_sink_ids", **tables}
            write = write or partial(write_rows, name)
            store = Store(database.conninfo, Tables(name, **names), write, keep_ids_ms, 20.0)
            store.open()
            until_the_end.callback(store.close)
            return store

        make.name = name  # type: ignore[attr-defined]  # for what the tests look up
        yield make


def messages(start: int, count: int) -> list[DeliveredMessage]:
    return [
        DeliveredMessage(*PLACE, offset, 0, None, b"%d" % offset, [], str(uuid.uuid4()), None, None)
        for offset in range(start, start + count)
    ]


def test_an_old_owner_is_refused_and_its_transaction_leaves_nothing(database: Postgres, make_store: Any) -> None:
    old, new = make_store(), make_store()
    generation = old.take_over({PLACE: 7})[PLACE].generation
    assert old.write({PLACE: generation}, {PLACE: 9}, messages(7, 2)) == 2
    assert new.take_over({PLACE: 0}) == {PLACE: (9, generation + 1)}
    with pytest.raises(
        TakenOverError, match=r"^orders/0 was taken over by another process: generation 2 in the database, 1 in"
    ):
        old.write({PLACE: generation}, {PLACE: 20}, messages(9, 11))
    assert len(database.rows("SELECT 1 FROM rows WHERE sink = %s", make_store.name)) == 2
    assert new.write({PLACE: generation + 1}, {PLACE: 10}, messages(9, 1)) == 1


def test_a_take_over_waits_for_an_open_transaction_and_goes_on_behind_it(make_store: Any) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slowly(_cursor: Any, _messages: Sequence[DeliveredMessage]) -> None:
        begun.set()
        assert may_end.wait(30)

    old, new = make_store(slowly), make_store()
    old.take_over({PLACE: 0})
    writing = threading.Thread(target=old.write, args=({PLACE: 1}, {PLACE: 5}, messages(0, 5)))
    writing.start()
    assert begun.wait(30)
    assert new.take_over({PLACE: 0, ("orders", 1): 3}) == {("orders", 1): (3, 1)}
    may_end.set()
    writing.join(30)
    assert new.take_over({PLACE: 0}) == {PLACE: (5, 2)}


def test_ids_are_forgotten_as_others_come_so_that_their_table_is_bounded(database: Postgres, make_store: Any) -> None:
    store = make_store(keep_ids_ms=1)
    store.take_over({PLACE: 0})
    for start in range(0, 5_000, 500):
        store.write({PLACE: 1}, {PLACE: start + 500}, messages(start, 500))
    assert len(database.rows("SELECT 1 FROM tarry_sink_ids WHERE sink = %s", make_store.name)) <= 1_000


def test_a_message_without_an_id_is_always_new_and_one_of_equal_ids_in_a_batch_is(
    database: Postgres, make_store: Any
) -> None:
    store = make_store()
    store.take_over({PLACE: 0})
    first, second, third = messages(0, 3)
    assert store.write({PLACE: 1}, {PLACE: 2}, [first._replace(id=None), second._replace(id=None)]) == 2
    assert store.write({PLACE: 1}, {PLACE: 3}, [third, third._replace(offset=4), third._replace(topic="bills")]) == 2
    assert store.write({PLACE: 1}, {PLACE: 3}, [third]) == 0
    assert len(database.rows("SELECT 1 FROM rows WHERE sink = %s", make_store.name)) == 4


def test_tables_have_the_names_and_the_schema_that_are_asked_for(database: Postgres, make_store: Any) -> None:
    database.rows('CREATE SCHEMA IF NOT EXISTS "Own"')
    for _ in range(2):
        store = make_store(offsets="Own.where at", ids="Own.seen")
    store.take_over({PLACE: 4})
    assert database.rows('SELECT next_offset FROM "Own"."where at"') == [(4,)]
    indexes = database.rows("SELECT count(*) FROM pg_indexes WHERE schemaname = 'Own' AND tablename = 'seen'")
    assert indexes == [(2,)]


def test_a_function_that_ends_the_transaction_is_found_out(make_store: Any) -> None:
    store = make_store(lambda cursor, _messages: cursor.execute("ROLLBACK"))
    store.take_over({PLACE: 0})
    with pytest.raises(Exception, match="ended the transaction"):
        store.write({PLACE: 1}, {PLACE: 1}, messages(0, 1))


# -- the loop, on the fake cluster ------------------------------------------------------------------------------------


class Member:
    """A sink's loop, whose group and messages are on the fake cluster."""

    def __init__(self, broker: FakeBroker, clock: ManualClock, process: str, store: Store, hook: Any = None) -> None:
        cluster = Cluster("fake", {}, broker.clients(process, hook))
        self.events: list[str] = []

        def note(event: str, **_fields: Any) -> None:
            self.events.append(event)

        clients = GroupClients(cluster, cluster.member("group", "classic", None), [PLACE[0]], clock, note)
        self._loop = Loop(clients, store, Begin.EARLIEST, 10, clock, note)
        clients.membership.join(self._loop)

    def turn_until(self, holds: Callable[[], bool]) -> None:
        for _ in range(2_000):
            self._loop.turn()
            if holds():
                return
        raise AssertionError(f"it does not come to that: {self.events}")


def test_a_process_that_wakes_before_its_take_over_does_not_fence_the_present_owner(
    database: Postgres, make_store: Any
) -> None:
    clock = ManualClock()
    broker = FakeBroker(clock)
    broker.make_topic(PLACE[0])
    healthy = Member(broker, clock, "healthy", make_store())
    slept = False

    def sleep(step: Request) -> None:
        nonlocal slept
        if not slept and (step.call, step.phase) == ("list_offsets", "after"):
            slept = True
            broker.freeze("zombie")
            healthy.turn_until(lambda: "taken_over" in healthy.events)
            broker.thaw("zombie")

    zombie = Member(broker, clock, "zombie", make_store(), sleep)
    zombie.turn_until(lambda: slept and bool({"rejoining", "take_over_refused"} & {*zombie.events}))
    broker.append(PLACE[0], b"k", b"v", None)
    rows = partial(database.rows, "SELECT 1 FROM rows WHERE sink = %s", make_store.name)
    healthy.turn_until(lambda: len(rows()) == 1)
    assert "fenced" not in healthy.events
