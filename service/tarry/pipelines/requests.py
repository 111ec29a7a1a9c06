"""Read the delivery requests of an intake's records with Spark expressions.

This is a second implementation of the header convention, independent of the service's: an audit that used the service's
reader would repeat its mistakes. This reader is stricter. If it returns a value, the service reads the same value
(`tests/pipelines/test_requests.py`); if it is not sure, it returns null. It does not tell whether a record becomes a
dead letter; results do. An intake's fixed delay and fixed target come from the current configuration. The values at the
time when the service read a record, and whether the record's timestamp was ahead of the clock then, are only in the
results. So is the due time of a record with `tarry-window-ms`: Spark has no BLAKE2b. Of a schedule, neither the id nor
the due time of its occurrence is known here: Spark has no cron rules, and a next record, which has its due time, may be
forged or have come too late, and is dropped without a result then.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tarry.core.request.dialects import DIALECTS
from tarry.core.request.intake_policy import IntakePolicy
from tarry.headers import (
    CANCEL,
    CANCEL_NAME,
    CLOUDEVENTS_ID,
    CRON,
    DELAY_MS,
    DELIVER_AT,
    EVERY,
    ID,
    NAME,
    NEXT,
    PARTITION,
    PURGE,
    REQUEST_HEADERS,
    TARGET,
    WINDOW_MS,
    ZONE,
)
from tarry.pipelines.columns import derived_id, epoch_ms, has_header, header, text_header
from tarry.units import MAX_EPOCH_MS

# \z, because Java's $ also matches before a final line feed.
_DIGITS: Final = r"^[0-9]{1,18}\z"
_UUID: Final = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
# No leap seconds: RFC 3339 allows a second 60, Spark does not.
_INSTANT: Final = r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:[0-5]\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)\z"
_HANDLE: Final = r"^1\.(.+)\.(\d{1,10})\.(\d{1,15})\.([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\z"
_LEAST_EPOCH_MS: Final = 10**12


def requests(records: DataFrame, policy: IntakePolicy) -> DataFrame:
    """Read the requests of one intake's records, one row for each record that is no purge or cancel by name.

    Columns: topic, partition, offset, timestamp_ms, key, value, headers; `is_cancel`; `id`, of the message or of the
    message to cancel, as 36 characters; `due_ms`, the due time of that message, rounded up to the tick; `target`, and
    `target_partition`, the requested partition, or -1; the last two are null for cancels. A value is null if this
    reader is not sure of it.

    Args:
        records: a table of records (`tarry.pipelines.topics`).
        policy: what the intake accepts.
    """
    is_cancel = has_header(CANCEL)
    is_single = ~is_repeated()
    handle = text_header(CANCEL)
    is_handle = f.coalesce(handle.rlike(_HANDLE), f.lit(False))
    cancelled_due = f.when(is_handle, f.regexp_extract(handle, _HANDLE, 3)).cast("long")
    return (
        records.where(is_cancel | ~(has_header(PURGE) | has_header(CANCEL_NAME) | _is_cancel_by_key(policy)))
        .withColumn("timestamp_ms", epoch_ms())
        .withColumn("is_cancel", is_cancel)
        .withColumn("is_plain", ~_repeats())
        .select(
            "topic",
            "partition",
            "offset",
            "timestamp_ms",
            "key",
            "value",
            "headers",
            "is_cancel",
            f.when(
                f.col("is_plain"),
                f.when(~is_cancel & is_single, _id()).when(is_handle, f.lower(f.regexp_extract(handle, _HANDLE, 4))),
            ).alias("id"),
            f.when(
                f.col("is_plain"),
                f.when(~is_cancel & is_single, _due_ms(policy)).when(is_handle, cancelled_due),
            ).alias("due_ms"),
            f.when(f.col("is_plain") & ~is_cancel, _target(policy)).alias("target"),
            f.when(f.col("is_plain") & ~is_cancel, _target_partition(policy)).alias("target_partition"),
        )
    )


def is_named(policy: IntakePolicy) -> Column:
    """Whether a message has a name."""
    by_key = f.lit(policy.same_key is not None) & f.col("key").isNotNull()
    return ~has_header(CANCEL) & (has_header(NAME) | by_key)


def is_repeated() -> Column:
    """Whether a record is one of a schedule: a sender's, or a next one, which the service wrote."""
    return has_header(EVERY) | has_header(CRON) | has_header(ZONE) | has_header(NEXT)


