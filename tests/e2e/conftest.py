"""What every end-to-end test needs: topics of its own, services and readers that are gone when it ends."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.checker import Report, all_accepted, check
from tests.support.processes import Serve, ServeConfig
from tests.support.reader import Reader, reading
from tests.support.workload import Outage, Target, Workload

PARTITIONS: Final = 4


class Lab:
    """One test's intake and targets, and the processes around them.

    Args:
        bootstrap: the broker, HOST:PORT.
        directory: for configurations, logs and frames.
        name: a name that no other test has; topics and group are named after it.
        seed: of every random choice.
        until_the_end: closes what the lab has started.
    """

    def __init__(self, bootstrap: str, directory: Path, name: str, *, seed: int, until_the_end: ExitStack) -> None:
        self.bootstrap = bootstrap
        self.seed = seed
        self.intake = f"{name}.intake"
        self.group = f"{name}.group"
        # One target has as many partitions as the intake, so that the workload knows where each key must go.
        self.targets = [Target(f"{name}.orders", PARTITIONS), Target(f"{name}.bills", 3)]
        self._directory = directory
        self._until_the_end = until_the_end
        self._services = 0

    def create(self, *targets: Target) -> None:
        """Make topics, and wait until the broker has them."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        made = admin.create_topics([NewTopic(target.topic, target.partitions, 1) for target in targets])
        for future in made.values():
            future.result(timeout=30)

    def serve(self, **settings: Any) -> Serve:
        """A service on this lab's intake, not started; `settings` are fields of `ServeConfig`."""
        config = ServeConfig(
            bootstrap=self.bootstrap,
            intake=self.intake,
            partitions=PARTITIONS,
            group=self.group,
            **settings,
        )
        self._services += 1
        serve = Serve(config, self._directory, f"serve-{self._services}")
        self._until_the_end.callback(serve.close)
        return serve

    def read(self, *topics: str) -> Reader:
        """A reader of these topics, or of all targets."""
        names = topics or tuple(target.topic for target in self.targets)
        return self._until_the_end.enter_context(reading(self.bootstrap, names, self._directory))

    def workload(self, **settings: Any) -> Workload:
        """A workload from the intake to all targets; `settings` are those of `Workload`."""
        return Workload(self.bootstrap, self.intake, PARTITIONS, self.targets, **{"seed": self.seed, **settings})


def verdict(
    workload: Workload,
    reader: Reader,
    services: Sequence[Serve],
    *,
    outages: Sequence[Outage] = (),
    all_read_before: bool = False,
    deadline_s: float = 60.0,
) -> Report:
    """Wait for the messages, end the services in good order, read to the end, and compare.

    Args:
        workload: has sent all.
        reader: reads all targets.
        services: still run; each must exit with 0.
        outages: when nobody could be sure to have read what was sent.
        all_read_before: everything was sent before the service started, so that all of it has a place in the order.
        deadline_s: after which messages are taken for lost.
    """
    produced = workload.produced(outages)
    if all_read_before:
        produced = all_accepted(produced)
    with suppress(AssertionError):  # the report says better what is missing
        reader.wait_for(len(produced), deadline_s)
    assert [serve.stop() for serve in services] == [0] * len(services)
    return check(produced, reader.finish())


@pytest.fixture
def lab(bootstrap: str, tmp_path: Path, unique_name: Callable[[str], str], seed: int) -> Iterator[Lab]:
    """Targets are made; the intake is the service's to make."""
    with ExitStack() as until_the_end:
        made = Lab(bootstrap, tmp_path, unique_name("e2e"), seed=seed, until_the_end=until_the_end)
        made.create(*made.targets)
        yield made
