import sys
from collections.abc import Iterator

import pytest

from tarry.timer import SystemTimer
from tests.unit.timer.hand_clock import HandClock
from tests.unit.timer.threads import Inbox


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def timer(clock: HandClock, inbox: Inbox) -> Iterator[SystemTimer]:
    timer = SystemTimer("test", clock, wheel_size=20, executor=inbox)
    yield timer
    timer.shutdown()


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Threads change places some hundred times more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)
