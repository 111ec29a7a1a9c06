"""Convert the rows of a table to delayed messages, and find the faults of each row.

`ask` evaluates the user's expressions. `validate_rows` compares the result with known ids, targets and the current
time. Each adds the first fault that it finds as `code`, an error code of the header convention or a `RowCode`, and
`detail`. Rows are never dropped.
"""

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from tarry.errors import UsageError
from tarry.headers import (
    DELIVER_AT,
    EXPIRES_AT,
    ID,
    IF,
    MAX_NAME_BYTES,
    NAME,
    NAMESPACE,
    REPLACED_HEADERS,
    REQUEST_HEADERS,
    TARGET,
    ErrorCode,
)
from tarry.pipelines.columns import uuid5
from tarry.pipelines.schedule.due_times import due_after, due_at, one_of
from tarry.pipelines.schedule.tables import UNREADABLE
from tarry.pipelines.streaming import reason

_VERDICTS: Final = "array<struct<target: string, code: string, detail: string, max_bytes: long, compacted: boolean>>"
_TOPIC_NAME: Final = r"^[a-zA-Z0-9._-]{1,249}\z"
_LEAST_EPOCH_MS: Final = 10**12
# Texts that SQL reads as a small integer (`5s`) or a floating-point number (`5d`), but that users mean as durations.
_LIKE_A_DURATION: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?[sd]", re.IGNORECASE)
# Spark's default formats have only milliseconds.
_JSON: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: A batch of one record, with the longest record header, as Kafka itself estimates it.
_RECORD_BYTES: Final = 61 + 21 + 15
_HEADER_BYTES: Final = 10


class RowCode(StrEnum):
    """Faults of a row that cannot become a message."""

    UNREADABLE_ROW = "unreadable-row"
    NO_ROW_KEY = "no-row-key"
    REPEATED_ROW_KEY = "repeated-row-key"
    PAST_DUE = "past-due"


@dataclass(frozen=True, slots=True)
class Expressions:
    """Spark SQL expressions that make a message of a row.

    Args:
        row_key: identifies the row; the message's id is derived from it.
        target: the target topic; a quoted text for all rows.
        key: the message's key; None: null.
        value: the message's value; None: all columns as JSON.
        due: the due time. `due`, `delay` or both must be given, and for each row exactly one must not be null.
        delay: the delay after the job's base time.
        headers: names and expressions of headers, in order.
        order_by: the order of messages with the same key and due time; among equals the row key decides.
        name: the message's name, of which at most one message waits for each key; None, or null: it has none.
        only_if: `absent` or `present`: the condition of all messages that have a name; None: they replace.
        expires_at: the latest time of a delivery; None, or null: the message does not expire.
    """

    row_key: str
    target: str
    key: str | None = None
    value: str | None = None
    due: str | None = None
    delay: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    order_by: Sequence[str] = ()
    name: str | None = None
    only_if: str | None = None
    expires_at: str | None = None

    def __post_init__(self) -> None:
        if self.only_if is not None and self.name is None:
            raise UsageError("--if needs --name")
        if self.due is None and self.delay is None:
            raise UsageError("--due or --delay is needed")
        if _LIKE_A_DURATION.fullmatch(delay := (self.delay or "").strip()):
            raise UsageError(
                f"--delay: SQL reads {delay} as a number of milliseconds; put a duration in quotes: \"'{delay}'\""
            )
        for name, _ in self.headers:
            if name in REQUEST_HEADERS | REPLACED_HEADERS:
                raise UsageError(f"-H {name}: this header is set by the other options")

    @property
    def order(self) -> list[str]:
        """The columns by which messages with equal due times are ordered."""
        return [f"order_{number}" for number, _ in enumerate(self.order_by)]


def namespace_of(job: str) -> uuid.UUID:
    """The namespace of a job's message ids: each id is the UUIDv5 of the row key in this namespace."""
    return uuid.uuid5(NAMESPACE, f"job/{job}")


