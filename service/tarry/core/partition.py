"""The state of one intake partition, from being taken over to being given up.

Pure: records and `now_ms` go in, batches to deliver and checkpoints to commit come out. The worker's loop drives it:

    accept    a record of the intake is read (`arrivals`), or of a closed bucket (`draining`): placed in the wheel, or
              to be filed (`placing`), or found dead, or known to be done
    collect   time moves: what is due becomes ready, in the order of (due time, offset)
    take      a batch of what is ready, for the next transaction
    settle    what that transaction must commit with it: low watermark, checkpoint, journal record
    confirm   it committed: the batch is done
    put_back  it aborted: the batch is ready again, in front

Between `take` and `confirm` or `put_back` no other batch is taken; batches to be filed, and of what is `parked`, go
beside. If a transaction's fate is unknown, the whole state is dropped and the partition is taken over anew.

**Gate**: after a take-over nothing fires before the replay has reached the end that the intake had when it began. Then
what is overdue comes out in due order, as if there had been no crash.

Each part has a module of its own, and knows others in one direction alone, also because full collections of garbage
are switched off. A message goes

    arrivals, draining -> placing -> hot window -> ready -> a batch, or parked

and `progress` says how far the intake and the overflow wheel are done.
"""

from collections.abc import Callable, Container, Mapping
from operator import attrgetter

from tarry.core.batch import UNBOUNDED, Batch, Filing, Settlement
from tarry.core.message import DeadMessage, FiledMessage, HeldCancel
from tarry.core.progress.intake import IntakeProgress
from tarry.core.progress.origin import Origin
from tarry.core.progress.progress import Progress
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.source import Source
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.draining import DrainedRecords
from tarry.core.wheel.overflow import Overflow
from tarry.core.window.arrivals import Arrivals
from tarry.core.window.hot_window import HotWindow
from tarry.core.window.letters import LARGE_BYTES, Bundle, Letters
from tarry.core.window.memory import Memory
from tarry.core.window.parked import Parked
from tarry.core.window.placing import Placing
from tarry.core.window.ready import Ready
from tarry.headers import derived_id
from tarry.timer import TimingWheel

_size_bytes = attrgetter("size_bytes")


