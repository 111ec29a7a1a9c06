"""What waits in an intake, each message once, although messages move while the logs are read.

The logs are read in the order in which messages move, each to the end that it has when its turn comes. So a message
that moves meanwhile is met again in the next log, but not missed. Its offset in the intake tells that it is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from tarry.core.request.reader import RequestReader
from tarry.kafka.backlog import Backlog
from tarry.kafka.inspector import DueSpan, Inspector, States, Waiting
from tarry.kafka.types import Place

PAGE_BITS = 15
"""Offsets are noted in pages of so many bits each, as a power of two: 4 KiB."""


class Met:
    """Which offsets of which logs were met, with one bit for each in the pages that hold any."""

    def __init__(self) -> None:
        self._pages: dict[tuple[Place, int], bytearray] = {}

    def add(self, place: Place, offset: int) -> bool:
        """Note an offset; return whether it is new."""
        number, bit = offset >> PAGE_BITS, offset & ((1 << PAGE_BITS) - 1)
        page = self._pages.get((place, number))
        if page is None:
            page = self._pages[place, number] = bytearray((1 << PAGE_BITS) // 8)
        if page[bit >> 3] & 1 << (bit & 7):
            return False
        page[bit >> 3] |= 1 << (bit & 7)
        return True


def all_waiting(
    inspector: Inspector, backlogs: Sequence[Backlog], states: States, requests: RequestReader
) -> Iterator[Waiting]:
    """Yield what waited at the survey, except what is delivered while the logs are read.

    Args:
        inspector: reads the logs.
        backlogs: the partitions.
        states: what their journals say.
        requests: reads the intake's records as the service does.

    Raises:
        BrokerError: no answer, or a transaction of the service stays open.
    """
    return _each_once(inspector, backlogs, states, requests)


def waiting_about(
    inspector: Inspector,
    backlogs: Sequence[Backlog],
    states: States,
    requests: RequestReader,
    at_ms: int,
    width_ms: int,
) -> Iterator[Waiting]:
    """Yield those in the buckets that cover a time, and those in memory or parked that are due in its width.

    Args:
        inspector: reads the logs.
        backlogs: the partitions.
        states: what their journals say.
        requests: reads the intake's records as the service does.
        at_ms: the time.
        width_ms: that of the buckets of level 1.

    Raises:
        BrokerError: as `all_waiting`.
    """
    start_ms = at_ms // width_ms * width_ms

    def is_near(found: Waiting) -> bool:
        return found.due_ms is not None and start_ms <= found.due_ms < start_ms + width_ms

    return _each_once(inspector, backlogs, states, requests, DueSpan(at_ms, at_ms + 1), is_near)


def _each_once(
    inspector: Inspector,
    backlogs: Sequence[Backlog],
    states: States,
    requests: RequestReader,
    span: DueSpan | None = None,
    is_meant: Callable[[Waiting], bool] | None = None,
) -> Iterator[Waiting]:
    """Read what is meant of the intake and the parked log, and the buckets of a span; leave out what is met again.

    What was sent after the survey is left out, too.
    """
    ends = {backlog.place: backlog.end for backlog in backlogs}
    met = Met()
    for one in chain(
        filter(is_meant, inspector.in_intake(backlogs, requests, states)),
        inspector.in_levels(backlogs, states, span, to_now=True),
        filter(is_meant, inspector.in_parked(backlogs, states, to_now=True)),
    ):
        # What no one can read in a level's log has no offset of the intake; it stays where it is.
        is_stray = one.kind == "dead" and one.log != one.place
        if is_stray or (one.sequence < ends[one.place] and met.add(one.place, one.sequence)):
            yield one
