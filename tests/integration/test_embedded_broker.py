"""The embedded broker itself: real Kafka processes, started, stopped, killed and orphaned."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.broker import KAFKA_VERSION
from tarry.devbroker.ports import HOST, free_port
from tarry.errors import UsageError
from tests.support.brokers import is_alive, no_broker, wait_until

# `shared` skips every test of this file where no broker can be had.
pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("shared")]

COMMAND = "import typer; from tarry.cli.broker import broker; typer.run(broker)"
ORPHAN = """
import time
from tarry.devbroker import EmbeddedBroker
broker = EmbeddedBroker()
broker.start()
print(broker.pid, broker.data, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One broker for the tests that only look."""
    broker = EmbeddedBroker(data=tmp_path_factory.mktemp("shared"))
    try:
        EmbeddedBroker.archive_classes()
        broker.start()
    except UsageError as refusal:
        no_broker([str(refusal)])
    yield broker
    broker.stop()


def test_it_reads_its_classes_from_the_archive_and_asks_for_it_once(shared: EmbeddedBroker) -> None:
    told: list[str] = []
    EmbeddedBroker.archive_classes(told.append)
    assert told == []
    mapped = Path(f"/proc/{shared.pid}/maps").read_text(encoding="utf-8")
    assert ".jsa" in mapped.replace("classes.jsa", "")  # Java's own archive has that name
    assert (shared.data / "console.log").read_text(encoding="utf-8") == ""


def test_it_is_the_kafka_of_this_run(embedded_broker: EmbeddedBroker, pytestconfig: pytest.Config) -> None:
    version = pytestconfig.getoption("--kafka-version") or KAFKA_VERSION
    classpath = Path(f"/proc/{embedded_broker.pid}/cmdline").read_text(encoding="utf-8")
    assert f"/kafka_2.13-{version}.jar" in classpath
    assert classpath.count("/kafka_2.13-") == 1


def cluster_id(servers: str) -> str:
    return str(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20.0).cluster_id)


def create(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})  # must outlive the future
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20.0)


def produce(servers: str, topic: str, value: bytes) -> None:
    errors: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(20.0) == 0
    assert errors == []


def read_first(servers: str, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(20.0)
        assert message is not None
        assert message.error() is None
        value = message.value()
        return value if value is None or isinstance(value, bytes) else value.encode()


@contextlib.contextmanager
def python(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python that sees tarry, killed at the end if it still runs."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def java_on_port(port: int) -> int:
    """The id of the Java whose configuration names this port."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if "kafka.Kafka" in arguments and entry.name.isdigit() and "-cp" in arguments:
                configuration = Path(arguments[arguments.index("kafka.Kafka") + 1])
                # The watchdog has Java's arguments too, behind its own.
                watchdog = any(argument.endswith("watchdog.py") for argument in arguments)
                if f"PLAINTEXT://{HOST}:{port}," in configuration.read_text(encoding="utf-8") and not watchdog:
                    return int(entry.name)
    pytest.fail(f"no Java serves port {port}")


def voters_of(broker: EmbeddedBroker) -> str:
    """The controllers, as the broker's configuration names them."""
    properties = (broker.data / "server.properties").read_text(encoding="utf-8")
    return properties.partition("controller.quorum.voters=")[2].splitlines()[0]


@pytest.mark.exhaustive
def test_a_killed_broker_comes_back_on_the_same_port_with_what_it_had(
    embedded_broker: EmbeddedBroker, topic_name: str
) -> None:
    servers, pid = embedded_broker.bootstrap_servers, embedded_broker.pid
    before, voters = cluster_id(servers), voters_of(embedded_broker)
    create(servers, topic_name)
    produce(servers, topic_name, b"kept")
    embedded_broker.kill()
    assert not is_alive(pid)
    assert not embedded_broker.running
    embedded_broker.restart()
    assert embedded_broker.bootstrap_servers == servers
    assert embedded_broker.pid != pid
    assert cluster_id(servers) == before
    assert voters_of(embedded_broker) == voters, "a further broker would look for its controller in vain"
    assert read_first(servers, topic_name) == b"kept"


def test_a_second_start_on_the_same_data_keeps_topics_and_cluster(
    start_embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path, topic_name: str
) -> None:
    first = start_embedded_broker(data=tmp_path / "data")
    before = cluster_id(first.bootstrap_servers)
    create(first.bootstrap_servers, topic_name)
    produce(first.bootstrap_servers, topic_name, b"kept")
    pid = first.pid
    first.stop()
    assert not is_alive(pid)
    second = start_embedded_broker(data=tmp_path / "data")
    assert cluster_id(second.bootstrap_servers) == before
    assert read_first(second.bootstrap_servers, topic_name) == b"kept"


@pytest.mark.exhaustive
def test_two_brokers_at_once_are_two_clusters_and_temporary_data_goes_with_them() -> None:
    brokers = [EmbeddedBroker(), EmbeddedBroker()]
    with ThreadPoolExecutor() as pool:
        try:
            list(pool.map(EmbeddedBroker.start, brokers))
            assert len({cluster_id(broker.bootstrap_servers) for broker in brokers}) == 2
            directories, pids = [broker.data for broker in brokers], [broker.pid for broker in brokers]
            assert all(directory.is_dir() for directory in directories)
        finally:
            list(pool.map(EmbeddedBroker.stop, brokers))
    assert not any(directory.exists() for directory in directories)
    assert not any(is_alive(pid) for pid in pids)


def test_an_error_beside_a_broker_that_ended_by_itself_tells_of_its_end() -> None:
    def wait_in_vain(broker: EmbeddedBroker) -> None:
        os.kill(broker.pid, signal.SIGKILL)
        broker.wait()
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError) as failed, EmbeddedBroker() as broker:
        wait_in_vain(broker)
    [note] = failed.value.__notes__
    assert note.startswith("the broker had ended by itself, with code 137")


