"""The state of one intake partition, from its take-over until it is released or lost.

Pure: records and `now_ms` go in, batches to deliver and checkpoints to commit come out. The worker's loop drives it:

    accept    take in a record of the intake (`arrivals`) or of the log of a level (`level_records`): hold it in the
              wheel, let it wait to be filed (`placing`), make it a dead letter, or skip it because it is done
    collect   let time move: messages that are due become ready, in the order of (due time, offset)
    take      take a batch of ready messages for the next transaction
    settle    return what that transaction must commit with the batch: low watermark, checkpoint, journal record
    confirm   the transaction committed: the batch is done
    put_back  the transaction aborted: the batch is ready again, before the others

Between `take` and `confirm` or `put_back`, no other batch is taken. Batches to file and batches of `parked` messages
have transactions of their own at the same time. If the fate of a transaction is unknown, the worker drops the whole
state and takes the partition over again.

**Gate**: after a take-over nothing fires until the replay has reached the end that the intake had when the take-over
began, and until it is known which targets are paused. Then overdue messages fire in due order, as if there had been no
crash.

Each part has its own module. References between parts go in one direction only, also because full garbage collections
are switched off, so a reference cycle would not be freed. A message goes

    arrivals, level_records -> placing -> hot window -> ready -> a batch, or parked

and `progress` tracks how far the intake, the overflow wheel and the parked log are done.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Literal, cast

from tarry.core.batch import UNBOUNDED, Batch, FiledRun, Filing, Settlement
from tarry.core.message import NEVER_MS, DeadMessage, FiledMessage, HeldCancel, HeldMessage
from tarry.core.partition_progress import Progress
from tarry.core.progress.checkpoint import Obeyed
from tarry.core.progress.index import IndexPart, index_records
from tarry.core.progress.intake import IntakeProgress
from tarry.core.progress.journal import LostEnd, encode_done, encode_index, encode_lost_end, encode_parked
from tarry.core.progress.origin import Origin
from tarry.core.progress.recovered import Recovered
from tarry.core.progress.source import PARKED, Source
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.overflow import OverflowWheel
from tarry.core.window.arrivals import Arrivals
from tarry.core.window.deferred import Deferred
from tarry.core.window.hot_window import HotWindow
from tarry.core.window.letters import LARGE_BYTES, Bundle, Letters
from tarry.core.window.level_records import LevelRecords
from tarry.core.window.memory import Memory
from tarry.core.window.names import Names
from tarry.core.window.parked import Parked
from tarry.core.window.parked_log import ParkedLog
from tarry.core.window.passed_over import PassedOver
from tarry.core.window.placing import Placing
from tarry.core.window.ready import Ready
from tarry.headers import derived_id
from tarry.timer import TimingWheel

MOST_PASSED_OVER = 1 << 24
"""The most offsets from the first message that is passed over to the last; each takes a byte."""

SHARE_AGAIN = 4
"""One part in `SHARE_AGAIN` of the messages of a filing transaction may be such that are filed again."""

_size_bytes = attrgetter("size_bytes")

Only = Literal["moving", "parked"]
"""What is filed if not all may be: messages of buckets, and what is parked; or the latter alone."""

_ToFile = list[tuple[HeldMessage, Source]]


class PartitionState:
    """The state of one intake partition.

    Args:
        intake: the topic.
        partition: its number.
        reader: parses records into requests.
        keeps_order: whether the intake has a fixed delay: then no record is due before a record with a lower offset.
        new_wheel: makes an empty timing wheel that starts at a given time.
        recovered: what the take-over found.
        now_ms: wall time.

    Attributes:
        arrivals: takes in records of the intake.
        level_records: takes in records of the levels' logs.
        placing: holds the messages that wait to be filed.
        passed_over: knows the messages that are read again later, to be filed then.
        overflow: tracks where the records of each bucket of the overflow wheel are, and how far they are done.
        parked: holds the messages that wait for targets that are away.
        letters: holds the dead letters that a transaction of their own writes.
        names: knows which message waits under each name.
        knows_pauses: whether it is known which targets are paused. Until then the gate is closed.
        lost_ends: the logs that have lost their end while the partition is served, by level.
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
        overflow = self.overflow = OverflowWheel(recovered.checkpoint, recovered.buckets)
        names_pointer = recovered.checkpoint.names_pointer
        if names_pointer is None and recovered.names.below:  # an older copy of the checkpoint knew of no names
            names_pointer = recovered.checkpoint.reads_from
        names = self.names = Names(
            (intake, partition),
            recovered.names,
            names_pointer,
            recovered.checkpoint.names_complete_from,
            recovered.buckets.journal_end,
            memory,
        )
        letters = self.letters = Letters(memory, overflow.stay, names)
        ready = self._ready = Ready(letters, names)
        intake_log = self._intake_log = IntakeProgress(recovered, keeps_order=keeps_order)
        passed_over = self.passed_over = PassedOver()
        deferred = Deferred()
        hot = self._hot = HotWindow(
            lambda: min(overflow.gate, passed_over.gate, deferred.gate),
            lambda: intake_log.known_below,
            new_wheel,
            ready,
            memory,
            names,
            width_ms,
            now_ms,
        )
        placing = self.placing = Placing(hot, overflow, width_ms, intake_log.holds_up, names)
        self.arrivals = Arrivals(
            self.place, reader, intake_log, hot, placing, passed_over, ready, memory, names, deferred
        )
        self.level_records = LevelRecords(self.place, overflow, hot, placing, ready, memory, names)
        parked_log = ParkedLog(
            recovered.parked,
            recovered.buckets.spans.get(PARKED, (0, 0)),
            recovered.checkpoint.reads_from,
            recovered.buckets.journal_end,
        )
        self.parked = Parked(memory, self._hot.let_go, parked_log, names)
        self._progress = Progress(recovered.checkpoint, intake_log, overflow, parked_log, names)
        self._tick_ms = reader.policy.tick_ms
        self._no_schedules: tuple[str, str] | None = None
        """Why no schedule goes on: an error code, and a line for people."""
        self._most_occurrences = UNBOUNDED
        self._unfollowed: dict[int, tuple[str, str]] = {}
        """The same for single occurrences, by offset in the intake."""
        geometry = recovered.checkpoint.geometry
        self._far_ms = geometry.width_of(2) if geometry.levels > 1 and not keeps_order else None
        """A message that is due later than this from now may be passed over; None: no message may."""
        self.knows_pauses = True
        self.lost_ends: dict[int, LostEnd] = {}

    def close(self) -> None:
        """Free the messages: the wheel's rings are reference cycles, and full garbage collections are switched off."""
        self._hot.close()

    # -- numbers ----------------------------------------------------------------------------------------------------

    @property
    def place(self) -> tuple[str, int]:
        """The intake and the partition's number."""
        return self.intake, self.partition

    @property
    def position(self) -> int:
        """The next offset of the intake to read."""
        return self._intake_log.position

    @property
    def low(self) -> int:
        """The low watermark."""
        return self._intake_log.low

    @property
    def is_gated(self) -> bool:
        """Whether the gate is closed: the replay of the intake or of level 1 has not ended, or pauses are not known."""
        return self.is_replaying or not self.knows_pauses

    @property
    def is_replaying(self) -> bool:
        """Whether the replay of the intake or of level 1 has not ended: only more reading ends it."""
        return self._intake_log.is_replaying or self.overflow.is_recovering

    @property
    def held(self) -> int:
        """The number of messages that are held, ready ones included."""
        to_file = self.placing.to_file + self.placing.again
        deferred = len(self.arrivals.deferred)
        return len(self._hot) + len(self._ready) + to_file + len(self.parked) + len(self.letters) + deferred

    @property
    def waiting(self) -> int:
        """The number of messages that are held, or in the parked log."""
        return self.held + sum(log.unread for log in self.parked.log)

    @property
    def held_bytes(self) -> int:
        """The approximate memory that the held messages take."""
        return self._memory.held_bytes

    @property
    def memory_bytes(self) -> int:
        """The approximate memory of the partition: messages, known ids, names, offsets passed over, due times."""
        known_bytes = self._hot.known_bytes + self.names.size_bytes
        return self._memory.held_bytes + known_bytes + self._intake_log.order_bytes + self.passed_over.span

    def shed_known(self, limit_bytes: int) -> None:
        """Remember the ids of done messages in at most `limit_bytes`; forget those with the earliest due times."""
        self._hot.shed_known(limit_bytes)

    @property
    def largest_bytes(self) -> int:
        """The size of the largest message so far."""
        return self._memory.largest_bytes

    # -- reading ----------------------------------------------------------------------------------------------------

    def pass_over(self, *, is_behind: bool, now_ms: int) -> bool:
        """Begin or stop to pass over messages that are due far in the future.

        It goes on until all messages that were passed over are read again: those that come meanwhile would keep them
        waiting. It stops if the earliest of them comes close, because no message fires beyond that one.

        Args:
            is_behind: whether too many messages wait to be filed.
            now_ms: wall time.

        Returns:
            Whether messages may be passed over now, so that reading may go on although too many wait.
        """
        passed_over, far_ms = self.passed_over, self._far_ms
        if far_ms is None:
            return False
        may = passed_over.span < MOST_PASSED_OVER and passed_over.first_due_ms >= now_ms + far_ms // 2
        self.arrivals.passes_over_from_ms = now_ms + far_ms if may and (is_behind or passed_over.span) else NEVER_MS
        return may

    # -- firing -----------------------------------------------------------------------------------------------------

    def next_due_ms(self) -> int | None:
        """When `collect` has something to do next: 0 for now; None if it has nothing until more records are read."""
        if self._is_ready:
            return 0
        return None if self.is_gated else self._hot.next_due_ms()

    @property
    def _is_ready(self) -> bool:
        """Whether `take` has something to take; without pauses only what needs no delivery."""
        return bool(self._ready) and (self.knows_pauses or self._ready.has_undelivered)

    def overdue_ms(self, now_ms: int) -> int:
        """Return for how long the oldest message has been due: held in memory and not parked, or in a closed bucket.

        Args:
            now_ms: wall time.
        """
        dues = [now_ms if (first_ms := self._hot.first_due_ms()) is None else first_ms]
        if self.overflow.has_levels:
            dues.append(self.overflow.gate[0])
        return max(0, now_ms - min(dues))

    def collect(self, now_ms: int) -> bool:
        """Make messages that are due ready; while the gate is closed, only records that need no delivery.

        Returns:
            Whether anything is ready. Also true during a replay: records that need no delivery overtake no message,
            and a replay may be full of them.
        """
        if self._intake_log.is_replaying:
            self._intake_log.reach(self._intake_log.position)
        if len(self.arrivals.deferred):
            self.arrivals.resume(now_ms)
        self._hot.decide(now_ms)
        if not self.is_gated:
            self._hot.collect(now_ms)
        return self._is_ready

    def take(self, limit: int, now_ms: int, apart: Container[str] = (), limit_bytes: int = UNBOUNDED) -> Batch:
        """Take a batch of ready messages, in order.

        Args:
            limit: the most messages to take.
            now_ms: wall time; a message that is no longer due because the clock stepped back is not taken.
            apart: targets whose messages are parked instead; so are those of targets that have parked messages.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
        """
        # A state that stood by may have messages that were due before.
        return self._ready.take(limit, limit_bytes, now_ms if self.knows_pauses else -1, apart, self.parked)

    def end_schedules(self, code: str, detail: str) -> None:
        """Let each occurrence of a schedule become a dead letter instead of a delivery: none can be followed.

        Args:
            code: the error code.
            detail: one line for people.
        """
        self._no_schedules = code, detail

    def limit_occurrences(self, most: int) -> None:
        """Set how many occurrences of schedules a batch has at most."""
        self._most_occurrences = self._ready.most_occurrences = self.parked.most_occurrences = most

    def refuse_next(self, batch: Batch, code: str, detail: str) -> None:
        """Note that the intake refuses a next record of a batch: if there is one, its schedule ends.

        If there are several, the next batches have one each.
        """
        if len(batch.followers) == 1:
            self._unfollowed[batch.followers[0][0].sequence] = code, detail
        self._ready.most_occurrences = self.parked.most_occurrences = 1

    def _forget_unfollowed(self, offset: int) -> None:
        """Forget why an occurrence cannot be followed: it is done. Then batches may have several again."""
        if self._unfollowed.pop(offset, None) is not None and not self._unfollowed:
            self.limit_occurrences(self._most_occurrences)

    def end_unfollowed(self, batch: Batch) -> None:
        """Turn occurrences that cannot be followed into dead letters of a batch. Call this before `settle`."""
        if self._no_schedules is not None:
            batch.end_schedules({one.sequence: self._no_schedules for one in batch.occurrences})
        elif self._unfollowed:
            batch.end_schedules(self._unfollowed)

    def follow(self, batch: Batch, now_ms: int) -> None:
        """Find the next records of the schedules whose occurrences a batch delivers. Call this before `settle`.

        Args:
            batch: from `take`, `take_parked` or `take_purged`, when it is known what becomes a dead letter.
            now_ms: wall time.
        """
        batch.followers = []
        if not self.names.count:  # without schedules, a delivery costs nothing more
            return
        for message in batch.occurrences:
            follower = message.follower(now_ms, self._tick_ms) if self.names.waits(message) else None
            if follower is not None:
                batch.followers.append((message, follower))

    def settle(self, batch: Batch) -> Settlement:
        """Mark the batch as done, tentatively, and return what its transaction must commit."""
        return self._progress.settle(batch.offsets(), self.names.settle(batch))

    def confirm(self, batch: Batch) -> None:
        """Note that the batch's transaction committed."""
        self._progress.confirm()
        self.names.confirm(batch)
        self._complete(batch)

    def put_back(self, batch: Batch, apart: Container[str] = ()) -> None:
        """Make the batch ready again, before the others: its transaction aborted.

        Args:
            batch: from `take`.
            apart: targets that are handled apart since then: their messages are parked, so that the metric of parked
                messages counts them.
        """
        self._progress.unmark(batch.offsets())
        batch.reinstate()
        self.parked.park_from(batch, apart)
        self._ready.put_back(batch)

    def split_off_letters(self, batch: Batch, *, every: bool) -> list[DeadMessage]:
        """Move the large dead letters of a batch to `letters`. Call this before `settle`.

        Args:
            batch: from `take`.
            every: whether to move all dead letters, not only the large ones.

        Returns:
            The letters that were moved. They stay out of the batch even if its transaction aborts.
        """
        letters, retired = batch.split_off(lambda dead: every or dead.size_bytes > LARGE_BYTES)
        self._hot.forget(retired)
        for message in retired:
            self._forget_unfollowed(message.sequence)
        were_due = {message.location: message.size_bytes for message in retired}
        for letter in letters:
            if letter.location in were_due:
                self._memory.held_bytes += letter.size_bytes - were_due[letter.location]
        self.names.end_side(letters, committed=False)  # another transaction writes them
        self.letters.put(letters)
        return letters

    # -- side transactions ------------------------------------------------------------------------------------------

    # A side transaction begins only when all decisions on named records are committed. Otherwise a crash could bring a
    # message back that it leaves out, and its results would stand before those of earlier decisions.

    def take_letters(self, limit: int, limit_bytes: int) -> Bundle:
        """Take large dead letters to write; they are in flight until `confirm_letters` or `put_back_letters`."""
        if self.names.has_pending:
            return Bundle()
        letters = self.letters.take(limit, limit_bytes)
        self.names.begin_side(letters)
        return letters

    def journal_of_letters(self, letters: Bundle) -> list[bytes]:
        """Return the journal's records of a transaction of dead letters."""
        return [encode_done(letters.offsets), *self.names.journal_of_side(letters.done)]

    def put_back_letters(self, letters: Bundle, refused: Container[tuple[Source, int]]) -> None:
        """Put letters back to be written again: their transaction aborted (see `Letters.put_back`)."""
        self.names.end_side(letters, committed=False)
        self.letters.put_back(letters, refused)

    def confirm_letters(self, letters: Bundle) -> None:
        """Note that a transaction of dead letters committed; a record that has only a stub is not done."""
        self.names.end_side(letters, committed=False)
        self.names.end_side(letters.done, committed=True)
        self._progress.mark(letters.offsets)
        self._progress.make_final()
        self.letters.written(letters)

    def take_parked(self, topic: str, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED) -> Batch:
        """Take parked messages of a target (see `Parked.take`); they are in flight until the transaction is over."""
        if self.names.has_pending or not self.knows_pauses:
            return Batch()
        batch = self.parked.take(topic, limit, now_ms, limit_bytes)
        self.names.begin_side(batch.named)
        return batch

    def take_purged(self, topic: str, limit: int, limit_bytes: int = UNBOUNDED) -> Batch:
        """Take parked messages that a purge makes dead letters of (see `Parked.take_purged`); they are in flight."""
        if self.names.has_pending:
            return Batch()
        may_be_done = not self.letters.has_left_of_purges(topic)
        batch = self.parked.take_purged(topic, limit, limit_bytes, may_be_done=may_be_done)
        self.names.begin_side(batch.named)
        return batch

    def journal_of_parked(self, batch: Batch) -> list[bytes]:
        """Return the journal's records of a transaction of parked messages."""
        return [encode_done(batch.offsets()), *self.names.journal_of_side(batch.named, batch)]

    def park_again(self, topic: str, batch: Batch) -> None:
        """Park the messages of a batch again: their transaction aborted."""
        self.names.end_side(batch.named, committed=False)
        self.parked.park_again(topic, batch)

    def confirm_parked(self, batch: Batch) -> None:
        """Note that the transaction of a batch of parked messages committed.

        The batch is marked as done only now, because other transactions committed in the meantime.
        """
        self.names.end_side(batch.named, committed=True, batch=batch)
        self.parked.end_try()
        self._progress.mark(batch.offsets())
        self._complete(batch)

    def wants_back(self) -> bool:
        """Whether a record waits for the end of a side transaction that has messages in flight."""
        return self.names.is_wanted_back

    def _complete(self, batch: Batch) -> None:
        """Count a batch as done, finally."""
        if self._unfollowed:
            for message in (*batch.retired, *batch.dropped):
                self._forget_unfollowed(message.sequence)
        self._progress.make_final()
        self._hot.done(batch)
        done_bytes = sum(map(_size_bytes, batch.due)) + sum(map(_size_bytes, batch.retired))
        retired = {message.location for message in batch.retired}
        done_bytes += sum(dead.size_bytes for dead in batch.dead if dead.location not in retired)
        done_bytes += sum(record.size_bytes for resolution in batch.resolutions for record in resolution.records)
        done_bytes += sum(one.record.size_bytes for one in batch.decisions if one.record is not None)
        done_bytes += sum(map(_size_bytes, batch.dropped))
        self._memory.held_bytes -= done_bytes

    # -- filing -----------------------------------------------------------------------------------------------------

    def has_to_file(self, now_ms: int, only: Only | None = None) -> bool:
        """Whether messages wait to be filed now: to a bucket, or to the parked log."""
        to_buckets = (self.placing.moving if only == "moving" else self.placing.to_file) + self.placing.again
        return (to_buckets > 0 and only != "parked") or self.parked.has_to_file(now_ms)

    def take_to_file(self, limit: int, now_ms: int, limit_bytes: int = UNBOUNDED, only: Only | None = None) -> Filing:
        """Take messages to file, with the bucket of each, or its target in the parked log.

        Args:
            limit: the most messages to take.
            now_ms: wall time.
            limit_bytes: the most bytes to take; the first message is taken even if it is larger.
            only: what to take; None: all.
        """
        if only == "parked":
            return Filing(self.parked.take_to_file(limit, now_ms, limit_bytes))
        # What is filed again has a share of each transaction, so that it goes on under any load.
        share = limit // SHARE_AGAIN if self.placing.again else 0
        records = self.placing.take_to_file(limit - share, now_ms, limit_bytes, only_moving=only == "moving")
        if self.placing.again:
            most = share if records else limit
            self._take_more(records, self.placing.take_again, min(most, limit - len(records)), limit_bytes)
        if self.parked.has_to_file(now_ms):
            parked = self.parked
            self._take_more(
                records, lambda room, size: parked.take_to_file(room, now_ms, size), limit - len(records), limit_bytes
            )
        return Filing(records)

    def _take_more(self, records: _ToFile, take: Callable[[int, int], _ToFile], room: int, limit_bytes: int) -> None:
        left_bytes = limit_bytes - sum(message.size_bytes for message, _ in records)
        if room > 0 and (not records or left_bytes > 0):
            records += take(room, left_bytes)

    def journal_of(self, filing: Filing) -> list[bytes]:
        """Return the journal's records of a transaction that files messages; `journal_of_filed` follows."""
        if filing.parked:
            self.parked.log.begin_filing()
        self._progress.begin_filing()
        # Where the records of this transaction are is known only when they are delivered, so a later one tells that.
        filing.telling = self.overflow.news(self.overflow.upkeep.tell_from)
        counts = Counter(source.level for _, source in filing.records if source.level != PARKED)
        filing.reaching = self.overflow.parts_with(counts)
        parts = [*filing.telling, *filing.reaching]
        return [encode_done(filing.offsets), *(encode_index(parts) for parts in index_records(parts))]

    def journal_of_filed(self, filing: Filing) -> list[bytes]:
        """Return the journal's records that need the offsets of what was filed, in the same transaction.

        A log's end that this process was told may have been too low, or others may have written there.
        """
        parked = [run for run in filing.runs if run.source.level == PARKED]
        ends = {run.source.level: run.end for run in sorted(filing.runs, key=lambda run: run.end)}
        further = [
            IndexPart(part.level, ends[part.level], ends[part.level], [])
            for part in filing.reaching
            if ends[part.level] > part.end
        ]
        self.note_ends(filing.runs)
        records = [encode_parked(self.parked.log.entry(parked))] if parked else []
        records += [encode_index([part]) for part in further]
        return records + [encode_lost_end(lost) for lost in self.lost_ends.values()]

    def note_ends(self, runs: Iterable[FiledRun]) -> None:
        """Note which logs have lost their end; also of a transaction that aborts, as its records fill up the log.

        Args:
            runs: where records were written.
        """
        for run in runs:
            level = run.source.level
            end = self.parked.log.end if level == PARKED else self.overflow.end_of(level)
            if run.first < end:
                self.lost_ends.setdefault(level, LostEnd(level, run.first, end))

    def confirm_filed(self, filing: Filing) -> None:
        """Note that the transaction that filed these messages committed."""
        self.overflow.filed(run for run in filing.runs if run.source.level != PARKED)
        self.overflow.told(filing.telling)
        if parked := filing.parked:
            for run in filing.runs:
                if run.source.level == PARKED:
                    self.parked.log.filed(run)
            self.parked.log.end_filing()
            self.parked.filed(parked)
        self._progress.end_filing()
        self._progress.mark(filing.offsets)
        self._progress.make_final()
        self._memory.held_bytes -= filing.size_bytes

    def put_back_filed(self, filing: Filing, refused: Mapping[int, tuple[str, str]]) -> None:
        """Let messages wait to be filed again: the transaction aborted.

        Args:
            filing: what was taken.
            refused: error code and detail, by offset in the intake, of messages that the topic refuses. These
                become dead letters.
        """
        self._progress.end_filing()
        if parked := filing.parked:
            self.parked.log.end_filing()
            self.parked.put_back_filed(parked, refused)
        kept: list[FiledMessage] = []
        again: list[FiledMessage] = []
        for message, source in filing.records:
            if message.source == source:
                again.append(cast("FiledMessage", message))
            elif message.sequence in refused and self.names.is_superseded(message):
                self.names.drop(message)
            elif message.sequence in refused:
                self._hot.forget([message])
                dead = self._dead_of(message, *refused[message.sequence])
                self._memory.held_bytes += dead.size_bytes - message.size_bytes
                self._ready.bury(dead)
            elif source.level != PARKED and isinstance(message, FiledMessage):
                kept.append(message)
        self.placing.put_back_filed(kept, again)
        if any(message.sequence in refused for message in again):
            self.overflow.give_up_refiling()
        if not self.overflow.is_refiling:
            self._memory.held_bytes -= self.placing.forget_again()

    def _dead_of(self, message: HeldMessage, code: str, detail: str) -> DeadMessage:
        dead = DeadMessage.of(message, code, detail)
        if type(message) is not HeldCancel:
            return dead
        # A cancel has the id and the due time of its message; its dead letter must not look like that message's.
        return dead._replace(id=derived_id(*self.place, message.sequence), due_ms=None, target=None)

    # -- the overflow wheel -----------------------------------------------------------------------------------------

    def close_buckets(self, room_bytes: int, now_ms: int) -> bool:
        """Close the buckets whose time has come. No transaction may be filing messages of the partition meanwhile.

        Args:
            room_bytes: free memory.
            now_ms: wall time.

        Returns:
            Whether a bucket was closed. The checkpoint must then be committed before messages are filed by the new
            bounds.
        """
        if self.is_gated:
            return False
        is_closed = self.overflow.close(room_bytes // self._memory.typical_bytes, now_ms)
        if not self.overflow.is_refiling:
            self._memory.held_bytes -= self.placing.forget_again()
        if is_closed:
            self.placing.place_again(now_ms)
        return is_closed

    # -- trimming ---------------------------------------------------------------------------------------------------

    def to_trim(self) -> dict[int, int]:
        """Return the levels whose logs may be trimmed, and below which offset; `PARKED` is the parked log."""
        below, low = self.overflow.to_trim(), self.parked.log.committed_low
        if low > self.parked.log.trimmed:
            below[PARKED] = low
        return below

    @property
    def is_low_uncommitted(self) -> bool:
        """Whether more of a log is done than was committed: it can be trimmed further after a commit."""
        return self.overflow.is_low_uncommitted or self.parked.log.low > self.parked.log.committed_low

    def trimmed(self, level: int, below: int) -> None:
        """Note that a log was trimmed."""
        if level == PARKED:
            self.parked.log.trimmed = max(self.parked.log.trimmed, below)
        else:
            self.overflow.trimmed(level, below)

    # -- the checkpoint ---------------------------------------------------------------------------------------------

    @property
    def origin(self) -> Origin:
        """The cluster and the topics that the offsets of the checkpoint belong to."""
        return self._progress.origin

    @property
    def reads_from(self) -> int:
        """The journal offset from which a recovery reads with the committed checkpoint; nobody needs what is below."""
        return self._progress.reads_from

    def note_journal_end(self, end: int) -> None:
        """Note an end of the journal that was requested earlier; the journal pointers advance with it."""
        self._progress.note_journal_end(end)

    @property
    def behind(self) -> int:
        """How many offsets of the journal a summary would save a recovery, up to the last known end."""
        return self._progress.behind

    def settle_checkpoint(self, *, released: bool = False, sums_up: bool = False) -> Settlement:
        """Return what to commit without a batch: to renew the checkpoint, or to release the partition.

        Args:
            released: whether this commit releases the partition.
            sums_up: whether to write a summary: all offsets done above the watermarks, written again, so that a
                recovery does not need the journal before its last known end. Ignored during a replay. Allowed only
                while no transaction of the partition is open.
        """
        settled = self._progress.settle_checkpoint(released=released, sums_up=sums_up and not self.is_gated)
        if not (released and self.lost_ends):
            return settled
        # No filing has said it, because the partition is given up first.
        return replace(settled, before=(*settled.before, *map(encode_lost_end, self.lost_ends.values())))

    def plain_checkpoint(self, *, released: bool = False) -> tuple[int, str]:
        """Return the low watermark and the checkpoint to commit without any record of the journal.

        Args:
            released: whether this commit releases the partition.
        """
        self.names.nothing_settled()
        return self._progress.plain_checkpoint(released=released)

    def sign(self, writer: tuple[str, ...]) -> None:
        """Put these transactional ids into the checkpoint, which must be committed before they write."""
        self._progress.sign(writer)

    def obey(self, obeyed: Obeyed) -> bool:
        """Put into the checkpoint how far pauses are obeyed. No transaction may deliver to a target that is paused.

        Returns:
            Whether the committed checkpoint does not say so yet, so that one must be committed.
        """
        return self._progress.obey(obeyed)

    @property
    def obeyed(self) -> Obeyed | None:
        """How far the committed checkpoint says that pauses are obeyed."""
        return self._progress.obeyed

    def confirm_checkpoint(self) -> None:
        """Note that the checkpoint of the last settlement is committed."""
        self._progress.confirm()
        self.names.confirm()
