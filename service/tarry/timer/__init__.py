"""Kafka's timer: a pure hierarchical timing wheel, a thread-safe timer over it, and the purgatory."""

from tarry.timer.delay_queue import DelayQueue
from tarry.timer.delayed_operation import DelayedOperation
from tarry.timer.purgatory import DelayedOperationPurgatory
from tarry.timer.reaper import Reaper
from tarry.timer.task import TimerTask
from tarry.timer.task_list import TimerTaskEntry, TimerTaskList
from tarry.timer.timer import SystemTimer, Timer
from tarry.timer.wheel import DEFAULT_SIZE, TimingWheel, WheelLevel

__all__ = [
    "DEFAULT_SIZE",
    "DelayQueue",
    "DelayedOperation",
    "DelayedOperationPurgatory",
    "Reaper",
    "SystemTimer",
    "Timer",
    "TimerTask",
    "TimerTaskEntry",
    "TimerTaskList",
    "TimingWheel",
    "WheelLevel",
]