def ask(rows: DataFrame, asked: Expressions, namespace: uuid.UUID, base_ms: int, spread_ms: int = 0) -> DataFrame:
    """Evaluate the user's expressions for the rows of a table.

    Columns: `row` (JSON, or the line that could not be parsed), `row_key` (text), `id`, `key` and `value` (bytes),
    `target`, `due_ms`, `headers`, `name` (bytes), `expires_ms`, the columns of `asked.order`, `code` and `detail`.

    Args:
        rows: the table, with the column `UNREADABLE`.
        asked: the expressions.
        namespace: the namespace of the ids.
        base_ms: the base time, from which delays count.
        spread_ms: due times are delayed by less than this, all messages of one key by the same time.

    Raises:
        UsageError: an expression does not fit the table.
    """
    columns = [f.col(f"`{name.replace('`', '``')}`") for name in rows.columns if name != UNREADABLE]
    everything = f.to_json(f.struct(*columns), {**_JSON, "ignoreNullFields": "false"})
    row_key, kind = _evaluated(rows, "row-key", asked.row_key)
    read = rows.select(
        f.coalesce(f.col(UNREADABLE), everything).alias("row"),
        f.col(UNREADABLE).isNotNull().alias("is_unreadable"),
        _text(row_key, kind).alias("row_key"),
        (f.lit(None).cast("binary") if asked.key is None else _bytes(*_evaluated(rows, "key", asked.key))).alias("key"),
        (everything.cast("binary") if asked.value is None else _bytes(*_evaluated(rows, "value", asked.value))).alias(
            "value"
        ),
        _text(*_evaluated(rows, "target", asked.target)).alias("target"),
        one_of(
            None if asked.due is None else due_at(*_evaluated(rows, "due", asked.due)),
            None if asked.delay is None else due_after(*_evaluated(rows, "delay", asked.delay), base_ms),
        ).alias("due"),
        f.array(
            *[
                f.struct(f.lit(name).alias("key"), _bytes(*_evaluated(rows, f"H {name}", text)).alias("value"))
                for name, text in asked.headers
            ]
        )
        .cast("array<struct<key: string, value: binary>>")
        .alias("headers"),
        (f.lit(None).cast("binary") if asked.name is None else _bytes(*_evaluated(rows, "name", asked.name))).alias(
            "name"
        ),
        (
            f.lit(None).cast("struct<due_ms: long, code: string, detail: string>")
            if asked.expires_at is None
            else due_at(*_evaluated(rows, "expires-at", asked.expires_at), "--expires-at")
        ).alias("expiry"),
        *[
            _evaluated(rows, "order-by", text)[0].alias(name)
            for name, text in zip(asked.order, asked.order_by, strict=True)
        ],
    )
    target = f.col("target")
    due_ms = f.col("due.due_ms") + _spread(spread_ms)
    fault = _first(
        (f.col("is_unreadable"), RowCode.UNREADABLE_ROW, f.lit("the line does not fit the format")),
        (f.col("row_key").isNull(), RowCode.NO_ROW_KEY, f.lit("the row key is null")),
        (f.col("due.code").isNotNull(), f.col("due.code"), f.col("due.detail")),
        (target.isNull(), ErrorCode.NO_TARGET, f.lit("the target is null")),
        (
            ~target.rlike(_TOPIC_NAME) | target.isin(".", ".."),
            ErrorCode.BAD_TARGET,
            f.concat(f.lit("not a legal topic name: "), f.substring(target, 1, 60)),
        ),
        (
            ~f.octet_length("name").between(1, MAX_NAME_BYTES),
            ErrorCode.BAD_NAME,
            f.concat(f.lit("a name of "), f.octet_length("name").cast("string"), f.lit(" bytes")),
        ),
        (
            f.col("name").isNotNull() & f.col("key").isNull(),
            ErrorCode.NULL_KEY,
            f.lit("a name belongs to a key, which must not be null"),
        ),
        (f.col("expiry.code").isNotNull(), f.col("expiry.code"), f.col("expiry.detail")),
        (
            f.col("expiry.due_ms") < due_ms,
            ErrorCode.EXPIRED,
            f.concat(
                f.lit("it expires "), (due_ms - f.col("expiry.due_ms")).cast("string"), f.lit(" ms before it is due")
            ),
        ),
    )
    with_id = read.withColumn("id", uuid5(namespace, f.col("row_key"))).withColumn("fault", fault)
    return with_id.select(
        "row",
        "row_key",
        f.when(~f.col("is_unreadable"), f.col("id")).alias("id"),
        "key",
        "value",
        "target",
        due_ms.alias("due_ms"),
        "headers",
        "name",
        f.col("expiry.due_ms").alias("expires_ms"),
        *asked.order,
        f.col("fault.code").alias("code"),
        f.col("fault.detail").alias("detail"),
    )


def placed_by() -> Column:
    """The value that groups messages: their key, or the id for a message without a key."""
    return f.coalesce(f.col("key"), f.col("id").cast("binary"), f.lit(b""))


