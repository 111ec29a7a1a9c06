"""Large dead letters, which a transaction of their own writes, because the topic of dead letters may refuse them.

A topic's size limit applies to a compressed batch, and a record that one producer has compressed to a fifth may be
larger when another producer writes it. A refusal aborts the transaction. So a letter that is too large to be accepted
by every topic goes in a transaction of letters only. If it is refused even there, a *stub* is written that says where
the record is. That record is not done: it holds the low watermark of its log, so it is kept until the topic accepts the
letter. The letter is tried again whenever the partition is taken over. In between it takes no memory.

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
from tarry.core.window.names import Names
from tarry.headers import ErrorCode
from tarry.native import mypyc_attr

LARGE_BYTES = 256_000
"""A larger letter goes in a transaction of letters only. A smaller one fits uncompressed, which the start checks."""


@mypyc_attr(native_class=False)
class Bundle(tuple[DeadMessage, ...]):
    """Letters that one transaction writes."""

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes that the transaction writes."""
        return sum(letter.size_bytes for letter in self)

    @property
    def done(self) -> list[DeadMessage]:
        """The letters whose records the transaction completes: a record that gets a stub is not completed."""
        return [letter for letter in self if not letter.is_stub]

    @property
    def offsets(self) -> dict[Source, list[int]]:
        """The offsets that the transaction completes, by log."""
        offsets: dict[Source, list[int]] = {}
        for letter in self.done:
            offsets.setdefault(letter.source, []).append(letter.offset)
        return offsets


class Letters:
    """The large dead letters of one partition.

    Args:
        memory: the partition's memory; a letter takes none when it is written, or left in its log.
        stay: called with the log and the offset of each letter that is left in its log.
        names: knows which letters are of superseded messages.
    """

    __slots__ = ("_memory", "_names", "_of_purges", "_stay", "_waiting", "left")

    def __init__(self, memory: Memory, stay: Callable[[Source, int], None], names: Names) -> None:
        self._memory = memory
        self._names = names
        self._stay = stay
        self._waiting: list[DeadMessage] = []
        self.left = 0
        """The number of letters that are left in their logs, because the topic of dead letters refuses them."""
        self._of_purges: set[str | None] = set()
        """The targets with purged messages among them."""

    def __len__(self) -> int:
        return len(self._waiting) + self.left

    @property
    def waiting(self) -> int:
        """The number of letters to write."""
        return len(self._waiting)

    def has_left_of_purges(self, target: str) -> bool:
        """Whether a letter of a purged message of a target is left in its log: this holds up the answers of purges."""
        return target in self._of_purges

    def put(self, letters: Iterable[DeadMessage]) -> None:
        """Add letters to write."""
        self._waiting.extend(letters)

    def take(self, limit: int, limit_bytes: int) -> Bundle:
        """Take up to `limit` letters, and at most `limit_bytes`; the first one is taken even if it is larger."""
        names, first = self._names, list[DeadMessage]()
        for letter in self._waiting[:limit]:
            if names.is_superseded(letter):
                names.drop(letter)
            else:
                first.append(letter)
        admitted = [letter for letter in first if letter.name is None or letter.sequence < names.admitted_below]
        count = fitting([letter.size_bytes for letter in admitted], limit_bytes)
        taken = Bundle(admitted[:count])
        places = {letter.location for letter in taken}
        self._waiting = [*(one for one in first if one.location not in places), *self._waiting[limit:]]
        return taken

    def put_back(self, letters: Iterable[DeadMessage], refused: Container[tuple[Source, int]]) -> None:
        """Put letters back to be written again: their transaction aborted.

        Args:
            letters: from `take`.
            refused: log and offset of letters that the topic permanently refuses, each in a batch of its own. A stub is
                written in place of such a letter; a refused stub is not written again.
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
        """Note that the letters are committed."""
        self._memory.held_bytes -= letters.size_bytes
        for letter in letters:
            if letter.is_stub:
                self._leave(letter)

    def _leave(self, stub: DeadMessage) -> None:
        self.left += 1
        if stub.code == ErrorCode.PURGED:
            self._of_purges.add(stub.target)
        self._stay(*stub.location)
