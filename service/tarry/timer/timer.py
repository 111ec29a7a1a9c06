"""The thread-safe timer: Kafka's `SystemTimer`.

Any thread may add and cancel tasks. One thread, usually the reaper's, calls `advance_clock` repeatedly. It sleeps until
the earliest bucket expires, then hands the tasks of that bucket to an executor, so that a slow task delays no bucket.

Two locks, always acquired in this order:

1. A readers-writer lock. An add holds it for reading, from its first look at the clock until a task that is due at once
   is handed to the executor; an advance holds it for writing. So no add sees a half-advanced wheel, and none succeeds
   after a shutdown.
2. A mutex over the wheel, held for a few pointer writes at a time. Kafka has one lock for each bucket instead; in an
   interpreter that runs one thread at a time that would only cost more. A waiting `advance_clock` sleeps on this mutex.

A task is *claimed*, i.e. removed from the wheel permanently, under the mutex. So it is either cancelled or run, never
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
        """Run the task when its delay, counted from now, has passed."""
        ...

    def cancel(self, task: TimerTask) -> bool:
        """Remove a waiting task; return whether it was waiting."""
        ...

    def advance_clock(self, timeout_ms: int) -> bool:
        """Run the due tasks, waiting up to `timeout_ms` for one; return whether a bucket expired."""
        ...

    def size(self) -> int:
        """Return the number of waiting tasks."""
        ...

    def shutdown(self) -> None:
        """Shut down; waiting tasks will not run."""
        ...


class SystemTimer:
    """A thread-safe timer over a `TimingWheel`.

    No task runs before its delay has passed on the clock: due times are rounded up to the tick. The executor gets the
    tasks in the order of their due times, those of the same due time in the order of adding. A task without a delay
    goes to the executor at once.

    Args:
        name: the name of the executor's thread.
        clock: only its `monotonic_ms` is used.
        tick_ms: the tick of the lowest wheel.
        wheel_size: the number of buckets of each wheel.
        executor: runs the tasks; it must queue them, and never run one inside `submit`. Its owner shuts it down. None:
            one thread that belongs to the timer, so that tasks run one after the other.
        on_error: called with a task that raised and its exception, in the task's thread. None:
            `threading.excepthook`, which prints the exception.

    Raises:
        ValueError: the tick or the wheel size is out of range.
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
        """Run the task when its delay, counted from now, has passed. Adds run concurrently, but never with an advance.

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
        """Remove a waiting task. It may run concurrently with adds and advances.

        Returns:
            Whether it was waiting; then it will not run.
        """
        with self._mutex:
            entry = task.entry
            if task.timer is not self or entry is None:
                return False
            self._wheel.cancel(entry)
            _claim(entry)
            return True

    def advance_clock(self, timeout_ms: int) -> bool:
        """Hand due tasks to the executor, waiting up to `timeout_ms` for a bucket to expire; 0: do not wait.

        Returns:
            Whether a bucket expired. Its tasks need not be due: they may have moved down to a finer wheel.
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
        """Return the number of waiting tasks."""
        with self._mutex:
            return len(self._wheel)

    def shutdown(self) -> None:
        """Refuse new tasks, drop the waiting ones, and finish the ones already handed to the executor.

        A task on the timer's own executor must not call it: it would wait for itself.
        """
        with self._lock.writing():
            self._open = False
        if self._owns_executor:
            self._executor.shutdown()

    def _hold(self, task: TimerTask, due_ms: int) -> None:
        """Put a task into the wheel, and wake an advance that waits for a later bucket. The caller holds the mutex."""
        if task.entry is not None:  # another thread has just added the same task: the later add counts
            self._wheel.cancel(task.entry)
            _claim(task.entry)
        task.timer = self
        task.entry = TimerTaskEntry(due_ms, next(self._added), task)
        earliest_ms = self._wheel.next_due_ms
        self._wheel.add(task.entry)
        if self._wheel.next_due_ms != earliest_ms:
            self._mutex.notify_all()

    def _wait_for_bucket(self, timeout_ms: int) -> bool:
        """Sleep until the earliest bucket has expired; return False if `timeout_ms` passes first."""
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
                # A full wait counts even if the clock stands still, as a manual clock does.
                left_ms -= self._clock.monotonic_ms() - now_ms if woken else wait_ms

    def _submit(self, task: TimerTask) -> None:
        self._executor.submit(self._run, task)

    def _run(self, task: TimerTask) -> None:
        try:
            task.run()
        except Exception as error:  # noqa: BLE001 - the next task must run, whatever this one raises
            self._on_error(task, error)


def _claim(entry: TimerTaskEntry) -> TimerTask:
    """Separate a task from its entry; afterwards it cannot be cancelled."""
    task = entry.task
    if task is None:
        raise AssertionError("an entry without a task was in a timer's wheel")
    entry.task = task.entry = None
    return task


def _report(_task: TimerTask, error: Exception) -> None:
    """Report a task's exception as Python reports an exception that ends a thread."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )
