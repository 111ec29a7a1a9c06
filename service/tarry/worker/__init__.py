"""One process's loop: consume, place, advance, transact."""

from tarry.worker.loop import Plan, Worker

__all__ = ["Plan", "Worker"]
