"""A service, and `tarry api` without tokens, for all tests of a module."""

from collections.abc import Iterator

import httpx
import pytest

from tarry.testing import LiveService
from tests.support.api import Api, config_beside

PARTITIONS = 2


@pytest.fixture(scope="module")
def service(
    bootstrap: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[LiveService]:
    """A service whose intake takes messages for `<its name>.*`."""
    directory = tmp_path_factory.mktemp("service")
    name = f"t{abs(hash((request.module.__name__, directory))) % 10**12}"
    with LiveService(bootstrap, directory, name, PARTITIONS, targets=[f"{name}.*"], max_delay="1h") as found:
        yield found


@pytest.fixture(scope="module")
def api(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API that anybody on this machine may use."""
    with Api(config_beside(service, PARTITIONS), tmp_path_factory.mktemp("api")) as found:
        yield found


@pytest.fixture
def http(api: Api) -> Iterator[httpx.Client]:
    """A client of it."""
    with api.client() as client:
        yield client


@pytest.fixture(scope="module")
def orders(service: LiveService) -> str:
    """A target."""
    return service.make_topic("orders", 2)
