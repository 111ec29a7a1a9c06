"""Starts the services of the Compose files, and sends and reads the README's message through two replicas."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from tarry.client import DelayedProducer
from tarry.devbroker.ports import free_port
from tests.support.brokers import wait_until
from tests.support.docker import docker
from tests.support.programs import ROOT, Failed, run

pytestmark = pytest.mark.deploy

ONE: Final = ("--file", "docker-compose.yml")
THREE: Final = (*ONE, "--file", "docker-compose.three.yml")
CORE: Final = {"kafka", "tarry", "api"}
PROFILES: Final = {
    (): set[str](),
    ("monitoring",): {"prometheus", "grafana"},
    ("pipelines",): {"postgres", "spark"},
    ("*",): {"prometheus", "grafana", "postgres", "spark"},
}


def settings(*arguments: str, profiles: tuple[str, ...] = ()) -> dict[str, Any]:
    """Let Compose parse the files; return the settings. It fails if a file is wrong."""
    chosen = [word for profile in profiles for word in ("--profile", profile)]
    found: dict[str, Any] = json.loads(docker("compose", *arguments, *chosen, "config", "--format=json"))
    return found


@pytest.mark.parametrize("profiles", PROFILES, ids=lambda profiles: "-".join(profiles) or "core")
@pytest.mark.parametrize(
    ("files", "brokers"), [(ONE, set[str]()), (THREE, {"kafka-2", "kafka-3"})], ids=["one", "three"]
)
def test_the_files_are_right_in_every_profile(
    compose: None, files: tuple[str, ...], brokers: set[str], profiles: tuple[str, ...]
) -> None:
    assert settings(*files, profiles=profiles)["services"].keys() == CORE | brokers | PROFILES[profiles]


@pytest.mark.parametrize("files", [ONE, THREE], ids=["one", "three"])
def test_nothing_is_published_beyond_this_machine_and_what_is_mounted_is_there(
    compose: None, files: tuple[str, ...]
) -> None:
    services = settings(*files, profiles=("*",))["services"]
    published = [port for service in services.values() for port in service.get("ports", ())]
    mounted = [each for service in services.values() for each in service.get("volumes", ()) if each["type"] == "bind"]
    assert {port["host_ip"] for port in published} == {"127.0.0.1"}
    assert len({port["published"] for port in published}) == len(published)
    assert all(each.get("read_only") for each in mounted)
    assert [each["source"] for each in mounted if not Path(each["source"]).is_file()] == []
    # The files speak of one another by where they are in the containers.
    places = {each["target"] for each in mounted}
    files_of = ROOT / "deploy" / "compose"
    assert set(re.findall(r"\S+rules\.yml", (files_of / "prometheus.yml").read_text(encoding="utf-8"))) <= places
    (dashboards,) = re.findall(r"path: (\S+)", (files_of / "grafana" / "dashboards.yml").read_text(encoding="utf-8"))
    assert dashboards in {str(Path(place).parent) for place in places}


def test_our_own_containers_may_do_nothing_beyond_their_work(compose: None) -> None:
    services = settings(*ONE, profiles=("*",))["services"]
    for ours in (services["tarry"], services["api"], services["spark"]):
        assert ours["read_only"]
        assert ours["cap_drop"] == ["ALL"]
        assert ours["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in ours


class Project:
    """A project of Compose, on ports of its own.

    Args:
        image: the service's.
        files: the arguments that name its files.
    """

    def __init__(self, image: str, *files: str, **variables: str) -> None:
        self._name = f"tarry-test-{uuid4().hex[:8]}"
        self._files = files
        self._ports = {name: free_port() for name in ("KAFKA_PORT", "KAFKA_2_PORT", "KAFKA_3_PORT", "API_PORT")}
        self._variables = {"IMAGE": image, **variables} | {name: str(port) for name, port in self._ports.items()}
        self.bootstrap_servers = f"127.0.0.1:{self._ports['KAFKA_PORT']}"
        """For who is on this machine."""
        self.api = f"http://127.0.0.1:{self._ports['API_PORT']}"
        """The address of `tarry api`."""

    def __call__(self, *words: str, within_s: float = 600.0) -> str:
        """Run `docker compose`; return its output."""
        return docker(
            "compose", "--project-name", self._name, *self._files, *words, within_s=within_s, **self._variables
        )

    def replicas(self) -> list[str]:
        """The containers of the service."""
        return self("ps", "--quiet", "tarry").split()

    def ask(self, replica: str, page: str) -> str:
        """Return an HTTP page of a replica."""
        return docker("exec", replica, "python", "-I", "/opt/tarry/healthcheck.py", page)


@pytest.fixture
def start(compose: None, service_image: str) -> Iterator[Callable[..., Project]]:
    """Starts projects, which are gone after the test, with all that they kept."""
    started: list[Project] = []

    def up(*files: str, **variables: str) -> Project:
        project = Project(service_image, *files, **variables)
        started.append(project)
        try:
            project("up", "--detach", "--no-build", "--wait", "--wait-timeout=480")
        except Failed as refusal:
            raise Failed(f"{refusal}\n{project('logs', '--no-color', '--tail=60')}") from None
        return project

    yield up
    for project in started:
        project("--profile=*", "down", "--volumes", "--timeout=30")


def block(language: str, holding: str) -> str:
    """The README's block that holds something."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(next(each for each in blocks if holding in each))


