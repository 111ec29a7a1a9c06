"""The supervisor, which starts the worker processes, watches and restarts them, and stops them together."""

from tarry.service.supervisor.channel import Beat, Channel, StartRefused
from tarry.service.supervisor.child import ChildProcess
from tarry.service.supervisor.signals import StopSignals, ended_at_once, handled, interruptible
from tarry.service.supervisor.supervisor import Supervisor, TimeLimits

__all__ = [
    "Beat",
    "Channel",
    "ChildProcess",
    "StartRefused",
    "StopSignals",
    "Supervisor",
    "TimeLimits",
    "ended_at_once",
    "handled",
    "interruptible",
]
