"""Gathering the figures of a process and its partitions, from what the loop knows anyway."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from platform import node
from resource import getpagesize
from typing import Final

from tarry.core.partition import PartitionState
from tarry.core.request.figures import MOST_TARGETS, Figures, ParkedFigures, PausedFigures, ProcessFigures
from tarry.core.request.pause import Pause
from tarry.kafka.types import Place
from tarry.service.worker.context import Context
from tarry.service.worker.steady_clock import SteadyClock
from tarry.service.worker.view import View

_MEMORY: Final = Path("/proc/self/statm")


class Gathering:
    """Gathers figures; for one thread.

    Args:
        clock: wall and monotonic time, and how far the machine's clock is from the brokers'.
        pauses: returns the pauses in force, by intake.
        context: what was delivered.
    """

    def __init__(
        self, clock: SteadyClock, pauses: Callable[[], Mapping[str, Sequence[Pause]]], context: Context
    ) -> None:
        self._clock = clock
        self._pauses = pauses
        self._deliveries = context.deliveries
        self._since_ms = clock.monotonic_ms()
        self._parked_since_ms: dict[tuple[Place, str], int] = {}
        """Since when we know of parked messages, by partition and target."""
        self._takeovers = 0

    def taken_over(self, count: int) -> None:
        """Count partitions that were taken over."""
        self._takeovers += count

    def change(self, view: View) -> object:
        """Return a value that differs from the last one if something has happened since."""
        states = [(place, state.held, state.parked.by_target(), state.obeyed) for place, state in view.states.items()]
        aside = sorted(view.aside.quarantined), sorted(view.standby)
        return self._deliveries.total, states, aside, self._pauses()

    def gather(self, view: View) -> dict[Place, Figures]:
        """Return the figures of our partitions; a period of deliveries ends."""
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        skew_ms = self._clock.skew_ms
        delivered = self._deliveries.period()
        process = ProcessFigures(
            host=node(),
            resident_bytes=_resident_bytes(),
            held_bytes=sum(state.memory_bytes for state in view.states.values()),
            delivered=self._deliveries.total,
            period_ms=monotonic_ms - self._since_ms,
            clock_skew_ms=None if skew_ms is None else round(skew_ms),
            takeovers=self._takeovers,
            quarantined=tuple(f"{topic}/{number}" for topic, number in sorted(view.aside.quarantined)),
            standby=tuple(f"{topic}/{number}" for topic, number in sorted(view.standby)),
        )
        self._since_ms = monotonic_ms
        paused = {intake: _paused(pauses) for intake, pauses in self._pauses().items()}
        known, self._parked_since_ms = self._parked_since_ms, {}
        figures = {}
        for place, state in view.states.items():
            for target in state.parked.targets:
                self._parked_since_ms[place, target] = known.get((place, target), now_ms)
            figures[place] = Figures(
                at_ms=now_ms,
                held=state.held,
                waiting=state.waiting,
                bytes=state.memory_bytes,
                parked=self._parked(place, state),
                paused=paused.get(place[0], ()),
                obeyed=None if state.obeyed is None else state.obeyed.offset,
                process=replace(process, targets=delivered.get(place[0], ())),
            )
        return figures

    def _parked(self, place: Place, state: PartitionState) -> tuple[ParkedFigures, ...]:
        found = [
            ParkedFigures(target, messages, self._parked_since_ms[place, target])
            for target, messages in state.parked.by_target().items()
            if messages
        ]
        return tuple(sorted(found, key=lambda one: (one.since_ms, one.target))[:MOST_TARGETS])


def _paused(pauses: Sequence[Pause]) -> tuple[PausedFigures, ...]:
    found = sorted(pauses, key=lambda pause: (pause.at_ms, pause.target))
    return tuple(PausedFigures(pause.target, pause.at_ms, pause.until_ms) for pause in found[:MOST_TARGETS])


def _resident_bytes() -> int:
    """Return the memory that this process occupies; 0 where the system does not tell it in this way."""
    try:
        return int(_MEMORY.read_text(encoding="ascii").split()[1]) * getpagesize()
    except (OSError, IndexError, ValueError):
        return 0
