"""One process's loop: consume, place, advance, transact."""

from tarry.worker.loop import Worker
from tarry.worker.plan import Plan

__all__ = ["Plan", "Worker"]
