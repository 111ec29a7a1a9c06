"""The state that one run of a series leaves to the next: its end offsets, and messages that are not settled yet.

A directory `STATE/000017` holds the state of run 17: four Parquet tables and `state.json`, which is written last. A
directory without this file comes from a killed run and is ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pyspark.sql import DataFrame, SparkSession

from tarry.errors import UsageError
from tarry.kafka.types import Place
from tarry.pipelines.audit.tables import ACCEPTED, ARRIVED, SETTLED, STUBS, columns_of
from tarry.pipelines.files import Files

_FILE: Final = "state.json"
_VERSION: Final = 2
_TABLES: Final = {"accepted": ACCEPTED, "settled": SETTLED, "arrived": ARRIVED, "stubs": STUBS}


@dataclass(frozen=True, slots=True)
class Position:
    """The offsets up to which a series has read.

    Args:
        since: the first offset that the series has read of each intake partition.
        intakes, results, dead, targets: the next offset to read of each partition.
    """

    since: Mapping[Place, int] = field(default_factory=dict)
    intakes: Mapping[Place, int] = field(default_factory=dict)
    results: Mapping[Place, int] = field(default_factory=dict)
    targets: Mapping[Place, int] = field(default_factory=dict)
    dead: Mapping[Place, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`.

        Raises:
            UsageError: another version of tarry wrote it.
        """
        read: dict[str, Any] = json.loads(text)
        if read.pop("version") != _VERSION:
            raise UsageError("the state of the audit was written by another version of tarry: name another --state")
        return cls(
            **{
                name: {(topic, int(partition)): offset for topic, partition, offset in offsets}
                for name, offsets in read.items()
            }
        )

    def to_json(self) -> str:
        """The position as JSON text."""
        named = {"since": self.since, "intakes": self.intakes, "results": self.results, "targets": self.targets}
        named["dead"] = self.dead
        lists = {name: [[*place, offset] for place, offset in offsets.items()] for name, offsets in named.items()}
        return json.dumps({"version": _VERSION, **lists})


@dataclass(frozen=True, slots=True)
class Carried:
    """The state that a run left to the next one; tables as in `tarry.pipelines.audit.tables`."""

    position: Position
    accepted: DataFrame
    settled: DataFrame
    arrived: DataFrame
    stubs: DataFrame


class Series:
    """A series of runs, each of which continues where the one before ended.

    Args:
        spark: the session.
        directory: the directory of the state, any path that Spark supports.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._files = Files(spark)
        self._directory = directory.rstrip("/")
        self._last = max(map(int, self._finished()), default=0)

    def load(self) -> Carried:
        """The state of the last run; an empty state before the first run."""
        if not self._last:
            return Carried(Position(), *[self._spark.createDataFrame([], schema) for schema in _TABLES.values()])
        at = self._at(self._last)
        position = Position.from_json(self._files.read(f"{at}/{_FILE}"))
        return Carried(position, *[self._spark.read.schema(_TABLES[name]).parquet(f"{at}/{name}") for name in _TABLES])

    def save(self, carried: Carried) -> None:
        """Save the state for the next run. The state of the last run stays; older states are removed."""
        number = self._last + 1
        at = self._at(number)
        tables = {"accepted": carried.accepted, "settled": carried.settled, "arrived": carried.arrived}
        tables["stubs"] = carried.stubs
        for name, table in tables.items():
            table.select(*columns_of(_TABLES[name])).coalesce(4).write.mode("overwrite").parquet(f"{at}/{name}")
        self._files.write(f"{at}/{_FILE}", carried.position.to_json())
        for name in self._numbers():
            if int(name) < self._last:
                self._files.remove(self._at(int(name)))
        self._last = number

    def _numbers(self) -> list[str]:
        return [name for name in self._files.names(self._directory) if name.isdecimal()]

    def _finished(self) -> list[str]:
        return [name for name in self._numbers() if _FILE in self._files.names(f"{self._directory}/{name}")]

    def _at(self, number: int) -> str:
        return f"{self._directory}/{number:06}"