def _is_cancel_by_key(policy: IntakePolicy) -> Column:
    """Whether a record of a dialect cancels what waits under its key."""
    if policy.dialect is None or policy.same_key is None:
        return f.lit(False)
    dialect = DIALECTS[policy.dialect]
    is_null = f.col("value").isNull()
    by_value = is_null if dialect.null_cancels else is_null & ~has_header(dialect.due)
    if dialect.kind is None:
        return by_value
    is_kind = text_header(dialect.kind).isin(*(kind.decode() for kind in dialect.cancels if kind is not None))
    return f.when(has_header(dialect.kind), f.coalesce(is_kind, f.lit(False))).otherwise(by_value)


def _repeats() -> Column:
    """Whether a record has a request header twice."""
    names = f.filter(f.transform("headers", lambda one: one["key"]), lambda name: name.isin(*sorted(REQUEST_HEADERS)))
    return f.coalesce(f.size(names) != f.size(f.array_distinct(names)), f.lit(False))


def _id() -> Column:
    own, event = header(ID), text_header(CLOUDEVENTS_ID)
    digits = f.lower(f.hex(own))
    parts = [f.substring(digits, at, length) for at, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
    given = f.when(text_header(ID).rlike(_UUID), f.lower(text_header(ID))).when(
        f.length(own) == 16, f.concat_ws("-", *parts)
    )
    derived = f.when(event.rlike(_UUID), f.lower(event)).otherwise(derived_id())
    return f.when(has_header(ID), given).otherwise(derived)


def _due_ms(policy: IntakePolicy) -> Column:
    if policy.dialect is not None:
        return f.lit(None).cast("long")
    stamp = f.col("timestamp_ms")
    if policy.fixed_delay_ms is not None:
        due = stamp + f.lit(policy.fixed_delay_ms)
    else:
        delay, at = text_header(DELAY_MS), text_header(DELIVER_AT)
        due = (
            f.when(has_header(DELAY_MS) & has_header(DELIVER_AT), f.lit(None))
            .when(has_header(WINDOW_MS), f.lit(None))
            .when(delay.rlike(_DIGITS), stamp + _number(delay))
            .otherwise(instant_ms(at))
        )
    tick = policy.tick_ms
    rounded = due if tick == 1 else _over(due, tick) * tick
    is_sure = (stamp >= 0) & (due - stamp <= policy.max_delay_ms) & (rounded <= MAX_EPOCH_MS) & (due >= 0)
    if policy.fixed_delay_ms is not None:
        is_sure = stamp >= 0
    return f.when(is_sure, rounded.cast("long"))


def instant_ms(text: Column) -> Column:
    """A time of a request header in milliseconds since the epoch; null if this reader is not sure of it."""
    number = f.when(_number(text) >= _LEAST_EPOCH_MS, _number(text))
    written = f.when(text.rlike(_INSTANT), _over(f.unix_micros(f.try_to_timestamp(f.upper(text))), 1_000))
    return f.coalesce(number, written)


def _over(number: Column, divisor: int) -> Column:
    """The quotient, rounded up; exact for any long."""
    return f.call_function("div", number + f.pmod(-number, f.lit(divisor)), f.lit(divisor))


def _target(policy: IntakePolicy) -> Column:
    if policy.fixed_target is not None:
        return f.lit(policy.fixed_target)
    return text_header(TARGET if policy.dialect is None else DIALECTS[policy.dialect].target)


def _target_partition(policy: IntakePolicy) -> Column:
    name = PARTITION if policy.dialect is None else DIALECTS[policy.dialect].partition
    return f.when(has_header(name), _number(text_header(name)).try_cast("int")).otherwise(f.lit(-1))


def _number(text: Column) -> Column:
    return f.when(text.rlike(_DIGITS), text).cast("long")
