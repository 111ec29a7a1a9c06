"""The wheel for threads: Kafka's `SystemTimer`.

Any thread may add and cancel. One thread, usually the reaper's, calls `advance_clock` over and over; it
sleeps until the earliest bucket expires and hands the tasks of that bucket to an executor, so that a slow
task delays no bucket.

Two locks, always taken in this order:

1. A read-write lock. An add shares it with other adds from its first look at the clock to the hand-over of a
   task that is due at once; an advance has it alone. So no add sees a wheel half turned, and none slips past
   a shutdown.
2. A mutex over the wheel, held for some pointer writes at a time. Kafka has a lock a bucket instead; where
   one interpreter runs one thread at a time that would only cost more. It is also what a waiting
   `advance_clock` sleeps on.

A task is *claimed*, taken out of the wheel for good, under the mutex. So it is either cancelled or run, never
both.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Protocol

from tarry.timer.read_write_lock import ReadWriteLock
from tarry.timer.task_list import TimerTaskEntry
from tarry.timer.wheel import DEFAULT_SIZE, TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from tarry.clock import Clock
    from tarry.timer.task import TimerTask


class Timer(Protocol):
    """Runs tasks after their delays."""

    def add(self, task: TimerTask) -> None:
        """Run the task once its delay, from now on, has passed."""
        ...

    def cancel(self, task: TimerTask) -> bool:
        """Take out a task that waits; whether it did wait."""
        ...

    def advance_clock(self, timeout_ms: int) -> bool:
        """Run what is due, waiting for it up to `timeout_ms`; whether any bucket expired."""
        ...

    def size(self) -> int:
        """How many tasks wait."""
        ...

    def shutdown(self) -> None:
        """End; tasks that still wait are not run."""
        ...


class SystemTimer:
    """A timer over a `TimingWheel`, safe for any number of threads.

    No task runs before the clock shows its delay to have passed: due times are rounded up to the tick. Tasks
    are handed to the executor by due time, those of the same due time as they were added; one with no delay
    goes there at once.

    Args:
        name: names the executor's thread.
        clock: where time comes from; only `monotonic_ms` is used.
        tick_ms: the grain of the lowest wheel.
        wheel_size: buckets a wheel.
        executor: what runs the tasks; it must queue them, never run one inside `submit`. Its owner shuts it
            down. None: one thread of the timer's own, so that tasks run one after the other.
        on_error: told of a task that raised, in the task's thread. None: `threading.excepthook`, which prints
            it.

    Raises:
        ValueError: a wheel cannot have such a tick or size.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        *,
        tick_ms: int = 1,
        wheel_size: int = DEFAULT_SIZE,
        executor: Executor | None = None,
        on_error: Callable[[TimerTask, Exception], None] | None = None,
    ) -> None:
        self._clock = clock
        self._wheel = TimingWheel(tick_ms, wheel_size, clock.monotonic_ms())
        self._executor = executor or ThreadPoolExecutor(1, f"executor-{name}")
        self._owns_executor = executor is None
        self._on_error = on_error or _report
        self._lock = ReadWriteLock()
        self._mutex = threading.Condition()
        self._added = count()
        self._open = True

    def add(self, task: TimerTask) -> None:
        """Run the task once its delay, from now on, has passed. Adds run side by side, never with an advance.

        Raises:
            RuntimeError: the timer has been shut down.
        """
        task.cancel()
        with self._lock.reading():
            if not self._open:
                raise RuntimeError("the timer has been shut down")
            tick_ms = self._wheel.tick_ms
            now_ms = self._clock.monotonic_ms()
            due_ms = -(-(now_ms + task.delay_ms) // tick_ms) * tick_ms
            if due_ms > now_ms:
                with self._mutex:
                    self._hold(task, due_ms)
            else:
                self._submit(task)

    def cancel(self, task: TimerTask) -> bool:
        """Take out a task that waits. Safe beside adds and advances.

        Returns:
            Whether it did wait; then it will not run.
        """
        with self._mutex:
            entry = task.entry
            if task.timer is not self or entry is None:
                return False
            self._wheel.cancel(entry)
            _claim(entry)
            return True

    def advance_clock(self, timeout_ms: int) -> bool:
        """Hand what is due to the executor, waiting up to `timeout_ms` for a bucket to expire; 0 only looks.

        Returns:
            Whether a bucket expired. Its tasks need not be due: they may have gone down to a finer wheel.
        """
        if not self._wait_for_bucket(timeout_ms):
            return False
        with self._lock.writing():
            if not self._open:
                return False
            with self._mutex:
                tasks = [_claim(entry) for entry in self._wheel.advance(self._clock.monotonic_ms())]
            for task in tasks:
                self._submit(task)
        return True

    def size(self) -> int:
        """How many tasks wait."""
        with self._mutex:
            return len(self._wheel)

    def shutdown(self) -> None:
        """Take no more tasks, leave those that wait, and finish those already handed over.

        Not to be called by a task on the timer's own executor, which would wait for itself.
        """
        with self._lock.writing():
            self._open = False
        if self._owns_executor:
            self._executor.shutdown()

    def _hold(self, task: TimerTask, due_ms: int) -> None:
        """Put a task into the wheel, and wake whoever waits for a later bucket. Needs the mutex."""
        if task.entry is not None:  # another thread has just added it, too: the later add counts
            self._wheel.cancel(task.entry)
            _claim(task.entry)
        task.timer = self
        task.entry = TimerTaskEntry(due_ms, next(self._added), task)
        earliest_ms = self._wheel.next_due_ms
        self._wheel.add(task.entry)
        if self._wheel.next_due_ms != earliest_ms:
            self._mutex.notify_all()

    def _wait_for_bucket(self, timeout_ms: int) -> bool:
        """Sleep until the earliest bucket has expired; False when `timeout_ms` has passed before that."""
        left_ms = timeout_ms
        with self._mutex:
            while True:
                now_ms = self._clock.monotonic_ms()
                earliest_ms = self._wheel.next_due_ms if self._open else None
                if earliest_ms is not None and earliest_ms <= now_ms:
                    return True
                if left_ms <= 0:
                    return False
                wait_ms = left_ms if earliest_ms is None else min(left_ms, earliest_ms - now_ms)
                woken = self._mutex.wait(wait_ms / 1000)
                # What was slept counts even where the clock stands still, as one turned by hand does.
                left_ms -= self._clock.monotonic_ms() - now_ms if woken else wait_ms

    def _submit(self, task: TimerTask) -> None:
        self._executor.submit(self._run, task)

    def _run(self, task: TimerTask) -> None:
        try:
            task.run()
        except Exception as error:  # noqa: BLE001 - whatever one task raises, the next must run
            self._on_error(task, error)


def _claim(entry: TimerTaskEntry) -> TimerTask:
    """Part a task from the entry that held it: from here on it cannot be cancelled."""
    task = entry.task
    if task is None:
        raise AssertionError("an entry without a task was in a timer's wheel")
    entry.task = task.entry = None
    return task


def _report(_task: TimerTask, error: Exception) -> None:
    """Do with a task's error what Python does with one that ends a thread."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )
