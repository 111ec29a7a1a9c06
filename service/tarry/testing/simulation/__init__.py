"""A simulation of the service: processes, a cluster, senders and readers in one thread, with one random seed."""

from tarry.testing.judge import Report
from tarry.testing.simulation.disturbances import At, Chance, Recorder
from tarry.testing.simulation.oracle import Seen, check
from tarry.testing.simulation.process import Crash, Disturbance, Process
from tarry.testing.simulation.scenarios import (
    SHAPES,
    RunOutcome,
    at_a_step,
    by_chance,
    crash,
    crash_for_good,
    freeze,
    lose,
    nap,
    steps_of,
)
from tarry.testing.simulation.sent import Sent
from tarry.testing.simulation.world import Shape, World

__all__ = [
    "SHAPES",
    "At",
    "Chance",
    "Crash",
    "Disturbance",
    "Process",
    "Recorder",
    "Report",
    "RunOutcome",
    "Seen",
    "Sent",
    "Shape",
    "World",
    "at_a_step",
    "by_chance",
    "check",
    "crash",
    "crash_for_good",
    "freeze",
    "lose",
    "nap",
    "steps_of",
]