@dataclass(frozen=True, slots=True)
class IntakeLimits:
    """The limits of an intake for this run.

    Args:
        now_ms: the current time.
        max_delay_ms: the longest delay of a message.
        max_bytes: the largest record.
        refuse_past: whether rows with a past due time are rejected.
    """

    now_ms: int
    max_delay_ms: int
    max_bytes: int
    refuse_past: bool = False


@dataclass(frozen=True, slots=True)
class TargetVerdict:
    """Properties of a target.

    Args:
        target: the topic's name.
        code: the error code if the topic cannot be a target, or None.
        detail: a readable reason for the code.
        max_bytes: the largest record that the topic accepts; None: not known.
        compacted: whether the topic is compacted, so it accepts no record without a key.
    """

    target: str
    code: str | None = None
    detail: str | None = None
    max_bytes: int | None = None
    compacted: bool = False


def verdict_rows(spark: SparkSession, verdicts: Sequence[TargetVerdict]) -> DataFrame:
    """Verdicts as a table, for `validate_rows`."""
    # As JSON: Spark would start Python workers for Python rows.
    text = f.lit(json.dumps([asdict(verdict) for verdict in verdicts]))
    return (
        spark.range(1)
        .select(f.inline(f.from_json(text, _VERDICTS)))
        .withColumnsRenamed({"code": "target_code", "detail": "target_detail"})
    )


def validate_rows(asked: DataFrame, known: DataFrame, verdicts: DataFrame, limits: IntakeLimits) -> DataFrame:
    """Decide which rows to send: those without a code that are not `is_known`.

    A row whose id is known stays known, even if it has a fault now. If several rows have the same row key, none of them
    is sent.

    Args:
        asked: the result of `ask`.
        known: ids that were sent before, column `id`, each once.
        verdicts: properties of the targets; a missing target is an unknown topic.
        limits: the limits of the intake.

    Returns:
        The columns of `asked` and `is_known`; `row` only where there is a code.
    """
    # Rows without an id are grouped by their content, so that they do not all go to one Spark partition.
    of_id = Window.partitionBy(f.coalesce(f.col("id"), f.concat(f.lit("row "), f.col("row"))))
    joined = (
        asked.join(known.withColumn("was_sent", f.lit(True)), "id", "left")
        .withColumn("rows_of_id", f.count(f.lit(1)).over(of_id))
        .join(f.broadcast(verdicts), "target", "left")
    )
    due_ms, value = f.col("due_ms"), f.col("value")
    size = _size()
    fault = _first(
        (f.col("id").isNull(), f.col("code"), f.col("detail")),
        (
            f.col("rows_of_id") > 1,
            RowCode.REPEATED_ROW_KEY,
            f.concat(f.col("rows_of_id").cast("string"), f.lit(" rows have this key")),
        ),
        (f.col("was_sent"), f.lit(None).cast("string"), f.lit(None).cast("string")),
        (f.col("code").isNotNull(), f.col("code"), f.col("detail")),
        (f.col("target_code").isNotNull(), f.col("target_code"), f.col("target_detail")),
        (f.col("compacted").isNull(), ErrorCode.UNKNOWN_TARGET, f.lit("there is no such topic")),
        (
            f.col("compacted") & f.col("key").isNull(),
            ErrorCode.NULL_KEY,
            f.lit("the target is compacted and accepts no record without a key"),
        ),
        (
            due_ms - limits.now_ms > limits.max_delay_ms,
            ErrorCode.BEYOND_MAX_DELAY,
            f.concat(f.lit("due in "), (due_ms - limits.now_ms).cast("string"), f.lit(" ms")),
        ),
        (
            (size > limits.max_bytes) | (size > f.col("max_bytes")),
            ErrorCode.TOO_LARGE,
            f.concat(f.lit("a value of "), f.coalesce(f.octet_length(value), f.lit(0)).cast("string"), f.lit(" bytes")),
        ),
        (
            f.col("expires_ms") < limits.now_ms,
            ErrorCode.EXPIRED,
            f.concat(f.lit("it expired "), (limits.now_ms - f.col("expires_ms")).cast("string"), f.lit(" ms ago")),
        ),
        (
            f.lit(limits.refuse_past) & (due_ms < limits.now_ms),
            RowCode.PAST_DUE,
            f.lit("the due time has passed"),
        ),
    )
    told = joined.withColumn("fault", fault)
    columns = [name for name in asked.columns if name not in {"row", "code", "detail"}]
    return told.select(
        *columns,
        f.coalesce(f.col("was_sent") & (f.col("rows_of_id") == 1), f.lit(False)).alias("is_known"),
        f.col("fault.code").alias("code"),
        f.col("fault.detail").alias("detail"),
        f.when(f.col("fault.code").isNotNull(), f.col("row")).alias("row"),
    )


