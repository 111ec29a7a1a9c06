"""The two tables of a sink, and all statements on them. `docs/readers.md` gives the schema.

A partition's row holds its next offset and its *generation*, a number that identifies the owner. A new owner raises the
generation, in a transaction that locks the row. Each write locks the row too, and compares the generation. So an old
owner writes either before the new owner reads the offset, or not at all.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from tarry.kafka.types import Place

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.sql import Composed

NAME_BYTES = 64
"""PostgreSQL's limit on a name, its terminating zero byte included."""

# The advisory lock for creating the tables; the value distinguishes it from other applications' advisory locks.
_MAKING = 0x7461727279

_MAKE_OFFSETS = """
CREATE TABLE IF NOT EXISTS {offsets} (
  sink text NOT NULL,
  topic text NOT NULL,
  partition integer NOT NULL,
  next_offset bigint NOT NULL,
  generation bigint NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (sink, topic, partition)
)"""
_MAKE_IDS = """
CREATE TABLE IF NOT EXISTS {ids} (
  sink text NOT NULL,
  topic text NOT NULL,
  id uuid NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (sink, topic, id)
)"""
_MAKE_INDEX = "CREATE INDEX ON {ids} (sink, seen_at)"
_KNOWN = "SELECT topic, partition FROM {offsets} WHERE sink = %s"
_TAKE = """
INSERT INTO {offsets} AS mine (sink, topic, partition, next_offset, generation) VALUES (%s, %s, %s, %s, 1)
ON CONFLICT (sink, topic, partition) DO UPDATE SET generation = mine.generation + 1, changed_at = now()
RETURNING next_offset, generation"""
_LOCK = """
SELECT topic, partition, generation FROM {offsets}
WHERE sink = %s AND (topic, partition) IN (SELECT * FROM unnest(%s::text[], %s::integer[]))
ORDER BY topic, partition FOR UPDATE"""
# In the order of the index: two owners that insert the same ids then cannot deadlock.
_ADD = """
INSERT INTO {ids} (sink, topic, id)
SELECT %s, topic, id FROM unnest(%s::text[], %s::uuid[]) AS found (topic, id) ORDER BY topic, id
ON CONFLICT DO NOTHING RETURNING topic, id::text"""
_ADVANCE = """
UPDATE {offsets} AS mine SET next_offset = moved.next_offset, changed_at = now()
FROM unnest(%s::text[], %s::integer[], %s::bigint[]) AS moved (topic, partition, next_offset)
WHERE mine.sink = %s AND mine.topic = moved.topic AND mine.partition = moved.partition"""
_PRUNE = """
DELETE FROM {ids} WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {ids} WHERE sink = %s AND seen_at < now() - %s * interval '1 millisecond'
  ORDER BY seen_at LIMIT %s FOR UPDATE SKIP LOCKED))"""

_END_IDLE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database() AND application_name = %s
  AND state LIKE 'idle in transaction%%'
  AND state_change < clock_timestamp() - %s * interval '1 millisecond'"""


class Held(NamedTuple):
    """The result of a take-over.

    Attributes:
        next_offset: the next offset to read.
        generation: the generation that this process writes with.
    """

    next_offset: int
    generation: int


class Tables:
    """The SQL statements on one sink's rows in both tables. All except `make` run in the caller's transaction.

    Args:
        sink: the sink's name.
        offsets: the table of offsets, `NAME` or `SCHEMA.NAME`.
        ids: the table of ids, `NAME` or `SCHEMA.NAME`.
    """

    def __init__(self, sink: str, offsets: str, ids: str) -> None:
        from psycopg.sql import SQL, Identifier  # noqa: PLC0415 (psycopg is an extra)

        self._sink = sink
        # PostgreSQL truncates names to 63 bytes, so a long name is hashed: two sinks must not have the same one.
        whole = f"tarry-sink {sink}"
        short = f"tarry-sink {sha256(sink.encode()).hexdigest()[:32]}"
        self.session_name = whole if whole.isascii() and len(whole) < NAME_BYTES else short
        """The `application_name` of the sink's sessions."""
        self._names = {"offsets": Identifier(*offsets.split(".")), "ids": Identifier(*ids.split("."))}
        self._sql = SQL
        self._statements: dict[str, Composed] = {}

    def make(self, connection: "Connection[Any]") -> None:
        """Create the missing tables; if both exist, this needs no right to create tables."""
        with connection.transaction(), connection.cursor() as cursor:
            names = [name.as_string(connection) for name in self._names.values()]
            present = "SELECT to_regclass(%s) IS NOT NULL AND to_regclass(%s) IS NOT NULL"
            if cursor.execute(present, names).fetchone() == (True,):
                return
            # If two sessions create a table at the same time, the second one fails in spite of IF NOT EXISTS.
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_MAKING])
            had_ids = cursor.execute("SELECT to_regclass(%s) IS NOT NULL", names[1:]).fetchone() == (True,)
            cursor.execute(self._made(_MAKE_OFFSETS))
            cursor.execute(self._made(_MAKE_IDS))
            if not had_ids:
                cursor.execute(self._made(_MAKE_INDEX))

    def known(self, cursor: "Cursor[Any]") -> set[Place]:
        """Return the partitions that have a stored offset."""
        return {(topic, partition) for topic, partition in cursor.execute(self._made(_KNOWN), [self._sink])}

    def take(self, cursor: "Cursor[Any]", place: Place, begin: int) -> Held:
        """Raise a partition's generation; this waits while a transaction of the old owner is open.

        Args:
            cursor: of an open transaction.
            place: the partition; take several in sorted order.
            begin: the next offset, if none is stored.
        """
        row = cursor.execute(self._made(_TAKE), [self._sink, *place, begin]).fetchone()
        return Held(*row)  # type: ignore[misc]  # RETURNING always gives a row, inserted or updated

    def lock(self, cursor: "Cursor[Any]", places: Sequence[Place]) -> dict[Place, int]:
        """Lock the partitions' rows until the transaction ends, and return their generations."""
        found = cursor.execute(self._made(_LOCK), [self._sink, *map(list, zip(*places, strict=True))])
        return {(topic, partition): generation for topic, partition, generation in found}

    def end_idle(self, cursor: "Cursor[Any]", limit_ms: int) -> None:
        """Terminate this sink's sessions that have been idle in a transaction for longer than `limit_ms`.

        This needs the role of those sessions, or `pg_signal_backend`.
        """
        cursor.execute(_END_IDLE, [self.session_name, limit_ms])

    def add(self, cursor: "Cursor[Any]", ids: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Store pairs of topic and id, and return the pairs that were new."""
        if not ids:
            return set()
        return set(cursor.execute(self._made(_ADD), [self._sink, *map(list, zip(*ids, strict=True))]).fetchall())

    def advance(self, cursor: "Cursor[Any]", positions: Mapping[Place, int]) -> None:
        """Store offsets."""
        topics, partitions = map(list, zip(*positions, strict=True))
        cursor.execute(self._made(_ADVANCE), [topics, partitions, list(positions.values()), self._sink])

    def prune(self, cursor: "Cursor[Any]", keep_ms: int, most: int) -> None:
        """Delete up to `most` of the ids that were seen longer than `keep_ms` ago, the oldest first."""
        cursor.execute(self._made(_PRUNE), [self._sink, keep_ms, most])

    def _made(self, text: str) -> "Composed":
        made = self._statements.get(text)
        if made is None:
            made = self._statements[text] = self._sql(text).format(**self._names)
        return made
