"""The published trace of seven tasks through Kafka's wheel, with every table: tick 1 s, three buckets a
wheel.

It starts at 14:40:20.558 and adds tasks due in 1 s, 2 s ... 7 s. Times below are the seconds after 14:40. A
bucket is written `21: 1`, the expiration and the tasks, or `-` where it stands for no time; a queue entry `21
1.0`, the expiration, the level and the slot.

The published tables have three misprints; here the arithmetic rules:
- task 3 goes down to a bucket of 14:40:23, whose milliseconds the text gives as those of 14:40:27;
- after the fourth advance the flushed bucket 2.1 is still shown with tasks 5 and 6, though with the
  expiration -1, and both are in their new buckets: it is empty;
- the span of wheel 1 is left out in some tables: it follows from its current time.
"""

from collections.abc import Iterable

from tarry.timer.task_list import UNQUEUED, TimerTaskEntry
from tarry.timer.wheel import TimingWheel

START_MS = 1_675_752_020_558
MINUTE_MS = 1_675_752_000_000


class Trace:
    """The wheel of the text, read as its tables are written."""

    def __init__(self) -> None:
        self.wheel = TimingWheel(tick_ms=1_000, size=3, start_ms=START_MS)

    def add(self, task: int) -> None:
        assert self.wheel.add(TimerTaskEntry(START_MS + task * 1_000, task))

    def add_all(self) -> None:
        for task in range(1, 8):
            self.add(task)

    def advance(self, second: int) -> list[int]:
        """Tasks fired at this second, which is when the queue says that the next bucket expires."""
        assert self.wheel.next_due_ms == MINUTE_MS + second * 1_000
        return [entry.sequence for entry in self.wheel.advance(MINUTE_MS + second * 1_000)]

    def tables(self) -> list[tuple[int, list[str]]]:
        """A row a level: its current time and its buckets."""
        return [
            (
                (level.current_ms - MINUTE_MS) // 1_000,
                [self._cell(bucket, bucket.expiration_ms) for bucket in level.buckets],
            )
            for level in self.wheel.levels
        ]

    def queue(self) -> list[str]:
        places = {
            id(bucket): f"{number}.{slot}"
            for number, level in enumerate(self.wheel.levels, 1)
            for slot, bucket in enumerate(level.buckets)
        }
        return [f"{(bucket.expiration_ms - MINUTE_MS) // 1_000} {places[id(bucket)]}" for bucket in self.wheel.queue]

    @staticmethod
    def _cell(entries: Iterable[TimerTaskEntry], expiration_ms: int) -> str:
        tasks = " ".join(str(entry.sequence) for entry in entries)
        return "-" if expiration_ms == UNQUEUED and not tasks else f"{(expiration_ms - MINUTE_MS) // 1_000}: {tasks}"


def test_the_new_wheel_has_one_level_whose_time_is_trimmed_to_the_second() -> None:
    trace = Trace()
    (level,) = trace.wheel.levels
    assert (level.tick_ms, len(level.buckets), level.start_ms) == (1_000, 3, START_MS)
    assert (level.interval_ms, level.current_ms, level.end_ms) == (
        3_000,
        1_675_752_020_000,
        1_675_752_023_000,
    )
    assert trace.tables() == [(20, ["-", "-", "-"])]
    assert trace.queue() == []
    assert len(trace.wheel) == 0


def test_tasks_1_and_2_go_to_the_first_wheel() -> None:
    trace = Trace()
    trace.add(1)
    assert trace.tables() == [(20, ["21: 1", "-", "-"])]
    assert trace.queue() == ["21 1.0"]
    trace.add(2)
    assert trace.tables() == [(20, ["21: 1", "22: 2", "-"])]
    assert trace.queue() == ["21 1.0", "22 1.1"]


def test_task_3_makes_the_second_wheel_whose_time_goes_back_to_a_multiple_of_its_tick() -> None:
    trace = Trace()
    for task in (1, 2, 3):
        trace.add(task)
    second = trace.wheel.levels[1]
    assert (second.tick_ms, second.interval_ms) == (3_000, 9_000)
    assert (second.start_ms, second.current_ms) == (1_675_752_020_000, 1_675_752_018_000)
    assert trace.tables() == [(20, ["21: 1", "22: 2", "-"]), (18, ["21: 3", "-", "-"])]
    assert trace.queue() == ["21 1.0", "21 2.0", "22 1.1"]