def records(messages: DataFrame, intake: str, only_if: str | None = None) -> DataFrame:
    """The records that request the delivery of messages, as input for `Topics.write`.

    Args:
        messages: from `validate_rows`, those without a fault.
        intake: the intake.
        only_if: the condition of the messages that have a name.
    """
    request = [(TARGET, f.col("target")), (ID, f.col("id")), (DELIVER_AT, _instant(f.col("due_ms")))]
    own = f.array(*[f.struct(f.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in request])
    naming = [(NAME, f.col("name"))]
    if only_if is not None:
        naming.append((IF, f.lit(only_if)))
    named = f.array(*[f.struct(f.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in naming])
    none = f.array().cast("array<struct<key: string, value: binary>>")
    expires = f.struct(f.lit(EXPIRES_AT).alias("key"), _instant(f.col("expires_ms")).cast("binary").alias("value"))
    headers = f.concat(
        f.col("headers"),
        own,
        f.when(f.col("name").isNotNull(), named).otherwise(none),
        f.when(f.col("expires_ms").isNotNull(), f.array(expires)).otherwise(none),
    )
    return messages.select(f.lit(intake).alias("topic"), "key", "value", headers.alias("headers"))


def _instant(epoch_ms: Column) -> Column:
    """The text of a time in a request header. A number below 10^12 would look like seconds."""
    long_ago = f.date_format(f.timestamp_millis(epoch_ms), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    return f.when(epoch_ms < _LEAST_EPOCH_MS, long_ago).otherwise(epoch_ms.cast("string"))


def _first(*faults: tuple[Column, str | Column, Column]) -> Column:
    """The first fault whose condition holds: a struct of `code` and `detail`."""
    found: Column | None = None
    for holds, code, detail in faults:
        text = f.lit(str(code)) if isinstance(code, str) else code
        fault = f.struct(text.alias("code"), detail.alias("detail"))
        found = f.when(holds, fault) if found is None else found.when(holds, fault)
    if found is None:
        raise ValueError("no faults")
    return found


def _spread(spread_ms: int) -> Column:
    if not spread_ms:
        return f.lit(0)
    return f.pmod(f.xxhash64(placed_by(), f.lit("spread")), f.lit(spread_ms))


def _size() -> Column:
    """An upper estimate of a record's size in a batch of its own, in bytes."""
    nothing = f.lit(0).cast("long")
    own = f.aggregate(
        "headers",
        nothing,
        lambda total, one: (
            total + _HEADER_BYTES + f.octet_length(one["key"]) + f.coalesce(f.octet_length(one["value"]), f.lit(0))
        ),
    )
    ours = sum(_HEADER_BYTES + len(name) for name in (TARGET, ID, DELIVER_AT, NAME, IF, EXPIRES_AT))
    ours += 36 + 24 + 24 + 7
    parts = [f.coalesce(f.octet_length(f.col(one)).cast("long"), nothing) for one in ("key", "value", "target", "name")]
    return sum(parts, own) + f.lit(_RECORD_BYTES + ours)


def _evaluated(rows: DataFrame, option: str, text: str) -> tuple[Column, DataType]:
    """Parse an expression of an option; return it with its type.

    Raises:
        UsageError: Spark cannot resolve the expression, or a row key is not deterministic.
    """
    try:
        selected = rows.select(f.expr(text).alias("it"))
    except AnalysisException as error:
        said = reason(error)
        hint = " (put a topic's name in quotes: \"'orders'\")" if option == "target" else ""
        raise UsageError(f"-{'' if option.startswith('H ') else '-'}{option}: {said}{hint}") from error
    plan = selected._jdf.queryExecution().analyzed()  # noqa: SLF001 (no other way to ask)
    if option == "row-key" and not plan.deterministic():
        raise UsageError("--row-key: the expression must be deterministic")
    return f.expr(text), selected.schema["it"].dataType


def _text(column: Column, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return f.hex(column)
    return f.to_json(column, _JSON) if isinstance(kind, StructType | ArrayType | MapType) else column.cast("string")


def _bytes(column: Column, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return column
    return (column if isinstance(kind, StringType) else _text(column, kind)).cast("binary")
