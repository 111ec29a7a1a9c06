"""Fixtures for all end-to-end tests: new topics, and services and readers that end with the test."""

import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tarry.config import Config
from tarry.service.app import geometry_of
from tarry.testing.judge import Report
from tests.support.brokers import wait_until
from tests.support.chaos import Watch
from tests.support.checker import all_accepted, check
from tests.support.dying import Step
from tests.support.grants import MAKER, SERVICE, SUCCESSOR, Grant, documented
from tests.support.phases import Phase
from tests.support.processes import SERVE, Serve, ServeConfig
from tests.support.reader import Reader, reading
from tests.support.secured import DOORS, SecuredBroker
from tests.support.workload import Target, Workload, accepted_as_seen

PARTITIONS: Final = 4
TAKE_OVER_S: Final = 10.0
"""By then others fire what a process had that is gone."""
NOTHING: Final[dict[str, Sequence[str]]] = {"<intake>": (), "<level>": (), "<target>": (), "<group>": ()}
"""For no row of the table of rights a name."""


class Lab:
    """One test's intake and targets, and the processes around them.

    Args:
        bootstrap: the broker, HOST:PORT.
        directory: for configurations, logs and frames.
        name: a name that no other test has; topics and group are named after it.
        seed: of every random choice.
        until_the_end: closes what the lab has started.
        secured: the same broker's secured listener, where services must come in by that one, with no more rights than
            they need; the lab itself goes in by the plain one.
    """

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        name: str,
        *,
        seed: int,
        until_the_end: ExitStack,
        secured: SecuredBroker | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.seed = seed
        self.intake = f"{name}.intake"
        self.group = f"{name}.group"
        # One target has as many partitions as the intake, so that the workload knows where each key must go.
        self.targets = [Target(f"{name}.orders", PARTITIONS), Target(f"{name}.bills", 3)]
        self._directory = directory
        self._until_the_end = until_the_end
        self._secured = secured
        self._allowed = {target.topic for target in self.targets}
        self._users: set[str] = set()
        self._services: list[Serve] = []

    def create(self, *targets: Target) -> None:
        """Make topics, and wait until the broker has them."""
        self.allow(*(target.topic for target in targets))
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        made = admin.create_topics([NewTopic(target.topic, target.partitions, 1) for target in targets])
        for future in made.values():
            future.result(timeout=30)

    def allow(self, *topics: str) -> None:
        """If services need rights, grant them WRITE on topics, whether these exist or not."""
        self._allowed.update(topics)
        if self._secured is not None:
            for user in self._users:
                self._secured.grant(user, documented(SERVICE, {**NOTHING, "<target>": topics}))

    def serve(self, *, command: Sequence[str] = SERVE, python: str = sys.executable, **settings: Any) -> Serve:
        """A service on this lab's intake, not started; `settings` are fields of `ServeConfig`."""
        config = ServeConfig(
            **{
                "bootstrap": self.bootstrap,
                "intake": self.intake,
                "partitions": PARTITIONS,
                "group": self.group,
                **settings,
            }
        )
        name = f"{self.group}-{len(self._services) + 1}"
        if self._secured is not None:
            config = self._behind(self._secured, config)
        serve = Serve(config, self._directory, name, command, cwd=Path(__file__).parents[2], python=python)
        self._services.append(serve)
        self._until_the_end.callback(serve.close)
        return serve

    def _behind(self, secured: SecuredBroker, config: ServeConfig) -> ServeConfig:
        """The same service as a user who has the documented rights, and those to make its topics."""
        before = documented(SUCCESSOR, {"<old group>": sorted(self._users - {config.group})})
        user = secured.user(config.group, [*rights_of(config, sorted(self._allowed)), *before])
        self._users.add(config.group)
        if config.bootstrap == self.bootstrap:
            return replace(config, bootstrap=secured.address, options={**user.options, **config.options})
        return replace(config, options={**user.options_in_the_clear, **config.options})  # by a proxy

    def serve_until(
        self, step: Step | Phase, *, count: int = 1, number: Literal["KILL", "STOP"] = "KILL", **settings: Any
    ) -> Serve:
        """A service of one process that stops by itself, after SIGUSR1; see `tests.support.dying`."""
        return self.serve(command=("tests.support.dying", step, str(count), number), **settings)

    def read(self, *topics: str) -> Reader:
        """A reader of these topics, or of all targets."""
        names = topics or tuple(target.topic for target in self.targets)
        return self._until_the_end.enter_context(reading(self.bootstrap, names, self._directory))

    def workload(self, partitions: int = PARTITIONS, **settings: Any) -> Workload:
        """A workload from the intake to all targets; `settings` are those of `Workload`."""
        return Workload(self.bootstrap, self.intake, partitions, self.targets, **{"seed": self.seed, **settings})

    def watched(self, **settings: Any) -> tuple[Workload, Reader, Watch]:
        """A workload, a reader of all targets, and what tells when the services have recovered from a fault."""
        reader = self.read()
        workload = self.workload(**settings)
        return workload, reader, Watch(workload, reader)

    def clear(self) -> None:
        """Delete its topics: a broker that many labs share has a disk to fill."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        mine = [self.intake, *(target.topic for target in self.targets)]
        found = [topic for topic in admin.list_topics(timeout=30).topics if topic.startswith(tuple(mine))]
        for future in admin.delete_topics(found).values():
            future.result(timeout=30)


def rights_of(config: ServeConfig, targets: Sequence[str]) -> list[Grant]:
    """The grants in docs/security.md for the user of a service that creates its topics."""
    settings = Config(**tomllib.loads(config.toml()))
    [intake] = settings.intakes
    levels = geometry_of(settings, intake).levels
    names = {
        "<intake>": [intake.topic],
        "<level>": [str(level) for level in range(1, levels + 1)],
        "<target>": targets,
        "<group>": [settings.service.group],
    }
    return [*documented(SERVICE, names), *documented(MAKER, names)]


def places_of(serve: Serve) -> list[str]:
    """The partitions that it serves, by its last event about them."""
    partitions: list[str] = serve.events("serving")[-1]["partitions"]
    return partitions


def wait_shared(lab: Lab, services: Sequence[Serve]) -> None:
    """Wait until each partition is served, and each service serves some."""

    def is_shared() -> bool:
        if not all(serve.events("serving") for serve in services):
            return False
        served = sorted(place for serve in services for place in places_of(serve))
        return served == [f"{lab.intake}/{partition}" for partition in range(PARTITIONS)]

    wait_until(is_shared, "all partitions are served, by all services", 60.0)


def verdict(
    workload: Workload,
    reader: Reader,
    services: Sequence[Serve],
    *,
    all_read_before: bool = False,
    across_keys: bool = False,
    deadline_s: float = 60.0,
) -> Report:
    """Wait for the messages, end the services in good order, read to the end, and compare.

    Args:
        workload: has sent all.
        reader: reads all targets.
        services: still run; each must exit with 0.
        all_read_before: everything was sent before the service started, so that all of it has a place in the order.
        across_keys: intake and targets have one partition, so that there is one order over all keys.
        deadline_s: after which messages are taken for lost.
    """
    produced = workload.produced()
    with suppress(AssertionError):  # the report says better what is missing
        reader.wait_for(len(produced), deadline_s)
    assert [serve.stop() for serve in services] == [0] * len(services)
    arrived = reader.finish()
    expected = all_accepted(produced) if all_read_before else accepted_as_seen(produced, arrived)
    return check(expected, arrived, across_keys=across_keys)


@contextmanager
def laboratory(
    bootstrap: str, directory: Path, name: str, seed: int, secured: SecuredBroker | None = None
) -> Iterator[Lab]:
    """A lab on a broker, HOST:PORT, under a name that no other has; what it started is gone at the end."""
    with ExitStack() as until_the_end:
        lab = Lab(bootstrap, directory, name, seed=seed, until_the_end=until_the_end, secured=secured)
        lab.create(*lab.targets)
        yield lab


@pytest.fixture
def make_lab(
    tmp_path: Path, unique_name: Callable[[str], str], seed: int, pytestconfig: pytest.Config
) -> Iterator[Callable[[str], Lab]]:
    """Makes labs on brokers, given HOST:PORT. Targets are made; the intake is the service's to make."""
    doors = pytestconfig.stash.get(DOORS, {})
    with ExitStack() as until_the_end:
        yield lambda bootstrap: until_the_end.enter_context(
            laboratory(bootstrap, tmp_path, unique_name("e2e"), seed, doors.get(bootstrap))
        )


@pytest.fixture
def lab(bootstrap: str, make_lab: Callable[[str], Lab]) -> Lab:
    """A lab on the broker that all tests share."""
    return make_lab(bootstrap)


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a line that is seen also when the test passes: a figure, or how far it is."""

    def print_line(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}", end="", flush=True)  # noqa: T201 (this is what it is for)

    return print_line
