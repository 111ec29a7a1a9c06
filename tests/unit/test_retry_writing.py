"""Which refused record of a transaction is named: the one that is the cause, whichever is reported first."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tarry.client.retry.core.message import OutgoingRecord
from tarry.client.retry.writing import deliver

TOO_LARGE, PURGED = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._PURGE_QUEUE
BEHIND = KafkaError._STATE
"""Of a record that is given when the transaction has failed already: it is refused at once, before any report."""


class Reporting:
    """A transactor that reports one record after the other, in an order that the client library chooses by its threads.

    Args:
        codes: the error of each record, None if it was delivered, in the order in which they are reported.
    """

    def __init__(self, codes: Sequence[tuple[str, int | None]]) -> None:
        self._codes = list(codes)
        self._reports: dict[str, Any] = {}

    def produce(self, topic: str, _partition: int, _key: Any, _value: Any, _headers: Any, report: Any) -> None:
        if (topic, BEHIND) in self._codes:
            self._codes.remove((topic, BEHIND))
            raise KafkaException(KafkaError(BEHIND))
        self._reports[topic] = report

    def deliver(self, has_failed: Callable[[], bool]) -> None:
        while self._codes and not has_failed():
            topic, code = self._codes.pop(0)
            self._reports[topic](None if code is None else KafkaError(code), self)

    def topic(self) -> str:
        return ""

    @property
    def left(self) -> int:
        """How many records are not reported, because a failure was known."""
        return len(self._codes)


@pytest.mark.parametrize(
    ("codes", "named", "left"),
    [
        ([("a", PURGED), ("b", TOO_LARGE), ("c", PURGED)], TOO_LARGE, 1),
        ([("a", TOO_LARGE), ("b", PURGED), ("c", PURGED)], TOO_LARGE, 2),
        ([("a", TOO_LARGE), ("b", BEHIND)], TOO_LARGE, 0),
        ([("a", None), ("b", PURGED), ("c", PURGED)], PURGED, 0),
        ([("a", None), ("b", None), ("c", None)], None, 0),
    ],
)
def test_the_record_is_named_that_let_the_others_fail(
    codes: list[tuple[str, int | None]], named: int | None, left: int
) -> None:
    transactor = Reporting(codes)
    records = [OutgoingRecord(topic, 0, None, None, []) for topic, _ in codes]
    refused = deliver(transactor, records)  # type: ignore[arg-type]  # it has what is used
    assert (refused and refused.error.code(), transactor.left) == (named, left)
