"""The loop of one process: consume, place, advance, transact."""

from tarry.service.worker.loop import Worker
from tarry.service.worker.plan import Plan

__all__ = ["Plan", "Worker"]
