"""Fixtures for tests of programs that use tarry; pytest finds them where tarry is installed.

Nothing is imported, and nothing is started, before a test asks for a fixture: runs that use none are left alone.

- `tarry_fake`: the service on a fake broker, and `tarry_clock`, by which both go: everything in the test's own thread.
- `tarry_service`: a `tarry serve` of the test's own, on `tarry_broker`: a real Kafka for the whole run.
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
    """A name for topics and groups that no other test, and no other run, has.

    Args:
        test: the name of the test, of which it shows something.
    """
    return f"{re.sub('[^a-z0-9]+', '-', test.lower()).strip('-')[:40]}.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def tarry_fake() -> "FakeService":
    """The service on a fake broker, in this thread; see `tarry.testing.FakeService`."""
    from tarry.testing.fake_service import FakeService  # noqa: PLC0415 (only where a test asks for it)

    return FakeService()


@pytest.fixture
def tarry_clock(tarry_fake: "FakeService") -> "ManualClock":
    """The clock of `tarry_fake`, which stands still until the test advances it."""
    return tarry_fake.clock


@pytest.fixture(scope="session")
def tarry_broker() -> "Iterator[EmbeddedBroker]":
    """A real Kafka of one node, for the whole run; tests with harm in mind start an `EmbeddedBroker` of their own."""
    from tarry.devbroker import EmbeddedBroker  # noqa: PLC0415 (only where a test asks for it)
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
    """A service that serves an intake of this test's own, on `tarry_broker`; see `tarry.testing.LiveService`."""
    from tarry.testing.live_service import LiveService  # noqa: PLC0415 (only where a test asks for it)

    with LiveService(tarry_broker.bootstrap_servers, tmp_path, fresh_name(request.node.name)) as service:
        yield service