class PartitionState:
    """One intake partition.

    Args:
        intake: the topic.
        partition: its number.
        reader: decides what a record asks for.
        keeps_order: whether the intake has a fixed delay: no record is due before the one in front of it.
        new_wheel: makes an empty wheel that starts at a time.
        recovered: where to begin.
        now_ms: wall time.

    Attributes:
        arrivals: takes in records of the intake.
        draining: takes in records of closed buckets.
        placing: has what waits to be filed.
        overflow: how far each slot of the overflow wheel is done.
        parked: what waits for targets that are away.
        letters: dead letters that are written apart.
    """

    def __init__(
        self,
        intake: str,
        partition: int,
        reader: RequestReader,
        keeps_order: bool,
        new_wheel: Callable[[int], TimingWheel],
        recovered: Recovered,
        now_ms: int,
    ) -> None:
        self.intake = intake
        self.partition = partition
        width_ms = recovered.checkpoint.geometry.width_ms
        memory = self._memory = Memory()
        overflow = self.overflow = Overflow(recovered.checkpoint, recovered.buckets)
        letters = self.letters = Letters(memory, overflow.stay)
        ready = self._ready = Ready(letters)
        intake_log = self._intake_log = IntakeProgress(recovered, keeps_order=keeps_order)
        hot = self._hot = HotWindow(
            lambda: overflow.gate, lambda: intake_log.known_below, new_wheel, ready, memory, width_ms, now_ms
        )
        placing = self.placing = Placing(hot, overflow, width_ms, intake_log.holds_up)
        self.arrivals = Arrivals(intake, partition, reader, intake_log, hot, placing, ready, memory)
        self.draining = DrainedRecords(intake, partition, overflow, hot, placing, ready, memory)
        self.parked = Parked(memory, self._hot.let_go)
        self._progress = Progress(recovered.checkpoint, intake_log, overflow)

    def close(self) -> None:
        """Let go of what is held: the wheel's rings refer to themselves, and full collections are switched off."""
        self._hot.close()

    # -- how it stands ----------------------------------------------------------------------------------------------

    @property
    def place(self) -> tuple[str, int]:
        """The intake and the partition's number."""
        return self.intake, self.partition

    @property
    def position(self) -> int:
        """The next offset of the intake to be read."""
        return self._intake_log.position

    @property
    def low(self) -> int:
        """The low watermark."""
        return self._intake_log.low

    @property
    def replaying(self) -> bool:
        """Whether the gate is closed: the replay has not reached its end, in the intake and in level 1."""
        return self._intake_log.is_replaying or self.overflow.is_recovering

    @property
    def held(self) -> int:
        """How many messages are held, ready ones included."""
        return len(self._hot) + len(self._ready) + self.placing.to_file + len(self.parked) + len(self.letters)

    @property
    def held_bytes(self) -> int:
        """About how much memory they take."""
        return self._memory.held_bytes

    @property
    def memory_bytes(self) -> int:
        """About how much memory all of it takes: the messages held, and what is noted of others."""
        return self._memory.held_bytes + self._hot.known_bytes + self._intake_log.order_bytes

    def shed_known(self, limit_bytes: int) -> None:
        """Know no more messages that are done than fit into so many bytes; those that were due first are forgotten."""
        self._hot.shed_known(limit_bytes)

    @property
    def largest_bytes(self) -> int:
        """The most that a single message has taken so far."""
        return self._memory.largest_bytes

    # -- firing -----------------------------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When `collect` has something to do next: 0 for now, None for never while nothing is read."""
        if self._ready:
            return 0
        return None if self.replaying else self._hot.next_due_ms()

    def collect(self, now_ms: int) -> bool:
        """Make ready what is due by now; nothing that is to be delivered while the gate is closed.

        Returns:
            Whether anything is ready. What needs no delivery overtakes nothing, and a replay may be full of it.
        """
        if self._intake_log.is_replaying:
            self._intake_log.reach(self._intake_log.position)
        self._hot.decide(now_ms)
        if not self.replaying:
            self._hot.collect(now_ms)
        return bool(self._ready)

    def take(self, limit: int, now_ms: int, away: Container[str] = (), limit_bytes: int = UNBOUNDED) -> Batch:
        """Take up to `limit` of what is ready, in order.

        Args:
            limit: messages.
            now_ms: wall time; nothing whose time the clock has gone back from is taken.
            away: targets whose messages are parked instead, behind those that are parked already.
            limit_bytes: no more than so many, but for the first message.
        """
        return self._ready.take(limit, limit_bytes, now_ms, away, self.parked)

    def settle(self, batch: Batch) -> Settlement:
        """Mark the batch as done, tentatively, and say what its transaction commits."""
        return self._progress.settle(batch.offsets())

    def confirm(self, batch: Batch) -> None:
        """The batch's transaction committed."""
        self.confirm_rest()
        self._complete(batch)

    def put_back(self, batch: Batch, apart: Container[str] = ()) -> None:
        """The batch's transaction aborted: all of it is ready again, in front of the rest.

        Args:
            batch: what was taken.
            apart: targets that are set apart since: their messages are parked, so that it shows that some wait.
        """
        self._progress.unmark(batch.offsets())
        batch.reinstate()
        self.parked.park_from(batch, apart)
        self._ready.put_back(batch)

    def set_aside(self, batch: Batch, *, every: bool) -> list[DeadMessage]:
        """Have the large dead letters of a batch written apart, before it is settled.

        Args:
            batch: what was taken.
            every: not the large ones alone.

        Returns:
            These; they are no part of the batch any more, whatever becomes of it.
        """
        letters, retired = batch.set_aside(lambda dead: every or dead.size_bytes > LARGE_BYTES)
        self._hot.let_go(retired)
        were_due = {message.location: message.size_bytes for message in retired}
        for letter in letters:
            if letter.location in were_due:
                self._memory.held_bytes += letter.size_bytes - were_due[letter.location]
        self.letters.put(letters)
        return letters

    def confirm_letters(self, letters: Bundle) -> None:
        """The transaction of letters that were written apart committed; what has a stub alone is not done."""
        self._progress.mark(letters.offsets)
        self._progress.trim()
        self.letters.written(letters)

    def confirm_parked(self, batch: Batch) -> None:
        """The transaction of a batch that was parked committed.

        Only now it counts as done: other transactions went on meanwhile.
        """
        self._progress.mark(batch.offsets())
        self._complete(batch)

    def _complete(self, batch: Batch) -> None:
        """All of a batch is done for good."""
        self._progress.trim()
        self._hot.done(batch)
        done_bytes = sum(map(_size_bytes, batch.due)) + sum(map(_size_bytes, batch.retired))
        retired = {message.location for message in batch.retired}
        done_bytes += sum(dead.size_bytes for dead in batch.dead if dead.location not in retired)
        done_bytes += sum(record.size_bytes for resolution in batch.resolutions for record in resolution.records)
        self._memory.held_bytes -= done_bytes

    # -- the overflow wheel -----------------------------------------------------------------------------------------

    def confirm_filed(self, filing: Filing) -> None:
        """The transaction that filed them committed."""
        self._progress.mark(filing.offsets)
        self._progress.trim()
        self._memory.held_bytes -= sum(message.size_bytes for message, _ in filing.records)

    def put_back_filed(self, filing: Filing, refused: Mapping[int, tuple[str, str]]) -> None:
        """The transaction that filed them aborted: they are to be filed again.

        Args:
            filing: what was taken.
            refused: for the offset in the intake of each that no level takes the error code and detail: these are dead.
        """
        kept = []
        for record in filing.records:
            message = record[0]
            if message.sequence in refused:
                dead = self._dead_of(message, *refused[message.sequence])
                self._memory.held_bytes += dead.size_bytes - message.size_bytes
                self._ready.bury(dead)
            else:
                kept.append(record)
        self.placing.put_back_filed(Filing(kept))

    def _dead_of(self, message: FiledMessage, code: str, detail: str) -> DeadMessage:
        dead = DeadMessage.of(message, code, detail)
        if type(message) is not HeldCancel:
            return dead
        # It has its message's id and due time, and is not that message.
        return dead._replace(id=derived_id(*self.place, message.sequence), due_ms=None, target=None)

    def to_ask(self, now_ms: int) -> list[Source]:
        """The slots whose high watermarks `close_buckets` needs next; none where nothing is to be closed."""
        return [] if self.replaying else self.overflow.to_ask(now_ms)

    def close_buckets(self, ends: Mapping[Source, int], room_bytes: int, now_ms: int) -> bool:
        """Close the buckets whose time has come, as far as it is known what lies in them.

        Args:
            ends: the high watermarks of slots, asked while nothing is being filed.
            room_bytes: of memory.
            now_ms: wall time.

        Returns:
            Whether there were any: that is to be committed before anything is filed by it.
        """
        if self.replaying or not self.overflow.close(ends, room_bytes // self._memory.typical_bytes, now_ms):
            return False
        self.placing.look_again(now_ms)
        return True

    # -- the checkpoint ---------------------------------------------------------------------------------------------

    @property
    def origin(self) -> Origin:
        """What the offsets of its checkpoint are of."""
        return self._progress.origin

    @property
    def pointer(self) -> int:
        """Where a recovery would begin to read the journal."""
        return self._progress.pointer

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was asked for earlier, for the recovery pointers."""
        self._progress.note_journal_end(end)

    @property
    def behind(self) -> int:
        """How many records of the journal a recovery would read, as far as its end is known."""
        return self._progress.behind

    def rest(self, *, released: bool = False, sums_up: bool = False) -> Settlement:
        """What is committed where nothing fires: to renew the checkpoint, or to release the partition.

        Args:
            released: whether the partition is given up with it.
            sums_up: whether to say again what is done above the watermarks, if a replay is not going on, so that the
                journal is not needed before its end as last known. For when no transaction is open.
        """
        return self._progress.rest(released=released, sums_up=sums_up and not self.replaying)

    def sign(self, writer: tuple[str, ...]) -> None:
        """From now on the process writes under these transactional ids; that is to be committed before it does."""
        self._progress.sign(writer)

    def confirm_rest(self) -> None:
        """The checkpoint of the last settlement is committed."""
        self._progress.confirm()
