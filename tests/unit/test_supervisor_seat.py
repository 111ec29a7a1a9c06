"""The state that a seat knows of its process."""

from tarry.service.metrics import Snapshot
from tarry.service.supervisor.channel import Beat
from tarry.service.supervisor.seat import Seat


def test_an_empty_seat_is_not_ready_and_never_silent() -> None:
    seat = Seat(3)
    assert seat.not_ready() == "process 3 will be restarted"
    assert seat.silent_ms(1_000_000) == 0


def test_the_delay_goes_by_the_last_sign_of_life_not_by_how_long_it_hung() -> None:
    seat = Seat(0)
    seat.started_ms = seat.heard_ms = 0
    assert seat.end(10) == 0
    seat.started_ms = 10
    seat.hear(Beat(ready=True, why="", snapshot=Snapshot()), 20)
    assert seat.end(500_000) == 1_000
    assert seat.start_at_ms == 501_000
    seat.started_ms = 501_000
    seat.hear(Beat(ready=True, why="", snapshot=Snapshot()), 561_000)
    assert seat.end(700_000) == 0
