"""The paused targets of one intake, as the records of `I.control` say, in the order of that log."""

from collections.abc import Iterable

from tarry.core.request.pause import Pause

_NONE: frozenset[str] = frozenset()


class Pauses:
    """What was decided last about each target that is paused; pure.

    Attributes:
        position: the next offset of `I.control` to read.
    """

    __slots__ = ("_paused", "position")

    def __init__(self) -> None:
        self._paused: dict[str, Pause] = {}
        self.position = 0

    def take(self, offset: int, pause: Pause | None) -> None:
        """Take in a record, in the order of the log.

        Args:
            offset: of the record.
            pause: what it says; None: nothing.
        """
        self.reach(offset + 1)
        if pause is None:
            return
        self._paused.pop(pause.target, None)
        if pause.paused:
            self._paused[pause.target] = pause

    def reach(self, position: int) -> None:
        """Note that the log is read up to an offset."""
        self.position = max(self.position, position)

    def paused_at(self, now_ms: int) -> frozenset[str]:
        """Return the targets that are paused at a time."""
        if not self._paused:
            return _NONE
        return frozenset(target for target, pause in self._paused.items() if pause.holds_at(now_ms))

    def of(self, targets: Iterable[str]) -> list[Pause]:
        """Return what was decided about some paused targets, in the order of the log."""
        wanted = frozenset(targets)
        return [pause for target, pause in self._paused.items() if target in wanted]
