"""Finds a real Kafka for the tests that need one, and starts an embedded one for the tests that break it.

`bootstrap` uses the first of these that works: `TARRY_TEST_BOOTSTRAP_SERVERS`; a container, if a Docker daemon answers
and has the image or can pull it; the embedded broker. The summary of the run says which one it used. If none works, the
tests fail with the reason; with ALLOW_SKIP=1 they are skipped.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.broker import DEFAULT_JVM_OPTIONS, KAFKA_VERSION
from tarry.devbroker.properties import server_properties
from tarry.errors import UsageError
from tarry.testing.pytest_plugin import fresh_name
from tests.support.lacking import lacks
from tests.support.rights import AUTHORIZER
from tests.support.secured import DOORS, SecuredBroker

IMAGE = "apache/kafka:4.1.2"
SERVERS_VARIABLE = "TARRY_TEST_BOOTSTRAP_SERVERS"
_FIXTURES = {"bootstrap", "bootstrap_of_authorizer", "embedded_broker", "start_embedded_broker"}
_FOUND = pytest.StashKey[str]()
# A broker must know its advertised address, and in Docker the port is known only after the container has started.
_ADDRESS = "/tmp/address"  # noqa: S108 (in the container)
_WAIT_AND_RUN = f"until [ -e {_ADDRESS} ]; do sleep 0.1; done; . {_ADDRESS}; exec /etc/kafka/docker/run"


class NoBrokerError(Exception):
    """No broker is available in this way; the text says why."""


def wait_until(condition: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
    """Wait until `condition` holds; if it does not, fail the test with the text `what`.

    A condition that takes long, such as a command or the reading of a topic, is asked a quarter of the time: what it
    waits for needs the processors, too.
    """
    deadline = time.monotonic() + within_s
    while True:
        asked = time.monotonic()
        if condition():
            return
        answered = time.monotonic()
        if answered > deadline:
            pytest.fail(f"not within {within_s:g} s: {what}")
        time.sleep(min(max(0.05, 3 * (answered - asked)), 1.5))


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def answers(servers: str, within_s: float) -> bool:
    """Whether a broker at `servers` returns its metadata within a time in seconds."""
    admin = AdminClient({"bootstrap.servers": servers, "reconnect.backoff.max.ms": 200, "log_level": 0})
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            return bool(admin.list_topics(timeout=1.0).brokers)
        except KafkaException:
            continue
    return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Under pytest-xdist: a worker tells the controller.
    if found := session.config.stash.get(_FOUND, None):
        getattr(session.config, "workeroutput", {})["broker"] = found


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if found := getattr(node, "workeroutput", {}).get("broker"):
        told = node.config.stash.get(_FOUND, None)
        node.config.stash[_FOUND] = f"{told}, {found}" if told else found


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if found := config.stash.get(_FOUND, None):
        terminalreporter.write_line(f"tarry: broker of this run: {found}")


@pytest.fixture(scope="session")
def bootstrap(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The `bootstrap.servers` of a broker that all tests share; a test must not harm it."""
    refusals = []
    with ExitStack() as until_the_end:
        of_run = tmp_path_factory.getbasetemp()
        if hasattr(pytestconfig, "workerinput"):
            of_run = of_run.parent  # of all processes of pytest-xdist
        version = _version(pytestconfig)
        ways: tuple[Callable[[ExitStack], tuple[str, str]], ...] = (
            _given,
            _container,
            lambda stack: _embedded(stack, of_run, version),
        )
        if pytestconfig.getoption("--kafka-version"):
            ways = ways[-1:]
        if pytestconfig.getoption("--secured"):
            directory = tmp_path_factory.mktemp("secured")
            ways = (lambda stack: _secured(stack, directory, pytestconfig),)
        for way in ways:
            try:
                servers, found = way(until_the_end)
            except NoBrokerError as refusal:
                refusals.append(str(refusal))
                continue
            pytestconfig.stash[_FOUND] = f"{found} at {servers}"
            yield servers
            return
    no_broker(refusals)


