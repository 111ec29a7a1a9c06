"""Offsets of a transaction that is over, which the group's coordinator keeps as pending: they stop no take-over.

A coordinator that loads a group only in part does not see how a transaction ended (docs/guarantees.md), and a request
that is delayed on its way may come after the end.
"""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tarry.devbroker import EmbeddedBroker
from tarry.errors import RetriableError
from tests.support.raw_requests import register, send_offset
from tests.support.stage import Stage

UNCHECKED = {"transaction.partition.verification.enable": "false"}
"""The broker does not ask whether the transaction of a record is open: so a delayed request is accepted."""


def test_offsets_that_stay_pending_are_removed_by_another_transaction_of_the_same_producer(
    start_embedded_broker: Callable[..., EmbeddedBroker],
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarry.kafka.offsets.REQUEST_TIMEOUT_S", 2.0)
    bootstrap = start_embedded_broker(properties=UNCHECKED).bootstrap_servers
    with ExitStack() as until_the_end:
        stage = Stage(bootstrap, unique_name("s"), 1, until_the_end)
        stage.make_intake()
        [place] = stage.places
        last = stage.process("first")
        last.take_over()
        for name in ("second", "second"):  # another process, and one with the same transactional ids
            last.die()
            firing = last.transactor.transactional_id
            send_offset(bootstrap, firing, register(bootstrap, firing), stage.group, place, 7)
            process = stage.process(name)
            with pytest.raises(RetriableError, match="committed offsets"):
                process.try_to_take_over()
            assert process.events.of("pending_offsets_ended")
            assert process.try_to_take_over()[place].low == 0
            last = process
