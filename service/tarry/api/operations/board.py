"""The operations of all intakes, as this replica knows them: it reads them, writes decisions, and executes operations.

One thread reads `I.operations` of each intake, and sees whose turn it is. One thread executes, one operation at a time;
a replica for reading only has no such thread. The replica that was asked begins at once. Another one begins if it hears
nothing of an operation for `SILENT_MS`; the transactional id of the operation's track fences whoever had it. So an
operation has one executor, and goes on after a `kill -9`.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final
from uuid import uuid4

from tarry.api.operations.records import Asked, Content, Single, Stop, key_of, read_record, text_of, value_of
from tarry.api.operations.running import Execution, NotNowError, Surroundings
from tarry.api.operations.table import SILENT_MS, Row, Table, Turns
from tarry.api.parts import Parts
from tarry.errors import BrokerError, FatalError, RetriableError, TarryError, UsageError
from tarry.kafka.offsets import Offsets
from tarry.kafka.reader import Reader
from tarry.kafka.stall import StallWatch
from tarry.kafka.topics import OPERATIONS
from tarry.kafka.types import Place
from tarry.kafka.writing import write_record

READ_S: Final = 0.2
READ_MOST: Final = 1_000
LOOK_AGAIN_S: Final = 5.0
"""After how long it is tried again to read topics that could not be read, or did not exist."""

CATCH_UP_S: Final = 30.0
MOST_UNFINISHED: Final = 20
"""How many operations of an intake may wait or run at the same time."""

ENDS_WITHIN_S: Final = 8.0
"""How long to wait at the end of the process until what is executed is given back; else others notice by themselves."""

MOST_UNWRITTEN: Final = 1_000
"""How many single acts wait to be written at most."""


class Board:
    """The operations, and who did what. Thread-safe.

    Args:
        parts: the configuration and the cluster.
        replica: the name of this process.
    """

    def __init__(self, parts: Parts, replica: str) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._tables = {one.topic: Table(one.topic) for one in parts.settings.intakes}
        self._positions: dict[Place, int] = {}
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._own: set[str] = set()
        """What was asked of this replica, or was interrupted here and goes on here."""
        self._turn: Row | None = None
        """What is executed next, or now."""
        self._turns = Turns()
        self._unwritten = 0
        self._writer = ThreadPoolExecutor(1, "acts")
        self._around = Surroundings(
            parts.cluster,
            parts.settings,
            parts.clock,
            replica,
            parts.on_event,
            self._caught_up,
            self.find,
            self._ending.is_set,
        )
        # Daemons: at the end of the process, Kafka may be away.
        self._threads = [threading.Thread(target=self._follow, name="operations", daemon=True)]
        if not parts.settings.api.is_read_only:
            self._threads.append(threading.Thread(target=self._execute, name="executing", daemon=True))

    def start(self) -> None:
        """Begin to read and to execute."""
        self._parts.on_act = self.note
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Give back what is executed, write what was noted, and end."""
        self._ending.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(ENDS_WITHIN_S)
        self._writer.shutdown()

    # -- looking -------------------------------------------------------------------------------------------------------

    def find(self, intake: str, id_: str) -> Row | None:
        """Return an operation as it is known now."""
        with self._changed:
            table = self._tables.get(intake)  # None: another replica was configured for it
            return None if table is None else table.find(id_)

    def rows(self) -> list[Row]:
        """Return the operations of all intakes that are known now."""
        with self._changed:
            return [row for table in self._tables.values() for row in table.rows()]

    def acts(self) -> list[tuple[str, str, Single]]:
        """Return the intake, the id and the content of all single acts that are known now."""
        with self._changed:
            return [(table.intake, id_, act) for table in self._tables.values() for id_, act in table.acts()]

    def by_id(self, id_: str) -> Row | None:
        """Return an operation of any intake as it is known now."""
        return next((row for intake in self._tables if (row := self.find(intake, id_)) is not None), None)

    def by_id_anew(self, id_: str) -> Row | None:
        """Return an operation after what other replicas have written was read.

        Raises:
            BrokerError: Kafka does not answer.
        """
        for intake in self._tables:
            try:
                row = self._caught_up(intake, id_)
            except UsageError:  # this intake has no such topic
                continue
            if row is not None:
                return row
        return None

    # -- deciding ------------------------------------------------------------------------------------------------------

    def ask(self, asked: Asked) -> Row:
        """Write an operation, which then begins.

        Raises:
            UsageError: the intake has no topic of operations, or this user may not write to it.
            BrokerError: Kafka does not answer: it is not known whether the operation begins.
        """
        # An operation that was asked for before is not asked for again, whichever replica took it.
        row = self._caught_up(asked.intake, asked.id)
        if row is None:
            self._write(asked.intake, asked.id, asked)
            with self._changed:
                self._own.add(asked.id)
            row = self._caught_up(asked.intake, asked.id)
        if row is None:
            raise RetriableError(f"operation {asked.id} was written, and cannot be read")
        return row

    def unfinished(self, intake: str) -> int:
        """Return how many operations of an intake wait or run."""
        with self._changed:
            return self._tables[intake].unfinished

    def stop(self, row: Row, stop: Stop) -> None:
        """Write that an operation shall stop.

        Raises:
            UsageError: as `ask`.
            BrokerError: as `ask`.
        """
        self._write(row.asked.intake, row.asked.id, stop)
        self._caught_up(row.asked.intake, row.asked.id)

    def note(self, intake: str, fields: Mapping[str, str | None]) -> None:
        """Write a single act, later: nothing waits for it. What cannot be written is an event of the log.

        Args:
            intake: in which intake.
            fields: `act`, `who`, `target`, `handle` and `reason`.
        """
        if intake not in self._tables:
            return
        single = Single(
            text_of(fields["act"]),
            text_of(fields["who"]),
            self._clock.now_ms(),
            fields["target"],
            fields["handle"],
            text_of(fields["reason"] or ""),
        )
        with self._changed:
            if self._unwritten >= MOST_UNWRITTEN or self._ending.is_set():
                self._parts.on_event("act_not_recorded", intake=intake, act=single.act, reason="too many wait")
                return
            self._unwritten += 1
        self._writer.submit(self._note, intake, single)

    def _note(self, intake: str, single: Single) -> None:
        try:
            self._write(intake, str(uuid4()), single)
        except TarryError as error:  # the log has the act itself
            self._parts.on_event("act_not_recorded", intake=intake, act=single.act, reason=str(error))
        finally:
            with self._changed:
                self._unwritten -= 1

    def _write(self, intake: str, id_: str, content: Content) -> None:
        log = intake + OPERATIONS, 0
        write_record(
            self._parts.cluster, log, key_of(id_, content), value_of(content), "cannot begin or stop operations"
        )

    def _caught_up(self, intake: str, id_: str) -> Row | None:
        """Wait until all is read that was written up to now; return an operation.

        Raises:
            UsageError: there is no such topic.
            BrokerError: Kafka does not answer.
        """
        log = intake + OPERATIONS, 0
        with closing(self._offsets()) as offsets:
            if not offsets.existing([log]):
                raise UsageError(f"{intake} has no topic {log[0]}: `tarry topics` and `tarry serve` create it")
            end = offsets.ends([log], committed=False)[log]
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_read(log, end), CATCH_UP_S) or self._ending.is_set():
                raise RetriableError(f"{log[0]} could not be read to its end within {CATCH_UP_S:g} s")
            return self._tables[intake].find(id_)

    def _is_read(self, log: Place, end: int) -> bool:
        return self._positions.get(log, -1) >= end or self._ending.is_set()

    # -- following -----------------------------------------------------------------------------------------------------

    def _offsets(self) -> Offsets:
        cluster = self._parts.cluster
        return Offsets(cluster.clients.admin(cluster.admin()), self._parts.settings.service.group, cluster)

    def _follow(self) -> None:
        while not self._ending.is_set():
            try:
                with closing(self._offsets()) as offsets:
                    self._read(offsets)
            except TarryError as error:
                self._parts.on_event("operations_not_read", reason=str(error))
                self._ending.wait(LOOK_AGAIN_S)

    def _read(self, offsets: Offsets) -> None:
        """Read from the beginning, and go on until the process ends.

        Raises:
            BrokerError: Kafka does not answer.
            LogError: the log has lost what comes next.
        """
        wanted = [(intake + OPERATIONS, 0) for intake in self._tables]
        cluster, warn = self._parts.cluster, lambda text: self._parts.on_event("operations_not_read", reason=text)
        with closing(Reader(cluster, warn, watch=StallWatch(offsets, self._clock))) as reader:
            opened: set[Place] = set()
            looked_ms = None
            while not self._ending.is_set():
                now_ms = self._clock.monotonic_ms()
                if len(opened) < len(wanted) and (looked_ms is None or now_ms - looked_ms > LOOK_AGAIN_S * 1_000):
                    looked_ms = now_ms
                    new = [log for log in offsets.existing(wanted) if log not in opened]
                    if new:
                        self._open(reader, offsets.starts(new))
                        opened.update(new)
                if not opened:
                    self._ending.wait(READ_S)
                    continue
                records, reached = reader.read_first(READ_MOST, READ_S)
                with self._changed:
                    for record in records:
                        log = record.topic() or "", record.partition() or 0
                        self._take(log, record.key(), record.value())
                        self._positions[log] = (record.offset() or 0) + 1
                    self._positions |= {log: max(at, self._positions.get(log, 0)) for log, at in reached.items()}
                    self._choose()
                    self._changed.notify_all()

    def _open(self, reader: Reader, starts: dict[Place, int]) -> None:
        with self._changed:
            for log, start in starts.items():
                intake = log[0].removesuffix(OPERATIONS)
                self._tables[intake] = Table(intake)
                self._positions[log] = start
        reader.open(starts)

    def _take(self, log: Place, key: bytes | None, value: bytes | None) -> None:
        try:
            found = read_record(key, value)
        except ValueError as error:
            self._parts.on_event("operation_unreadable", topic=log[0], reason=str(error))
            return
        if found is not None:
            self._tables[log[0].removesuffix(OPERATIONS)].take(*found, self._clock.monotonic_ms())

    def _choose(self) -> None:
        """Choose what to execute next, if nothing is executed."""
        if self._turn is not None:
            return
        now_ms = self._clock.monotonic_ms()
        self._turn = self._turns.next(
            row
            for row in self._next()
            if row.asked.id in self._own or row.is_released or now_ms - row.heard_ms > SILENT_MS
        )

    def _next(self) -> Iterator[Row]:
        for table in self._tables.values():
            for of_letters in (True, False):
                if (row := table.next_of(of_letters=of_letters)) is not None:
                    yield row

    # -- executing -----------------------------------------------------------------------------------------------------

    def _execute(self) -> None:
        while not self._ending.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._turn is not None or self._ending.is_set())
                row = self._turn
            if row is None or self._ending.is_set():
                return
            goes_on_here = self._run(row.asked)
            with self._changed:
                self._turn = None
                (self._own.add if goes_on_here else self._own.discard)(row.asked.id)
                row.heard_ms = self._clock.monotonic_ms()
                if (known := self._tables[row.asked.intake].find(row.asked.id)) is not None:
                    known.heard_ms = row.heard_ms

    def _run(self, asked: Asked) -> bool:
        """Execute an operation; return whether it goes on here."""
        on_event: Callable[..., None] = self._parts.on_event
        try:
            Execution(self._around, asked).run()
        except NotNowError:
            return False
        except FatalError as error:  # another replica has it now, or a command; or the producer is lost
            on_event("operation_lost", id=asked.id, intake=asked.intake, reason=str(error))
            return False
        except BrokerError as error:
            on_event("operation_interrupted", id=asked.id, intake=asked.intake, reason=str(error))
            self._ending.wait(1.0)
            return True
        except UsageError as error:
            on_event("operation_interrupted", id=asked.id, intake=asked.intake, reason=str(error))
            self._ending.wait(LOOK_AGAIN_S)
            return True
        except Exception:  # noqa: BLE001 - the program is wrong: the log says how, and other operations go on
            on_event("operation_broken", id=asked.id, intake=asked.intake, exc_info=True)
        return False
