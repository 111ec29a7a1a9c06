"""Which transactions count as staying open, by the offsets that brokers tell; and which logs are asked about."""

from typing import Final

from tarry.core.progress.checkpoint import Geometry
from tarry.kafka.partition_logs import read_logs_of
from tarry.kafka.types import Place
from tarry.service.worker.open_transactions import SAY_EVERY_MS, Report, StableOffsets

AFTER_MS: Final = 60_000
LOOK_MS: Final = 20_000
LOG: Final = ("in", 0)
OTHER: Final = ("in.wheel-1", 0)


class Looks:
    """What is said of logs that are looked at every 20 seconds."""

    def __init__(self) -> None:
        self.offsets = StableOffsets(AFTER_MS)
        self.now_ms = 5_000_000

    def look(self, stable: dict[Place, int], ends: dict[Place, int]) -> list[Report]:
        said = self.offsets.note(stable, ends, self.now_ms)
        self.now_ms += LOOK_MS
        return said

    def see(self, stable: int, end: int, times: int = 1) -> list[Report]:
        """Look at one log several times; return all that is said."""
        return [one for _ in range(times) for one in self.look({LOG: stable}, {LOG: end})]

    @property
    def staying(self) -> dict[Place, int]:
        return self.offsets.staying(self.now_ms)


def test_an_offset_that_stays_behind_the_end_for_a_minute_is_reported_once_in_ten_minutes() -> None:
    looks = Looks()
    assert looks.see(5, 6, times=3) == []
    assert looks.staying == {}
    assert looks.see(5, 9) == [Report("transaction_stays_open", LOG, 5, AFTER_MS)]
    assert looks.staying == {LOG: AFTER_MS + LOOK_MS}
    again = looks.see(5, 900, times=2 * SAY_EVERY_MS // LOOK_MS)
    assert again == [
        Report("transaction_stays_open", LOG, 5, AFTER_MS + SAY_EVERY_MS),
        Report("transaction_stays_open", LOG, 5, AFTER_MS + 2 * SAY_EVERY_MS),
    ]


def test_an_offset_that_moves_is_nothing_to_report_however_far_behind_it_is() -> None:
    looks = Looks()
    assert [one for stable in range(100) for one in looks.see(stable, 1_000)] == []
    assert looks.staying == {}
    assert looks.see(99, 1_000, times=2) == []
    assert len(looks.see(99, 1_000)) == 1, "it counts from when it was seen first"


def test_a_log_in_which_nothing_happens_is_nothing_to_report() -> None:
    looks = Looks()
    assert looks.see(7, 7, times=10) == []
    assert looks.see(7, 8, times=3) == [], "the transaction begins after those looks"
    assert looks.see(7, 8) == [Report("transaction_stays_open", LOG, 7, AFTER_MS)]


def test_the_end_of_a_transaction_is_reported_if_the_transaction_was() -> None:
    looks = Looks()
    looks.see(5, 6, times=4)
    assert looks.see(8, 8) == [Report("transaction_ended", LOG, 5, AFTER_MS + LOOK_MS)]
    assert looks.staying == {}
    assert looks.see(8, 8) == []
    looks.see(8, 9, times=3)
    assert looks.see(10, 10) == [], "it ended before it was reported"


def test_a_log_that_loses_its_end_loses_the_transaction_with_it() -> None:
    looks = Looks()
    looks.see(5, 6, times=4)
    assert looks.see(5, 5) == [Report("transaction_ended", LOG, 5, AFTER_MS + LOOK_MS)]
    assert looks.staying == {}


def test_the_next_transaction_of_a_log_counts_from_when_it_is_the_first() -> None:
    looks = Looks()
    looks.see(5, 8, times=4)
    assert looks.see(7, 8) == [Report("transaction_ended", LOG, 5, AFTER_MS + LOOK_MS)]
    assert looks.see(7, 8, times=2) == []
    assert looks.see(7, 8) == [Report("transaction_stays_open", LOG, 7, AFTER_MS)]


def test_a_log_without_an_answer_stays_as_it_is_known_and_others_are_judged() -> None:
    looks = Looks()
    looks.see(5, 6, times=4)
    assert looks.look({LOG: 9, OTHER: 1}, {OTHER: 2}) == []
    assert looks.look({OTHER: 1}, {LOG: 9, OTHER: 2}) == []
    assert looks.look({}, {}) == []
    assert looks.staying == {LOG: 7 * LOOK_MS}
    assert looks.look({LOG: 5, OTHER: 1}, {LOG: 6, OTHER: 2}) == [Report("transaction_stays_open", OTHER, 1, AFTER_MS)]
    assert looks.look({LOG: 6}, {LOG: 6}) == [Report("transaction_ended", LOG, 5, 8 * LOOK_MS)]


def test_what_is_forgotten_is_not_said_to_end_and_counts_anew() -> None:
    looks = Looks()
    looks.look({LOG: 5, OTHER: 1}, {LOG: 6, OTHER: 2})
    looks.offsets.keep([OTHER])
    for _ in range(2):
        looks.look({LOG: 5, OTHER: 1}, {LOG: 6, OTHER: 2})
    [said] = looks.look({LOG: 5, OTHER: 1}, {LOG: 6, OTHER: 2})
    assert said.log == OTHER
    looks.offsets.keep([LOG])
    said_of_log = Report("transaction_stays_open", LOG, 5, AFTER_MS)
    assert looks.look({LOG: 5, OTHER: 2}, {LOG: 6, OTHER: 2}) == [said_of_log]


def test_the_logs_that_are_looked_at_are_those_that_an_owner_reads() -> None:
    logs = {topic for topic, _ in read_logs_of(("in", 3), Geometry(1_000, 10, 2))}
    assert logs == {"in", "in.journal", "in.parked", "in.wheel-1", "in.wheel-2"}
    assert list(read_logs_of(("in", 3), Geometry(1_000, 10, 0))) == [("in", 3), ("in.journal", 3), ("in.parked", 3)]
