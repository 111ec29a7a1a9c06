"""The plan of a bulk shift or cancel: a table of all changes, written before the first of them is made.

A shift is a cancel of the waiting message and a replacement. The replacement's id is derived from the plan's name and
the place of the old message, so a repeated run of the plan uses the same ids.

The replacement of a named message keeps the name, with `tarry-if: present`. It needs no cancel: it takes the place of
the message that waits under the name, and is skipped if none does.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.naming import Condition
from tarry.errors import UsageError
from tarry.headers import CRON, DELIVER_AT, EVERY, EXPIRES_AT, ID, IF, NAME, NEXT, PARTITION, TAKEN_OFF, TARGET
from tarry.pipelines.columns import has_header, place, text_header, uuid5
from tarry.pipelines.files import Files
from tarry.pipelines.requests import instant_ms

Action = Literal["shift", "cancel"]

COLUMNS: Final = (
    *("plan", "action", "made_ms", "intake", "partition", "offset", "handle", "id", "target", "due_ms"),
    *("new_id", "new_due_ms", "key", "value", "headers", "name"),
)
"""The columns of a plan. The last six describe the replacement, and are null in a plan to cancel.

The name is that of the message; null if it has none.
"""

LEAST_EPOCH_MS: Final = 10**12
"""The service rejects smaller numbers, because they look like seconds."""

SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The summary of a plan.

    Attributes:
        count: the number of messages.
        by_target: the number of messages by target.
        last_new_ms: the latest new due time; None in an empty plan, and in a plan to cancel.
        first: some messages, the earliest first: handle, target, due time, new due time.
    """

    count: int
    by_target: dict[str, int]
    last_new_ms: int | None
    first: list[tuple[str, str, int, int | None]]


def refuse_unsuitable(policy: IntakePolicy, action: Action) -> None:
    """Refuse an intake whose messages cannot be cancelled, or cannot be replaced by messages with tarry's headers.

    Raises:
        UsageError: the action is not possible in this intake.
    """
    if policy.fixed_delay_ms is not None:
        raise UsageError(f"{policy.topic} has a fixed delay: its messages keep their order and cannot be cancelled")
    if policy.dialect is not None and action == "shift":
        raise UsageError(
            f"{policy.topic} has the dialect {policy.dialect}, whose headers `tarry spark shift` does not write: "
            "cancel the messages with `tarry spark cancel`, and send them again with their own producer"
        )


def plan(
    messages: DataFrame, policy: IntakePolicy, action: Action, *, by_ms: int, name: uuid.UUID, made_ms: int
) -> DataFrame:
    """Make a plan, one row for each message. A message that would expire before its new due time is left out.

    Args:
        messages: the selected waiting messages.
        policy: the policy of the intake.
        action: shift or cancel.
        by_ms: how much later; negative: earlier; 0 for a cancel.
        name: the name of the plan; part of the new ids.
        made_ms: the current time.
    """
    handle = f.concat_ws(
        ".", f.lit("1"), "intake", f.col("partition").cast("string"), f.col("due_ms").cast("string"), "id"
    )
    rows = messages.withColumns(
        {"plan": f.lit(str(name)), "action": f.lit(action), "made_ms": f.lit(made_ms), "handle": handle}
    )
    if action == "cancel":
        nothing = {"new_id": "string", "new_due_ms": "long", "key": "binary", "value": "binary", "name": "string"}
        rows = rows.withColumns({column: f.lit(None).cast(kind) for column, kind in nothing.items()})
        return rows.withColumn("headers", f.lit(None).cast(messages.schema["headers"].dataType)).select(*COLUMNS)
    tick_ms = policy.tick_ms
    later = f.greatest(f.col("due_ms") + f.lit(by_ms), f.lit(LEAST_EPOCH_MS))
    taken_off = sorted(TAKEN_OFF - {PARTITION, EXPIRES_AT})
    kept = f.filter(f.coalesce("headers", f.array()), lambda one: ~one["key"].isin(*taken_off))
    given = {
        TARGET: f.col("target"),
        DELIVER_AT: f.col("new_due_ms").cast("string"),
        ID: f.col("new_id"),
    }
    own, naming = _headers(given), _headers({NAME: f.col("name"), IF: f.lit(Condition.PRESENT.value)})
    return (
        rows.where(~(has_header(EVERY) | has_header(CRON) | has_header(NEXT)))
        .withColumn("name", text_header(NAME))
        .withColumn("new_due_ms", later + f.pmod(-later, f.lit(tick_ms)))
        .where(f.coalesce(f.col("new_due_ms") <= instant_ms(text_header(EXPIRES_AT)), f.lit(True)))
        .withColumn("new_id", uuid5(name, place("intake")))
        .withColumn("headers", f.concat(kept, own, f.when(f.col("name").isNotNull(), naming).otherwise(f.array())))
        .select(*COLUMNS)
    )


def _headers(given: Mapping[str, Column]) -> Column:
    return f.array(
        *[f.struct(f.lit(key).alias("key"), text.cast("binary").alias("value")) for key, text in given.items()]
    )


def write(planned: DataFrame, path: str) -> None:
    """Write a plan. Readers see the whole plan or none.

    Raises:
        UsageError: the path exists already.
    """
    # At most one file for each partition of the intake.
    rows = planned.repartition("partition").sortWithinPartitions("partition", "offset")
    try:
        rows.write.mode("errorifexists").parquet(path)
    except AnalysisException as error:
        raise UsageError(f"{path} exists already: a plan is written to a new directory") from error


def refuse_existing(spark: SparkSession, path: str) -> None:
    """Refuse an existing path for a new plan, before any record is read.

    Raises:
        UsageError: the path exists already.
    """
    if Files(spark).exists(path):
        raise UsageError(f"{path} exists already: a plan is written to a new directory")


def read_plan(spark: SparkSession, path: str, action: Action) -> DataFrame:
    """Read a written plan.

    Raises:
        UsageError: there is no complete plan, or it is for another action.
    """
    # Spark writes this file after all other files.
    if not Files(spark).exists(f"{path.rstrip('/')}/_SUCCESS"):
        raise UsageError(f"{path}: there is no plan, or it was not written completely and nothing of it was done")
    try:
        planned = spark.read.parquet(path).select(*COLUMNS)
    except AnalysisException as error:
        raise UsageError(f"{path} is not a plan") from error
    first = planned.head()
    if first is not None and first.action != action:
        raise UsageError(f"{path} is a plan to {first.action}, not to {action}")
    return planned


def summarise_plan(planned: DataFrame) -> PlanSummary:
    """Summarise a plan."""
    by_target = {
        row.target: row["count"]
        for row in planned.groupBy("target").count().orderBy(f.desc("count"), "target").collect()
    }
    last = planned.agg(f.max("new_due_ms").alias("new_due_ms")).head()
    first = planned.orderBy("due_ms", "partition", "offset").limit(SHOWN)
    return PlanSummary(
        sum(by_target.values()),
        by_target,
        None if last is None else last.new_due_ms,
        [(row.handle, row.target, row.due_ms, row.new_due_ms) for row in first.collect()],
    )