def test_it_listens_on_the_loopback_address_alone(shared: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": shared.bootstrap_servers})
    servers = admin.list_topics(timeout=20.0).brokers.values()
    assert [f"{broker.host}:{broker.port}" for broker in servers] == [shared.bootstrap_servers]
    inodes = set()
    for descriptor in Path(f"/proc/{shared.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(descriptor.readlink().name.removeprefix("socket:[").removesuffix("]"))
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.append(fields[1].rpartition(":")[0])
    assert len(listening) == 2
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert set(listening) <= loopback


def test_a_port_that_is_taken_is_refused_in_one_line(shared: EmbeddedBroker) -> None:
    port = int(shared.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(
        UsageError, match=f"^port {port} of 127.0.0.1 is in use: stop the process that uses it"
    ) as refused:
        EmbeddedBroker(port=port).start()
    assert "\n" not in str(refused.value)


def test_data_that_another_broker_uses_is_refused_in_one_line(shared: EmbeddedBroker) -> None:
    with pytest.raises(UsageError, match="another broker uses") as refused:
        EmbeddedBroker(data=shared.data).start()
    assert "\n" not in str(refused.value)
    assert f"PLAINTEXT://{shared.bootstrap_servers}," in (shared.data / "server.properties").read_text(encoding="utf-8")
    assert cluster_id(shared.bootstrap_servers)


def test_a_property_that_kafka_refuses_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    broker = EmbeddedBroker(data=tmp_path / "data", properties={"log.retention.hours": "many"})
    with pytest.raises(UsageError, match=r"log\.retention\.hours") as refused:
        broker.start()
    assert "\n" not in str(refused.value)
    assert refused.value.__notes__
    assert not broker.running


@pytest.mark.exhaustive
def test_listeners_can_be_added(start_embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    second = f"{HOST}:{free_port()}"
    broker = start_embedded_broker(
        properties={
            "listeners": f"SECOND://{second}",
            "advertised.listeners": f"SECOND://{second}",
            "listener.security.protocol.map": "SECOND:PLAINTEXT",
        }
    )
    assert cluster_id(second) == cluster_id(broker.bootstrap_servers)


def test_a_parent_killed_with_kill_9_leaves_no_java_and_no_temporary_data() -> None:
    with python(ORPHAN) as parent:
        said = first_line(parent).split()
        pid, data = int(said[0]), Path(said[1])
        assert is_alive(pid)
        parent.kill()
        wait_until(lambda: not is_alive(pid), "Java ends with its parent")
        wait_until(lambda: not data.exists(), "the temporary data is removed")


@pytest.mark.some_of("number")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_says_where_it_listens_and_a_signal_ends_it_with_exit_0(number: signal.Signals) -> None:
    with python(COMMAND) as command:
        name, _, servers = first_line(command).strip().partition("=")
        assert name == "bootstrap.servers"
        assert cluster_id(servers)
        pid = java_on_port(int(servers.rpartition(":")[2]))
        command.send_signal(number)
        out, err = command.communicate(timeout=30.0)
        assert (command.returncode, out, err) == (0, "", "")
        assert not is_alive(pid)


@pytest.mark.exhaustive
def test_the_command_ends_with_exit_1_and_a_line_when_java_dies(tmp_path: Path) -> None:
    with python(COMMAND, "--data", str(tmp_path)) as command:
        port = int(first_line(command).strip().rpartition(":")[2])
        os.kill(java_on_port(port), signal.SIGKILL)
        _, err = command.communicate(timeout=30.0)
        assert (command.returncode, err) == (1, "tarry broker: the broker ended by itself, with code 137\n")


def test_the_command_refuses_a_taken_port_with_exit_1_and_a_line(shared: EmbeddedBroker) -> None:
    port = shared.bootstrap_servers.rpartition(":")[2]
    with python(COMMAND, "--port", port) as command:
        out, err = command.communicate(timeout=30.0)
    assert (command.returncode, out) == (1, "")
    assert err.startswith(f"tarry broker: port {port} of 127.0.0.1 is in use: ")
    assert err.count("\n") == 1
