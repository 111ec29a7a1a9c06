"""The SQL transactions of a sink, over a connection that is reopened when it is lost."""

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
"""The application's function: writes the rows of messages through a cursor of an open transaction. Its result is
ignored."""

TAKE_WAIT_MS = 200
"""How long a take-over waits for an open transaction of the old owner, before the loop polls the group again."""

PRUNE_LEAST = 100
"""How many old ids a write of new messages may delete, in addition to twice the number of these messages."""

_WAIT_MOST = "SELECT set_config('lock_timeout', %s, true)"

# Without these, the client waits for a vanished server until the kernel gives up its retransmissions: 15 minutes.
_PATIENCE: Mapping[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


class UnavailableError(TarryError):
    """The database is unreachable or has aborted a transaction; a commit may or may not have succeeded. Try again."""


class TakenOverError(TarryError):
    """Another process has taken over a partition of this write; nothing was written."""


class Store:
    """Writes rows, ids and offsets.

    Args:
        conninfo: psycopg's connection string.
        tables: the sink's tables.
        write: the application's function.
        keep_ids_ms: how long ids are kept at least.
        idle_limit_s: how long a transaction may be idle before the server ends it, in seconds.

    Raises:
        ConfigError: psycopg cannot parse `conninfo`.
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
        """Connect, and create the missing tables; do nothing if the connection is open.

        Raises:
            UnavailableError: the server does not answer, or refuses.
        """
        if self._connection is not None and not self._connection.closed:
            return
        with self._translated():
            self._connection = connection = self._psycopg.connect(autocommit=True, **self._conninfo)
            # The row locks depend on it: a session that waited for a lock must read what the other one committed.
            connection.isolation_level = self._psycopg.IsolationLevel.READ_COMMITTED
            # A process that hangs in mid-transaction keeps its connection, and with it all its locks.
            limit = "SELECT set_config('idle_in_transaction_session_timeout', %s, false)"
            connection.execute(limit, [str(self._idle_limit_ms)])
            connection.execute("SELECT set_config('application_name', %s, false)", [self._tables.session_name])
            self._tables.make(connection)

    def close(self) -> None:
        """Close the connection; an open transaction is rolled back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def known(self) -> set[Place]:
        """Return the partitions that have a stored offset.

        Raises:
            UnavailableError: the database is unreachable.
        """
        with self._translated(), self._transaction() as cursor:
            return self._tables.known(cursor)

    def take_over(self, begins: Mapping[Place, int]) -> dict[Place, Held]:
        """Take partitions over; afterwards no earlier owner can write for them.

        Args:
            begins: the partitions, each with the next offset to use if none is stored.

        Returns:
            The partitions that were taken over; at the others a transaction of the old owner is open.

        Raises:
            UnavailableError: the database is unreachable.
        """
        taken: dict[Place, Held] = {}
        with self._translated():
            for place, begin in sorted(begins.items()):
                try:
                    with self._ending_idle_sessions(), self._transaction() as cursor:
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
        2. Store the ids, and leave out messages whose id was known.
        3. Call the application's function to write its rows.
        4. Store the offsets.
        5. If there were new messages, delete expired ids: at most twice as many as there were new messages, plus
           `PRUNE_LEAST`. So the table stays bounded, and no transaction deletes much.

        Args:
            generations: the generation of each partition, from its take-over.
            positions: the next offset of each partition.
            messages: the messages of these partitions.

        Returns:
            The number of messages passed to the application's function.

        Raises:
            TakenOverError: another process has taken over a partition; nothing was written.
            UnavailableError: the database is unreachable; the write may or may not be committed, so take over again.
            Exception: the exception of the application's function; nothing was written.
        """
        with self._translated(), self._ending_idle_sessions(), self._transaction() as cursor:
            cursor.execute(_WAIT_MOST, [str(self._idle_limit_ms)])
            self._compare(generations, self._tables.lock(cursor, sorted(generations)))
            new = self._new(cursor, messages)
            if new:
                self._write(cursor, new)
                if cursor.connection.info.transaction_status != self._psycopg.pq.TransactionStatus.INTRANS:
                    raise TarryError("the write function ended the transaction, or suppressed one of its errors")
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
                    f"generation {found} in the database, {generation} in this one; nothing was written"
                )

    def _new(self, cursor: "Cursor[Any]", messages: Sequence[DeliveredMessage]) -> list[DeliveredMessage]:
        """Return the messages without an id, and for each new id its first message."""
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
    def _ending_idle_sessions(self) -> "Iterator[None]":
        """After a lock time-out: terminate this sink's sessions that are idle in a transaction."""
        try:
            yield
        except self._psycopg.errors.LockNotAvailable:
            # The server's own limit was seen to fail after a pipeline, such as `executemany`.
            with self._transaction() as cursor:
                self._tables.end_idle(cursor, self._idle_limit_ms)
            raise

    @contextmanager
    def _translated(self) -> "Iterator[None]":
        """Raise `UnavailableError` for errors that a retry over a new connection may resolve; let others through."""
        psycopg = self._psycopg
        errors = psycopg.errors
        passing = (psycopg.OperationalError, errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout)
        try:
            yield
        except psycopg.Error as error:
            is_lost = self._connection is None or self._connection.closed
            if is_lost or isinstance(error, passing):
                self.close()
                raise UnavailableError(
                    f"the database is unreachable or aborted the transaction: {_line(error)}"
                ) from error
            raise


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
