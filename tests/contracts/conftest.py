"""Each rule of this tier holds for a real broker, and for the simulated one that stands in for it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.contract import FakeKafka, Kafka, RealKafka


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.broker), "fake"])
def kafka(request: pytest.FixtureRequest, seed: int) -> Iterator[Kafka]:
    """A cluster for one rule."""
    with ExitStack() as until_the_end:
        if request.param == "real":
            version = request.config.getoption("--kafka-version")
            yield RealKafka(request.getfixturevalue("bootstrap"), until_the_end, version)
        else:
            yield FakeKafka(seed, until_the_end)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A topic with one partition."""
    return kafka.make_topic()
