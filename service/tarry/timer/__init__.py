"""Kafka's timer: a pure hierarchical timing wheel, and its threaded face."""

from tarry.timer.delay_queue import DelayQueue
from tarry.timer.reaper import Reaper
from tarry.timer.task import TimerTask
from tarry.timer.task_list import TimerTaskEntry, TimerTaskList
from tarry.timer.timer import SystemTimer, Timer
from tarry.timer.wheel import DEFAULT_SIZE, TimingWheel, WheelLevel

__all__ = [
    "DEFAULT_SIZE",
    "DelayQueue",
    "Reaper",
    "SystemTimer",
    "Timer",
    "TimerTask",
    "TimerTaskEntry",
    "TimerTaskList",
    "TimingWheel",
    "WheelLevel",
]
