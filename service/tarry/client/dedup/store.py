"""The transactions of a sink, over a connection that is made anew when it is lost."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tarry.client.dedup.delivered import DeliveredMessage
from tarry.client.dedup.tables import Held, Tables
from tarry.errors import ConfigError, TarryError
from tarry.kafka.types import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection, Cursor

Write = Callable[["Cursor[Any]", Sequence[DeliveredMessage]], object]
"""The application's: writes the rows of messages by a cursor whose transaction is open; its result is not looked at."""

TAKE_WAIT_MS = 200
"""How long a take-over waits for the open transaction of an old owner, before the group is served again."""

PRUNE_LEAST = 100

_WAIT_MOST = "SELECT set_config('lock_timeout', %s, true)"

# Without these a server that vanished is waited for as long as the kernel sends again: a quarter of an hour.
_PATIENCE: Mapping[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


class AwayError(TarryError):
    """The database is away, or has given a transaction up: what was asked goes through later, or has gone through."""


class TakenOverError(TarryError):
    """Another process has taken over a partition that this one wanted to write for; nothing was written."""


class Store:
    """Writes rows, ids and offsets.

    Args:
        conninfo: of psycopg.
        tables: the sink's.
        write: the application's.
        keep_ids_ms: how long ids are kept, at least.
        idle_limit_s: how long an open transaction may do nothing before the server ends it.

    Raises:
        ConfigError: psycopg is not installed, or does not understand `conninfo`.
    """

    def __init__(self, conninfo: str, tables: Tables, write: Write, keep_ids_ms: int, idle_limit_s: float) -> None:
        import psycopg  # noqa: PLC0415 (an extra)

        self._psycopg = psycopg
        try:
            self._conninfo: dict[str, Any] = {**_PATIENCE, **psycopg.conninfo.conninfo_to_dict(conninfo)}
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"conninfo: {_line(error)}") from error
        self._tables = tables
        self._write = write
        self._keep_ids_ms = keep_ids_ms
        self._idle_limit_ms = int(idle_limit_s * 1_000)
        self._connection: Connection[Any] | None = None

    def open(self) -> None:
        """Connect, and make the tables where they are missing; nothing where it is connected.

        Raises:
            AwayError: the server does not answer, or refuses.
        """
        if self._connection is not None and not self._connection.closed:
            return
        with self._passing():
            self._connection = connection = self._psycopg.connect(autocommit=True, **self._conninfo)
            # What the row locks promise rests on it: a waiter reads what the other has committed.
            connection.isolation_level = self._psycopg.IsolationLevel.READ_COMMITTED
            # A process that is stopped in mid-transaction keeps its connection, and with it all its locks.
            limit = "SELECT set_config('idle_in_transaction_session_timeout', %s, false)"
            connection.execute(limit, [str(self._idle_limit_ms)])
            connection.execute("SELECT set_config('application_name', %s, false)", [self._tables.session_name])
            self._tables.make(connection)

    def close(self) -> None:
        """Disconnect; an open transaction is rolled back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def known(self) -> set[Place]:
        """The partitions that have an offset.

        Raises:
            AwayError: the database is away.
        """
        with self._passing(), self._transaction() as cursor:
            return self._tables.known(cursor)

    def take_over(self, begins: Mapping[Place, int]) -> dict[Place, Held]:
        """Take partitions over: from here on no earlier owner can write for them.

        Args:
            begins: the partitions, with their next offsets where they have none.

        Returns:
            Those taken; an old owner's transaction is open at the others.

        Raises:
            AwayError: the database is away.
        """
        taken: dict[Place, Held] = {}
        with self._passing():
            for place, begin in sorted(begins.items()):
                try:
                    with self._ending_who_is_in_the_way(), self._transaction() as cursor:
                        cursor.execute(_WAIT_MOST, [str(TAKE_WAIT_MS)])
                        taken[place] = self._tables.take(cursor, place, begin)
                except self._psycopg.errors.LockNotAvailable:
                    continue
        return taken

    def write(
        self,
        generations: Mapping[Place, int],
        positions: Mapping[Place, int],
        messages: Sequence[DeliveredMessage],
    ) -> int:
        """Write messages and offsets in one transaction.

        1. Lock the partitions' rows, and compare their generations.
        2. Remember the ids; those that were known leave their messages out.
        3. Have the application write its rows.
        4. Store the offsets.
        5. Forget twice as many ids as were added, where so many are too old: the table is bounded, and no transaction
           has much to delete.

        Args:
            generations: of each partition, as taken over.
            positions: the next offset of each.
            messages: of these partitions.

        Returns:
            How many messages were written.

        Raises:
            TakenOverError: a partition was taken over by another process.
            AwayError: the database is away; it may have been written or not: take over anew.
            Exception: what the application's function raised; nothing is written.
        """
        with self._passing(), self._ending_who_is_in_the_way(), self._transaction() as cursor:
            cursor.execute(_WAIT_MOST, [str(self._idle_limit_ms)])
            self._compare(generations, self._tables.lock(cursor, sorted(generations)))
            new = self._new(cursor, messages)
            if new:
                self._write(cursor, new)
                if cursor.connection.info.transaction_status != self._psycopg.pq.TransactionStatus.INTRANS:
                    raise TarryError("the function that writes ended the transaction, or hid an error of it")
            self._tables.advance(cursor, positions)
            if new:
                self._tables.prune(cursor, self._keep_ids_ms, 2 * len(new) + PRUNE_LEAST)
        return len(new)

    def _compare(self, ours: Mapping[Place, int], stored: Mapping[Place, int]) -> None:
        for (topic, partition), generation in ours.items():
            found = stored.get((topic, partition))
            if found != generation:
                raise TakenOverError(
                    f"{topic}/{partition} was taken over by another process: "
                    f"its generation is {found}, and {generation} here"
                )

    def _new(self, cursor: "Cursor[Any]", messages: Sequence[DeliveredMessage]) -> list[DeliveredMessage]:
        """Those whose ids were not known, of equal ones the first; and those without an id."""
        unknown = self._tables.add(cursor, sorted({(one.topic, one.id) for one in messages if one.id is not None}))
        new = []
        for one in messages:
            if one.id is None:
                new.append(one)
            elif (one.topic, one.id) in unknown:
                unknown.remove((one.topic, one.id))
                new.append(one)
        return new

    @contextmanager
    def _transaction(self) -> "Iterator[Cursor[Any]]":
        connection = self._connection
        assert connection is not None, "open comes first"  # noqa: S101
        with connection.transaction(), connection.cursor() as cursor:
            yield cursor

    @contextmanager
    def _ending_who_is_in_the_way(self) -> "Iterator[None]":
        """Where a lock was waited for in vain: end sessions of this sink that hold one and do nothing."""
        try:
            yield
        except self._psycopg.errors.LockNotAvailable:
            # The server's own limit was seen to be missed behind a pipeline, as `executemany` is one.
            with self._transaction() as cursor:
                self._tables.end_idle(cursor, self._idle_limit_ms)
            raise

    @contextmanager
    def _passing(self) -> "Iterator[None]":
        """Raise what another try, over another connection, may get over as `AwayError`, and anything else as it is."""
        psycopg = self._psycopg
        errors = psycopg.errors
        passing = (psycopg.OperationalError, errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout)
        try:
            yield
        except psycopg.Error as error:
            is_lost = self._connection is None or self._connection.closed
            if is_lost or isinstance(error, passing):
                self.close()
                raise AwayError(f"the database gave up: {_line(error)}") from error
            raise


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