@pytest.fixture(scope="session")
def bootstrap_of_authorizer(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The `bootstrap.servers` of a broker with an authorizer, for tests that take rights away from topics of their own.

    All tests share it; a test must not harm it.
    """
    of_run = tmp_path_factory.getbasetemp()
    if hasattr(pytestconfig, "workerinput"):
        of_run = of_run.parent
    directory, version = of_run / "authorizer", _version(pytestconfig)
    directory.mkdir(exist_ok=True)
    with ExitStack() as until_the_end:
        try:
            servers = until_the_end.enter_context(shared(directory, lambda: _starting(AUTHORIZER, version)))
        except UsageError as refusal:
            no_broker([str(refusal)])
        yield servers


@contextmanager
def starting_brokers(version: str = KAFKA_VERSION) -> Iterator[Callable[..., EmbeddedBroker]]:
    """Starts embedded brokers with the arguments of `EmbeddedBroker`; they are stopped at the end."""
    with ExitStack() as until_the_end:

        def start(**arguments: Any) -> EmbeddedBroker:
            try:
                EmbeddedBroker.archive_classes(version=version)
                return until_the_end.enter_context(EmbeddedBroker(**{"version": version, **arguments}))
            except UsageError as refusal:
                no_broker([str(refusal)])

        yield start


@pytest.fixture
def start_embedded_broker(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., EmbeddedBroker]]:
    """Starts embedded brokers with the arguments of `EmbeddedBroker`; they are stopped after the test."""

    def start_secured(**arguments: Any) -> EmbeddedBroker:
        secured = SecuredBroker(start, tmp_path_factory.mktemp("secured"), **arguments)
        doors[secured.broker.bootstrap_servers] = secured
        own.append(secured.broker.bootstrap_servers)
        return secured.broker

    doors, own = pytestconfig.stash.setdefault(DOORS, {}), list[str]()
    with starting_brokers(_version(pytestconfig)) as start:
        yield start_secured if pytestconfig.getoption("--secured") else start
    for servers in own:
        del doors[servers]


@pytest.fixture
def embedded_broker(start_embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> EmbeddedBroker:
    """A broker with a new data directory, for this test only, which may stop, kill and restart it."""
    return start_embedded_broker(data=tmp_path / "broker")


@pytest.fixture
def unique_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes unique names from a prefix, for topics, groups and ids: no other test and no earlier run has them."""
    return lambda prefix: f"{prefix}.{fresh_name(request.node.name)}"


@pytest.fixture
def topic_name(unique_name: Callable[[str], str]) -> str:
    """A unique topic name; the topic is not created."""
    return unique_name("t")


def no_broker(refusals: list[str]) -> NoReturn:
    """Fail or skip a test that needs a broker, with the reasons why none is available."""
    lacks(f"no Kafka broker: {'; '.join(refusals)}")


def _given(_until_the_end: ExitStack) -> tuple[str, str]:
    servers = os.environ.get(SERVERS_VARIABLE, "")
    if not servers:
        raise NoBrokerError(f"{SERVERS_VARIABLE} is not set")
    if not answers(servers, within_s=20.0):
        pytest.fail(f"{SERVERS_VARIABLE} names {servers}, which does not answer", pytrace=False)
    return servers, f"the one that {SERVERS_VARIABLE} names"


def _secured(until_the_end: ExitStack, directory: Path, config: pytest.Config) -> tuple[str, str]:
    start = until_the_end.enter_context(starting_brokers(_version(config)))
    secured = SecuredBroker(start, directory)
    config.stash.setdefault(DOORS, {})[secured.broker.bootstrap_servers] = secured
    return secured.broker.bootstrap_servers, f"an embedded broker, services by SASL_SSL at {secured.address},"


_QUICK: Final = {"log.cleaner.backoff.ms": "500"}
"""By default a log that can be compacted waits for up to 15 s."""


@contextmanager
def shared(directory: Path, start: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """Share one embedded broker among processes: the first one starts it, and stops it when no other one uses it.

    `starting` is locked while a process starts the broker or joins it, and `using` by each process that uses it.

    Args:
        directory: a directory of these processes; its file `address` exists while the broker runs.
        start: starts a broker, and stops it on exit; yields its address, `HOST:PORT`.

    Yields:
        The address of the broker, `HOST:PORT`.
    """
    address = directory / "address"
    with ExitStack() as until_the_end, (directory / "using").open("w") as using:
        with locked(directory / "starting"):
            if is_first := not address.exists():
                address.write_text(until_the_end.enter_context(start()))
            flock(using, LOCK_SH)
        yield address.read_text()
        while is_first:
            flock(using, LOCK_EX)  # waits for all others
            flock(using, LOCK_UN)
            with locked(directory / "starting"), suppress(BlockingIOError):
                flock(using, LOCK_EX | LOCK_NB)  # unless another one has joined in between
                address.unlink()
                return


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file."""
    with path.open("w") as file:
        flock(file, LOCK_EX)
        yield


def _version(config: pytest.Config) -> str:
    return config.getoption("--kafka-version") or KAFKA_VERSION


def _embedded(until_the_end: ExitStack, directory: Path, version: str) -> tuple[str, str]:
    try:
        servers = until_the_end.enter_context(shared(directory, lambda: _starting(_QUICK, version)))
    except UsageError as refusal:
        raise NoBrokerError(str(refusal)) from refusal
    return servers, f"the embedded broker, Kafka {version},"


@contextmanager
def _starting(properties: Mapping[str, str], version: str) -> Iterator[str]:
    EmbeddedBroker.archive_classes(version=version)
    # All processes of a run create topics here, so the heap is larger than by default: the last option counts.
    heap = [*DEFAULT_JVM_OPTIONS, "-Xmx1g"]
    with EmbeddedBroker(properties=properties, jvm_options=heap, version=version) as broker:
        yield broker.bootstrap_servers


def _container(until_the_end: ExitStack) -> tuple[str, str]:
    if not _docker_listens():
        raise NoBrokerError("no Docker daemon answers")
    # No reaper, which would be one more image to pull: the end of the session removes the container as well.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    # testcontainers looks for a daemon, and reads its environment, when it is imported. docker has no types.
    docker: Any = import_module("docker")
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415

    try:
        client = docker.from_env()
        until_the_end.callback(client.close)
        try:
            client.images.get(IMAGE)
        except docker.errors.ImageNotFound:
            client.images.pull(IMAGE)
        container = DockerContainer(IMAGE).with_exposed_ports(9092).with_command(["sh", "-c", _WAIT_AND_RUN])
        for name, value in _container_environment().items():
            container.with_env(name, value)
        until_the_end.enter_context(container)
        servers = f"{container.get_container_host_ip()}:{container.get_exposed_port(9092)}"
        advertise = f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{servers}"
        container.exec(["sh", "-c", f"echo {advertise} > {_ADDRESS}.new && mv {_ADDRESS}.new {_ADDRESS}"])
    # testcontainers' own errors are RuntimeErrors, those of the HTTP client below it OSErrors.
    except (docker.errors.DockerException, OSError, RuntimeError) as refusal:
        raise NoBrokerError(f"Docker could not run {IMAGE}: {refusal}") from refusal
    if not answers(servers, within_s=60.0):
        raise NoBrokerError(f"{IMAGE} runs in Docker, but does not answer at {servers}")
    return servers, f"{IMAGE} in Docker"


def _container_environment() -> dict[str, str]:
    """Return the embedded broker's configuration as the image's environment variables, reachable from outside."""
    properties = server_properties(9092, 9093, Path("/tmp/kafka-topics"), {}) | {  # noqa: S108 (the container's)
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.quorum.voters": "1@localhost:9093",
    }
    variables = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items()}
    return variables | {"KAFKA_HEAP_OPTS": "-Xmx512m"}


def _docker_listens() -> bool:
    """Whether the address of Docker's daemon accepts connections."""
    address = urlsplit(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    family = socket.AF_UNIX if address.scheme == "unix" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(address.path if address.scheme == "unix" else (address.hostname, address.port or 2375))
        except OSError:
            return False
        return True