def test_tasks_4_5_and_6_share_a_bucket_that_is_queued_once() -> None:
    trace = Trace()
    for task in (1, 2, 3, 4):
        trace.add(task)
    queue = ["21 1.0", "21 2.0", "22 1.1", "24 2.1"]
    assert trace.tables() == [(20, ["21: 1", "22: 2", "-"]), (18, ["21: 3", "24: 4", "-"])]
    assert trace.queue() == queue
    trace.add(5)
    assert trace.tables() == [(20, ["21: 1", "22: 2", "-"]), (18, ["21: 3", "24: 4 5", "-"])]
    assert trace.queue() == queue
    trace.add(6)
    assert trace.tables() == [(20, ["21: 1", "22: 2", "-"]), (18, ["21: 3", "24: 4 5 6", "-"])]
    assert trace.queue() == queue


def test_task_7_makes_the_third_wheel() -> None:
    trace = Trace()
    trace.add_all()
    third = trace.wheel.levels[2]
    assert (third.tick_ms, third.interval_ms) == (9_000, 27_000)
    assert (third.start_ms, third.current_ms) == (1_675_752_018_000, 1_675_752_012_000)
    assert trace.tables() == [
        (20, ["21: 1", "22: 2", "-"]),
        (18, ["21: 3", "24: 4 5 6", "-"]),
        (12, ["-", "-", "21: 7"]),
    ]
    assert trace.queue() == ["21 1.0", "21 2.0", "21 3.2", "22 1.1", "24 2.1"]
    assert len(trace.wheel) == 7


def test_the_seven_advances() -> None:
    trace = Trace()
    trace.add_all()

    # First: three buckets expire together. Task 7 goes down a wheel, so does task 3, task 1 fires.
    assert trace.advance(21) == [1]
    assert trace.tables() == [
        (21, ["-", "22: 2", "23: 3"]),
        (21, ["-", "24: 4 5 6", "27: 7"]),
        (21, ["-", "-", "-"]),
    ]
    assert trace.queue() == ["22 1.1", "23 1.2", "24 2.1", "27 2.2"]

    # Second: only the first wheel turns; the third is empty from here on, and kept.
    assert trace.advance(22) == [2]
    assert trace.tables() == [
        (22, ["-", "-", "23: 3"]),
        (21, ["-", "24: 4 5 6", "27: 7"]),
        (21, ["-", "-", "-"]),
    ]
    assert trace.queue() == ["23 1.2", "24 2.1", "27 2.2"]

    assert trace.advance(23) == [3]
    assert trace.tables() == [
        (23, ["-", "-", "-"]),
        (21, ["-", "24: 4 5 6", "27: 7"]),
        (21, ["-", "-", "-"]),
    ]
    assert trace.queue() == ["24 2.1", "27 2.2"]

    # Fourth: task 4 fires straight from the second wheel, 5 and 6 go down.
    assert trace.advance(24) == [4]
    assert trace.tables() == [
        (24, ["-", "25: 5", "26: 6"]),
        (24, ["-", "-", "27: 7"]),
        (21, ["-", "-", "-"]),
    ]
    assert trace.queue() == ["25 1.1", "26 1.2", "27 2.2"]

    assert trace.advance(25) == [5]
    assert trace.tables() == [
        (25, ["-", "-", "26: 6"]),
        (24, ["-", "-", "27: 7"]),
        (21, ["-", "-", "-"]),
    ]
    assert trace.queue() == ["26 1.2", "27 2.2"]

    assert trace.advance(26) == [6]
    assert trace.tables() == [(26, ["-", "-", "-"]), (24, ["-", "-", "27: 7"]), (21, ["-", "-", "-"])]
    assert trace.queue() == ["27 2.2"]

    # Seventh: task 7 fires straight from the second wheel; it never was in the first.
    assert trace.advance(27) == [7]
    assert trace.tables() == [(27, ["-", "-", "-"]), (27, ["-", "-", "-"]), (21, ["-", "-", "-"])]
    assert trace.queue() == []
    assert len(trace.wheel) == 0