class Reader:
    """The README's reader, as a process, on another port than the README's.

    Args:
        directory: where it is written.
        bootstrap_servers: instead of the README's.
    """

    def __init__(self, directory: Path, bootstrap_servers: str) -> None:
        program = block("python", "Consumer(")
        assert "127.0.0.1:9092" in program
        file = directory / "reader.py"
        file.write_text(program.replace("127.0.0.1:9092", bootstrap_servers), encoding="utf-8")
        self._said = directory / "said"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen([sys.executable, file], stdin=subprocess.DEVNULL, stdout=said)

    def keys(self) -> list[str]:
        """The keys of what it has read so far, in order."""
        assert self._process.poll() is None
        return re.findall(r"^b'(\d+)' b'", self._said.read_text(encoding="utf-8"), re.MULTILINE)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(30)


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Callable[[Project], Reader]]:
    readers: list[Reader] = []

    def begin(project: Project) -> Reader:
        readers.append(Reader(tmp_path, project.bootstrap_servers))
        return readers[-1]

    yield begin
    for reader in readers:
        reader.close()


def send_as_the_readme_does(project: Project) -> dict[str, Any]:
    """The outcome of the README's own command."""
    words = block("sh", "tarry send orders").split("'")
    assert words[1] == '{"order": 17}'
    program, *before = words[0].split()
    assert program == ".venv/bin/tarry"
    said = run(
        *(sys.executable, "-m", "tarry", *before, words[1], *words[2].split()),
        *("--bootstrap-servers", project.bootstrap_servers),
    )
    outcome: dict[str, Any] = json.loads(said.splitlines()[-1])
    return outcome


def send_to_all_partitions(project: Project) -> list[str]:
    """Forty messages; their keys."""
    keys = [str(100 + number) for number in range(40)]
    with DelayedProducer(project.bootstrap_servers) as producer:
        for key in keys:
            producer.send("orders", b"{}", key=key.encode(), delay=timedelta(seconds=1))
    return keys


def fired(page: str) -> float:
    """How many messages a replica says that it delivered."""
    return sum(float(count) for count in re.findall(r"(?m)^tarry_fired_messages_total\{.*\} (\S+)$", page))


def test_the_readmes_message_is_delivered_by_two_replicas(
    start: Callable[..., Project], read: Callable[[Project], Reader]
) -> None:
    project = start(*ONE)
    reader = read(project)
    outcome = send_as_the_readme_does(project)
    assert (outcome["outcome"], outcome["target"]) == ("fired", "orders")
    wait_until(lambda: reader.keys() == ["17"], "what was sent is read", 60.0)
    first, second = project.replicas()
    sent = send_to_all_partitions(project)
    wait_until(lambda: len(reader.keys()) == 1 + len(sent), "all that was sent is read", 60.0)
    assert Counter(reader.keys()[1:]) == Counter(sent)
    for replica in (first, second):
        wait_until(lambda replica=replica: fired(project.ask(replica, "metrics")) > 0, "it delivers, too")  # type: ignore[misc]
    # One is gone: the other has all partitions, and what waits.
    docker("kill", first)
    again = send_to_all_partitions(project)
    wait_until(lambda: len(reader.keys()) == 1 + len(sent) + len(again), "the other delivers all", 120.0)
    assert Counter(reader.keys()[1:]) == Counter([*sent, *again])


def is_live(project: Project) -> bool:
    """Whether the API answers; while it starts, connections to its port are closed."""
    try:
        return httpx.get(f"{project.api}/livez").is_success
    except httpx.TransportError:
        return False


def test_the_api_prints_a_token_once_with_which_messages_are_sent(
    start: Callable[..., Project], read: Callable[[Project], Reader]
) -> None:
    project = start(*ONE)
    reader = read(project)
    message = {"target": "orders", "key": "17", "value": "{}", "delay": "1s"}
    assert httpx.post(f"{project.api}/v1/messages", json=message).status_code == HTTPStatus.UNAUTHORIZED
    printed = re.findall(r"tarry_\S+$", project("logs", "--no-color", "api"), re.MULTILINE)
    [token] = printed
    as_principal = {"Authorization": f"Bearer {token}"}
    assert (
        httpx.post(f"{project.api}/v1/messages", json=message, headers=as_principal).status_code == HTTPStatus.ACCEPTED
    )
    wait_until(lambda: reader.keys() == ["17"], "what was sent is read", 60.0)
    project("restart", "api")
    wait_until(lambda: is_live(project), "it answers again", 60.0)
    assert httpx.get(f"{project.api}/v1/health", headers=as_principal).json()["is_well"]
    assert re.findall(r"tarry_\S+$", project("logs", "--no-color", "api"), re.MULTILINE) == printed


def test_three_brokers_hold_three_copies(start: Callable[..., Project], read: Callable[[Project], Reader]) -> None:
    project = start(*THREE)
    reader = read(project)
    assert send_as_the_readme_does(project)["outcome"] == "fired"
    wait_until(lambda: reader.keys() == ["17"], "what was sent is read", 60.0)
    topics = AdminClient({"bootstrap.servers": project.bootstrap_servers}).list_topics(timeout=30).topics
    ours = {name: topic for name, topic in topics.items() if name.startswith(("tarry.", "__"))}
    assert {"tarry.delayed", "tarry.delayed.journal", "__consumer_offsets", "__transaction_state"} <= ours.keys()
    copies = {name: {len(each.replicas) for each in topic.partitions.values()} for name, topic in ours.items()}
    assert all(count == {3} for count in copies.values()), copies
