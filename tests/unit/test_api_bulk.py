"""Requests about operations and targets while no broker answers."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tarry.api.access.principal import ANYBODY
from tarry.api.operations.bulk import Bulk
from tarry.api.operations.picked import Picked
from tarry.api.operations.records import Act, Asked
from tarry.api.operations.table import Row
from tarry.api.v1 import targets
from tarry.api.v1.targets import Decision, Stop
from tarry.errors import BrokerError

KNOWN = Row(Asked("known", Act.REDRIVE, "in", "", Picked({0: [1]}), {"orders": 1}), 1)


class Board:
    """What a replica knows; to read more would wait for Kafka."""

    def by_id(self, id_: str) -> Row | None:
        return KNOWN if id_ == KNOWN.asked.id else None

    def by_id_anew(self, _id: str) -> Row | None:
        raise AssertionError("this waits for Kafka")

    def stop(self, *_: object) -> None:
        raise AssertionError("this waits for Kafka")


class Brokers:
    """No broker answers."""

    async def demand(self) -> None:
        raise BrokerError("Kafka does not answer")


def test_without_a_broker_known_operations_are_shown_and_nothing_waits() -> None:
    parts: Any = SimpleNamespace(brokers=Brokers(), clock=SimpleNamespace(now_ms=lambda: 0))
    nothing: Any = None
    board: Any = Board()
    bulk = Bulk(parts, nothing, board)

    async def run() -> None:
        assert (await bulk.operation(ANYBODY, "known")).id == "known"
        with pytest.raises(BrokerError):
            await bulk.operation(ANYBODY, "another")
        with pytest.raises(BrokerError):
            await bulk.stop(ANYBODY, "known", "wrong")

    asyncio.run(run())


def test_without_a_broker_nobody_waits_for_a_decision_about_a_target() -> None:
    parts: Any = SimpleNamespace(brokers=Brokers(), clock=SimpleNamespace(now_ms=lambda: 0))  # no cluster to ask
    intakes: Any = SimpleNamespace(only=lambda: "in")
    nothing: Any = None

    async def run() -> None:
        with pytest.raises(BrokerError):
            await targets.pause(nothing, "orders", Stop(reason="wrong"), ANYBODY, parts, intakes)
        with pytest.raises(BrokerError):
            await targets.resume(nothing, "orders", Decision(reason="right"), ANYBODY, parts, intakes)

    asyncio.run(run())
