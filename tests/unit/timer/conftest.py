import pytest

from tests.unit.timer.hand_clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000)
