"""Processes under a supervisor: started, watched, started anew, ended together."""

from tarry.supervisor.channel import Beat, Channel, Refused
from tarry.supervisor.child import ChildProcess
from tarry.supervisor.signals import StopSignals, ended_at_once, handled, interruptible
from tarry.supervisor.supervisor import Limits, Supervisor

__all__ = [
    "Beat",
    "Channel",
    "ChildProcess",
    "Limits",
    "Refused",
    "StopSignals",
    "Supervisor",
    "ended_at_once",
    "handled",
    "interruptible",
]
