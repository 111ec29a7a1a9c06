"""Fixtures for tests of programs that use tarry. pytest finds them when tarry is installed.

The plugin imports and starts nothing before a test asks for a fixture, so it does not slow down runs without one.

- `tarry_fake`: the service on a fake broker, in the test's own thread. `tarry_clock` is the manual clock of both.
- `tarry_service`: a `tarry serve` process for one test. It uses `tarry_broker`, a real Kafka broker for the whole run.
"""

import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tarry.devbroker import EmbeddedBroker
    from tarry.testing.fake_service import FakeService
    from tarry.testing.live_service import LiveService
    from tarry.testing.manual_clock import ManualClock


def fresh_name(test: str) -> str:
    """Return a name for topics and groups that is unique over all tests and runs.

    Args:
        test: the name of the test; the result begins with a part of it.
    """
    return f"{re.sub('[^a-z0-9]+', '-', test.lower()).strip('-')[:40]}.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def tarry_fake() -> "FakeService":
    """The service on a fake broker, in this thread; see `tarry.testing.FakeService`."""
    try:
        from tarry.testing.fake_service import FakeService  # noqa: PLC0415 (only if a test uses it)
    except ModuleNotFoundError as error:
        pytest.fail(f"tarry_fake needs {error.name}: pip install 'tarry[service]'", pytrace=False)
    return FakeService()


@pytest.fixture
def tarry_clock(tarry_fake: "FakeService") -> "ManualClock":
    """The clock of `tarry_fake`. It stands still until the test advances it."""
    return tarry_fake.clock


@pytest.fixture(scope="session")
def tarry_broker() -> "Iterator[EmbeddedBroker]":
    """A real single-node Kafka broker for the whole run. A test that kills or stops a broker starts its own one."""
    from tarry.devbroker import EmbeddedBroker  # noqa: PLC0415 (only if a test uses it)
    from tarry.errors import UsageError  # noqa: PLC0415

    broker = EmbeddedBroker()
    try:
        broker.start()
    except UsageError as refusal:
        pytest.fail(f"tarry_broker: {refusal}", pytrace=False)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def tarry_service(
    tarry_broker: "EmbeddedBroker", request: pytest.FixtureRequest, tmp_path: Path
) -> "Iterator[LiveService]":
    """A service with an intake for this test only, on `tarry_broker`; see `tarry.testing.LiveService`."""
    from tarry.testing.live_service import LiveService  # noqa: PLC0415 (only if a test uses it)

    with LiveService(tarry_broker.bootstrap_servers, tmp_path, fresh_name(request.node.name)) as service:
        yield service
