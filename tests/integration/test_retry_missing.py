"""Heads that do not come back: what has become of them is found in an intake's results, and read once."""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tarry.client.group_consumer import GroupClients
from tarry.client.retry.core.journey import Journey
from tarry.client.retry.core.key_queue import Ticket
from tarry.client.retry.core.names import Names
from tarry.client.retry.missing import Head, Missing
from tarry.clock import SystemClock
from tarry.headers import TARGET
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import RESULTS
from tests.support.topics import make_topics

KEY = b"k"
HOUR_MS = 3_600_000


class Place:
    """An intake of one partition with its results, into which the test writes what the service would."""

    def __init__(self, bootstrap: str, name: str) -> None:
        cluster = Cluster(bootstrap)
        self.names = Names(f"{name}.tasks", "group", f"{name}.intake")
        self.now_ms = time.time_ns() // 1_000_000
        self._producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
        self._offset = 0
        admin = AdminClient({"bootstrap.servers": bootstrap})
        make_topics(admin, [self.names.intake, self.names.intake + RESULTS])
        clients = GroupClients(cluster, cluster.member("tests", "classic", None), [], SystemClock(), _refuse)
        self.missing = Missing(clients, self.names, SystemClock(), after_ms=0, longest_ms=0, on_event=_refuse)
        self.served = 0

    def lost(self, number: int, outcome: str, ago_ms: int, target: str | None = None, *, is_told: bool = True) -> Head:
        """A message of the key queue that was sent off, and what became of it so long ago.

        Args:
            number: of it.
            outcome: of it.
            ago_ms: when.
            target: where it was to go; None: back to the consumer.
            is_told: whether the result names the target, as it does not where the intake refuses that.
        """
        ticket, target = Ticket(7, number), target or self.names.retry
        journey = Journey(str(uuid.UUID(int=number)), f"{self.names.topic}/0/7", ticket)
        headers: Any = [(TARGET, target.encode()), *journey.headers()]
        source = f"{self.names.intake}/0/{self._offset}"
        told = target if is_told else None
        reason = "so it was" if is_told else "target-not-allowed"
        result = {"outcome": outcome, "source": source, "target": told, "reason": reason}
        at_ms = self.now_ms - ago_ms
        self._producer.produce(self.names.intake, b"%d" % number, KEY, headers=headers, timestamp=at_ms)
        self._producer.produce(self.names.intake + RESULTS, json.dumps(result), b"id", timestamp=at_ms)
        assert self._producer.flush(30) == 0
        self._offset += 1
        return KEY, ticket

    def tell_of_others(self, *sources: str) -> None:
        """Results of records of an intake of this name that the intake does not hold."""
        for source in sources:
            result = {"outcome": "dead", "source": f"{self.names.intake}/{source}", "target": self.names.retry}
            self._producer.produce(self.names.intake + RESULTS, json.dumps(result), b"id")
        assert self._producer.flush(30) == 0

    def find(self, *heads: Head, ago_ms: int = 1_000) -> list[tuple[bytes | None, str]]:
        """Look for heads that were sent at most this long ago; return those that are found."""
        wanted = dict.fromkeys(heads, self.now_ms - ago_ms)
        return [(record.value, why) for record, why in self.missing.find(wanted, self._serve)]

    def _serve(self) -> None:
        self.served += 1


def _refuse(name: str, **fields: object) -> None:
    raise AssertionError(f"{name}: {fields}")


@pytest.fixture
def place(bootstrap: str, unique_name: Callable[[str], str]) -> Place:
    return Place(bootstrap, unique_name("missing"))


@pytest.mark.parametrize("outcome", ["dead", "cancelled"])
def test_a_message_that_never_comes_is_found_by_each_look(place: Place, outcome: str) -> None:
    head = place.lost(1, outcome, 500)
    fired = place.lost(2, "fired", 500)
    another = place.lost(3, outcome, 500, target="elsewhere")
    found = [(b"1", f"{outcome} so it was")]
    assert place.find(head, fired, another) == found
    assert place.find(head) == found, "whoever asked may not have got it written"


def test_a_message_refused_for_its_target_is_found_although_its_result_names_no_target(place: Place) -> None:
    head = place.lost(1, "dead", 500, is_told=False)
    another = place.lost(2, "dead", 500, target="elsewhere", is_told=False)
    assert place.find(head, another) == [(b"1", "dead target-not-allowed")]


@pytest.mark.parametrize("source", ["7/0", "9999999999/0", "0/1000", "0/9999999999999999999"])
def test_a_result_of_a_record_that_the_intake_does_not_hold_is_passed_over(place: Place, source: str) -> None:
    """For example, the intake was created anew, and its results were kept."""
    place.tell_of_others(source)
    head = place.lost(1, "dead", 500)
    assert place.find(head, ago_ms=HOUR_MS) == [(b"1", "dead so it was")]


def test_a_result_written_after_a_look_is_found_by_the_next_look(place: Place) -> None:
    first, second = (KEY, Ticket(7, 1)), (KEY, Ticket(7, 2))
    assert place.find(first) == []
    assert place.lost(1, "dead", 0) == first
    assert place.find(first) == [(b"1", "dead so it was")]
    assert place.lost(2, "dead", 0) == second
    assert place.find(second) == [(b"2", "dead so it was")]


def test_a_head_that_was_lost_long_before_its_turn_is_found_further_back(place: Place) -> None:
    head = place.lost(1, "dead", 10 * HOUR_MS)
    place.lost(2, "fired", 0)
    looks = 1
    while not (found := place.find(head, ago_ms=HOUR_MS)):
        looks += 1
    assert found == [(b"1", "dead so it was")]
    assert looks == 5, "1, 2, 4, 8, 16 hours"


def test_results_are_read_once_while_heads_are_looked_for(place: Place) -> None:
    head = place.lost(1, "fired", 500)
    assert place.find(head) == []
    served = place.served
    assert served > 0, "the group is polled while results are read"
    for _ in range(2):
        assert place.find(head) == []
    assert place.served == served, "all of it was read by the first look"
    place.missing.forget()
    assert place.find(head) == []
    assert place.served > served
