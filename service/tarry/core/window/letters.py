"""Dead letters that are written apart from what fires, because the topic of dead letters may refuse them.

A topic's limit is on a batch as it is compressed, and what one producer compressed to a fifth may be larger as another
writes it. A refusal aborts a transaction; so a letter that is larger than what any topic of an intake takes goes in a
transaction of letters alone. Where it is refused even there, a *stub* says where its record stands. That one is not
done: it holds the low watermark of its log, so its record is there until the topic takes the letter, which is tried
again whenever the partition is taken over. Meanwhile only the record holds it: here it takes no memory.

    put        5 6 7                   waiting 5 6 7
    take       5 6                     waiting 7
    put_back   6 was refused           waiting 5 6s 7      6s: the stub of 6
    confirm    5 and 6s                waiting 7           left 1
"""

from collections.abc import Callable, Container, Iterable

from tarry.core.batch import fitting
from tarry.core.message import DeadMessage
from tarry.core.progress.source import Source
from tarry.core.window.memory import Memory

LARGE_BYTES = 256_000
"""A letter above this goes apart; what is smaller fits uncompressed, as is checked at the start."""


class Bundle(tuple[DeadMessage, ...]):
    """Letters that one transaction writes."""

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        """About how much a transaction has to write for it."""
        return sum(letter.size_bytes for letter in self)

    @property
    def offsets(self) -> dict[Source, list[int]]:
        """Those that the transaction completes, by the log that they stand in."""
        offsets: dict[Source, list[int]] = {}
        for letter in self:
            if not letter.is_stub:
                offsets.setdefault(letter.source, []).append(letter.offset)
        return offsets


class Letters:
    """The dead letters of one partition that are written apart.

    Args:
        memory: of the partition; a letter takes none any more when it is written or left.
        stay: is told of the place of each that is left.
    """

    __slots__ = ("_memory", "_stay", "_waiting", "left")

    def __init__(self, memory: Memory, stay: Callable[[Source, int], None]) -> None:
        self._memory = memory
        self._stay = stay
        self._waiting: list[DeadMessage] = []
        self.left = 0
        """How many are left in their logs, because the topic of dead letters does not take them."""

    def __len__(self) -> int:
        return len(self._waiting) + self.left

    @property
    def waiting(self) -> int:
        """How many are to be written."""
        return len(self._waiting)

    def put(self, letters: Iterable[DeadMessage]) -> None:
        """Have letters written."""
        self._waiting.extend(letters)

    def take(self, limit: int, limit_bytes: int) -> Bundle:
        """Take up to so many of those to be written, and no more bytes than that, but for the first."""
        count = fitting([letter.size_bytes for letter in self._waiting[:limit]], limit_bytes)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return Bundle(taken)

    def put_back(self, letters: Iterable[DeadMessage], refused: Container[tuple[Source, int]]) -> None:
        """Their transaction aborted.

        Args:
            letters: what was taken.
            refused: the places of those that are refused for ever, each by itself: a stub is to be
                written of these, and nothing where that was the stub.
        """
        back = []
        for letter in letters:
            if letter.location not in refused:
                back.append(letter)
                continue
            self._memory.held_bytes -= letter.size_bytes
            if letter.is_stub:
                self._leave(letter)
            else:
                stub = letter.as_stub()
                self._memory.held_bytes += stub.size_bytes
                back.append(stub)
        self._waiting[:0] = back

    def written(self, letters: Bundle) -> None:
        """They are committed."""
        self._memory.held_bytes -= letters.size_bytes
        for letter in letters:
            if letter.is_stub:
                self._leave(letter)

    def _leave(self, stub: DeadMessage) -> None:
        self.left += 1
        self._stay(*stub.location)
