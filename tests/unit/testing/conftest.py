"""A fake cluster with one topic."""

import pytest

from tarry.testing import FakeBroker, ManualClock
from tests.unit.testing.level import Level
from tests.unit.testing.stage import TopicStage


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stage(clock: ManualClock) -> TopicStage:
    return TopicStage(clock, FakeBroker(clock))


@pytest.fixture
def level(stage: TopicStage) -> Level:
    return Level(stage)
