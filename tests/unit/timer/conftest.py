import random
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tarry.timer import SystemTimer
from tests.unit.timer.hand_clock import HandClock
from tests.unit.timer.threads import PURGATORY, Inbox


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


@pytest.fixture
def hesitant_threads(hurried_threads: None) -> Iterator[None]:
    """Threads that are started let others go first at any line of the purgatory: nothing is one step by luck."""
    rng = random.Random(1)

    def hesitate(frame: FrameType, event: str, _arg: object) -> Any:
        if not frame.f_code.co_filename.endswith(PURGATORY):
            return None
        if rng.random() < 0.2:
            time.sleep(0)
        return hesitate

    usual = threading.gettrace()
    threading.settrace(hesitate)
    yield
    threading.settrace(usual)
