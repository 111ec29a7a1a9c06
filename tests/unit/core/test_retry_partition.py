"""One partition of a consumer that tries again: what goes out, with which headers."""

import asyncio
import json
from dataclasses import replace
from typing import Final

import pytest

from tarry.client.retry.core.journey import (
    MOST_OF_AN_ERROR,
    RETRY_ATTEMPTS,
    RETRY_FIRST_ERROR,
    RETRY_HOP,
    RETRY_ID,
    RETRY_LAST_ERROR,
    RETRY_REDRIVEN,
    RETRY_SOURCE,
    RETRY_TICKET,
    Headers,
    described,
)
from tarry.client.retry.core.key_queue import KeyQueues, Ticket, Trouble, decode_trouble, encode
from tarry.client.retry.core.message import Incoming, OutgoingRecord, RetryMessage
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.partition import FOREIGN, RetryPartition
from tarry.client.retry.core.policy import OnError, RetryPolicy
from tarry.headers import (
    DELIVER_AT,
    DUE_MS,
    ERROR,
    ERROR_DETAIL,
    ID,
    PARTITION,
    REPLACED_HEADERS,
    REQUEST_HEADERS,
    SOURCE,
    TARGET,
    derived_id,
)

NOW_MS = 1_700_000_000_000
NAMES = Names("orders", "billing", "delays")
POLICY = RetryPolicy(first_ms=1_000, jitter=0, attempts=3, on_error={KeyError: OnError.STOP, TypeError: OnError.DEAD})
OWN: Final = ("trace", b"\x00\xff")


class Consumer:
    """Partition 2 of the topic; what it sends off comes back by hand."""

    def __init__(self, *, keeps_order: bool = True) -> None:
        key_queues = KeyQueues(POLICY.least_ms)
        positions = {NAMES.topic: 0, NAMES.retry: 0}
        self.partition = RetryPartition(NAMES, 2, POLICY, key_queues, positions, keeps_order=keeps_order)

    def read(self, offset: int, key: bytes | None = b"k", *headers: tuple[str, bytes]) -> RetryMessage | None:
        record = Incoming(NAMES.topic, offset, NOW_MS, key, b"v%d" % offset, [OWN, *headers])
        return self.partition.look(record, NOW_MS)

    def back(self, offset: int, sent: OutgoingRecord) -> RetryMessage | None:
        return self.partition.look(self.returned(offset, sent), NOW_MS)

    def returned(self, offset: int, sent: OutgoingRecord) -> Incoming:
        """Return the retry-topic record that the service delivers for an intake record."""
        gone = {TARGET, PARTITION, DELIVER_AT}
        headers = [one for one in sent.headers if one[0] not in gone]
        headers += [(DUE_MS, dict(sent.headers)[DELIVER_AT]), (SOURCE, b"delays/0/7")]
        return Incoming(NAMES.retry, offset, NOW_MS, sent.key, sent.value, headers)

    def fail(self, message: RetryMessage | None, error: BaseException | None = None) -> None:
        assert message is not None
        self.partition.failed(message, error or ValueError("no\nwonder"), NOW_MS, 0.0)

    def succeed(self, message: RetryMessage | None) -> None:
        assert message is not None
        self.partition.succeeded(message, [])

    def out(self, topic: str) -> list[OutgoingRecord]:
        return [record for record in self.partition.outgoing() if record.topic == topic]


def value_of(headers: Headers, name: str) -> bytes | None:
    [value] = [value for found, value in headers if found == name]
    return value


def test_a_message_that_failed_goes_to_the_intake_and_comes_back_as_it_was() -> None:
    consumer = Consumer()
    first = consumer.read(17)
    assert first is not None
    consumer.fail(first)
    [sent] = consumer.out("delays")
    assert sent[1:4] == (-1, b"k", b"v17")
    assert sent.headers[0] == OWN
    wanted = {
        TARGET: b"orders.billing.retry",
        PARTITION: b"2",
        DELIVER_AT: b"%d" % (NOW_MS + 1_000),
        RETRY_ID: derived_id("orders", 2, 17),
        RETRY_SOURCE: b"orders/2/17",
        RETRY_TICKET: b"17/1",
        RETRY_ATTEMPTS: b"1",
        RETRY_FIRST_ERROR: b"ValueError: no wonder",
    }
    assert {name: value_of(sent.headers, name) for name in wanted} == wanted
    assert value_of(sent.headers, ID) != derived_id("orders", 2, 17), "the service knows each hop by an id of its own"
    again = consumer.back(0, sent)
    assert again is not None
    assert again[:3] == first[:3]
    assert (again.key, again.value, again.headers, again.id) == (first.key, first.value, first.headers, first.id)
    assert (first.attempt, again.attempt) == (1, 2)


def test_later_messages_of_a_key_join_its_queue_and_are_handled_in_turn() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17))
    assert consumer.read(18) is None
    head, follower = consumer.out("delays")
    assert value_of(follower.headers, DELIVER_AT) == value_of(head.headers, DELIVER_AT)
    assert consumer.back(0, follower) is None, "it came before its turn"
    assert len(consumer.out("delays")) == 3
    consumer.succeed(consumer.back(1, head))
    message = consumer.back(2, consumer.out("delays")[2])
    assert message is not None
    assert (message.offset, message.attempt) == (18, 1)
    consumer.succeed(message)
    assert consumer.out(NAMES.state) == [], "it was healthy before, and is"
    assert consumer.read(19) is not None


def test_other_keys_and_messages_without_one_do_not_wait() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17))
    assert consumer.read(18, b"other") is not None
    consumer.fail(consumer.read(19, None))
    assert consumer.read(20, None) is not None
    sent = consumer.out("delays")[1]
    assert value_of(sent.headers, RETRY_TICKET) == b"19/0"
    assert consumer.back(0, sent) is not None


def test_without_order_nothing_waits_and_no_state_is_kept() -> None:
    consumer = Consumer(keeps_order=False)
    consumer.fail(consumer.read(17))
    assert consumer.read(18) is not None
    assert consumer.out(NAMES.state) == []
    consumer.succeed(consumer.back(0, consumer.out("delays")[0]))


def test_out_of_attempts_it_is_a_dead_letter_with_its_history() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17), OSError("first"))
    for at in range(2):
        consumer.fail(consumer.back(at, consumer.out("delays")[-1]), OSError("last"))
    [dead] = consumer.out(NAMES.dead)
    assert (dead.partition, dead.key, dead.value, dead.headers[0]) == (2, b"k", b"v17", OWN)
    wanted = {
        ID: derived_id("orders", 2, 17),
        ERROR: b"out-of-attempts",
        RETRY_ATTEMPTS: b"3",
        RETRY_HOP: b"2",
        RETRY_FIRST_ERROR: b"OSError: first",
        RETRY_LAST_ERROR: b"OSError: last",
        RETRY_SOURCE: b"orders/2/17",
    }
    assert {name: value_of(dead.headers, name) for name in wanted} == wanted
    assert consumer.read(18) is not None


def test_a_final_error_needs_no_second_attempt() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17), TypeError())
    assert [value_of(dead.headers, ERROR) for dead in consumer.out(NAMES.dead)] == [b"final-error"]
    assert consumer.out("delays") == []


def test_a_key_that_stops_takes_all_that_follows_until_it_is_sent_again() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17), KeyError("k"))
    assert consumer.read(18) is None
    dead = consumer.out(NAMES.dead)
    assert [value_of(one.headers, ERROR) for one in dead] == [b"final-error", b"key-stopped"]
    assert [value_of(one.headers, RETRY_TICKET) for one in dead] == [b"17/1", b"17/2"]
    assert consumer.read(19, b"k", (RETRY_REDRIVEN, b"orders.billing.dead/3")) is None, "out of an earlier episode"
    assert consumer.read(21, b"k", (RETRY_REDRIVEN, b"orders.other.dead/17")) is None, "for another group"
    assert consumer.read(22, b"k", (RETRY_REDRIVEN, b"orders.billing.dead/17")) is not None


def test_a_message_in_flight_when_its_key_stops_is_a_dead_letter_too() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17))
    assert consumer.read(18) is None
    head, follower = consumer.out("delays")
    consumer.fail(consumer.back(0, head), KeyError("k"))
    assert consumer.back(1, follower) is None
    assert [value_of(one.headers, RETRY_TICKET) for one in consumer.out(NAMES.dead)] == [b"17/1", b"17/2"]


def test_a_foreign_record_in_the_retry_topic_is_a_dead_letter() -> None:
    consumer = Consumer()
    strange = Incoming(NAMES.retry, 0, NOW_MS, b"k", b"v", [("tarry-retry-ticket", b"x"), OWN])
    assert consumer.partition.look(strange, NOW_MS) is None
    [dead] = consumer.out(NAMES.dead)
    assert dead.headers[:2] == strange.headers
    assert value_of(dead.headers, ERROR) == FOREIGN.encode()


def test_an_offset_counts_as_soon_as_its_message_is_settled_and_not_before() -> None:
    consumer = Consumer()
    message = consumer.read(17)
    assert consumer.partition.positions[NAMES.topic] == 0
    assert not consumer.partition.is_dirty
    consumer.succeed(message)
    assert consumer.partition.positions == {NAMES.topic: 18, NAMES.retry: 0}
    assert consumer.read(17) is None, "it was settled"
    assert consumer.partition.is_dirty


def test_the_state_of_a_key_survives() -> None:
    trouble = Trouble(17, 2, 5, NOW_MS, NOW_MS - 1, stopped=True)
    assert decode_trouble(encode(trouble)) == trouble
    assert decode_trouble(encode(trouble)[:-1] + b',"of_a_later_version":1}') == trouble
    assert decode_trouble(b'{"v":1,"episode":17,"head":2,"tail":5,"due_ms":9,"head_due_ms":8}').since_ms == 0


def test_the_state_of_a_key_has_another_version_only_if_an_older_one_would_read_it_wrongly() -> None:
    trouble = Trouble(17, 1, 4, NOW_MS, NOW_MS)
    known_before = (
        b'{"v":1,"episode":17,"head":1,"tail":4,"due_ms":9,"head_due_ms":8,"stopped":false,"attempts":0,"since_ms":0}'
    )
    assert encode(Trouble(17, 1, 4, 9, 8)) == known_before
    early = replace(trouble, early=(2, 3))
    assert json.loads(encode(early))["v"] == 2
    assert decode_trouble(encode(early)) == early


def test_the_state_of_a_key_counts_the_attempts_of_its_head_since_the_first_failure() -> None:
    queues = KeyQueues(100)
    first = queues.again(b"k", 17, None, NOW_MS + 1_000, NOW_MS).ticket
    queues.read(b"k", NOW_MS + 1)
    queues.again(b"k", 17, first, NOW_MS + 3_000, NOW_MS + 1_000)
    found = queues.of(b"k")
    assert found is not None
    assert (found.attempts, found.since_ms) == (2, NOW_MS)
    queues.done(b"k", first)
    found = queues.of(b"k")
    assert found is not None
    assert (found.head, found.attempts, found.since_ms) == (2, 0, NOW_MS), "the next message has not failed"
    queues.stop(b"k", 18, Ticket(17, 2), NOW_MS + 9_000)
    found = queues.of(b"k")
    assert found is not None
    assert (found.attempts, found.since_ms, found.stopped) == (1, NOW_MS, True)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"v":3}',
        b'{"v":2}',
        b'{"v":2,"episode":1,"head":1,"tail":1,"due_ms":1,"head_due_ms":1,"early":1}',
        b'{"v":1,"episode":1}',
        b'{"v":1,"no":1}',
    ],
)
def test_a_malformed_state_of_a_key_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_trouble(value)


def test_a_key_queue_longer_than_allowed_is_reported() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17))
    assert consumer.read(18) is None
    following = Incoming(NAMES.topic, 19, NOW_MS, b"k", b"", [])
    assert consumer.partition.is_full(following, 2)
    assert not consumer.partition.is_full(following, 3)
    assert not consumer.partition.is_full(following._replace(key=b"other"), 2)
    expected = Trouble(17, 1, 2, NOW_MS + 1_000, NOW_MS + 1_000, attempts=1, since_ms=NOW_MS)
    assert consumer.partition.key_queues.of(b"k") == expected
    assert Ticket(17, 2) == (17, 2)


def test_a_head_is_overdue_though_those_behind_it_come_and_go() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17))
    assert consumer.read(18) is None
    head, follower = consumer.out("delays")
    later_ms = NOW_MS + 5_000
    for at in range(3):
        record = Incoming(NAMES.retry, at, later_ms, follower.key, follower.value, follower.headers)
        assert consumer.partition.look(record, later_ms) is None
    overdue = consumer.partition.heads_overdue(later_ms)
    assert overdue == {(b"k", Ticket(17, 1)): NOW_MS + 1_000}
    assert consumer.partition.heads_overdue(NOW_MS + 1_000) == {}
    lost = Incoming("delays", 7, NOW_MS, head.key, head.value, head.headers)
    consumer.partition.never_comes(lost, "cancelled")
    [dead] = consumer.out(NAMES.dead)
    assert (dead.value, value_of(dead.headers, ERROR)) == (b"v17", b"never-came-back")
    record = Incoming(NAMES.retry, 3, later_ms, follower.key, follower.value, follower.headers)
    assert consumer.partition.look(record, later_ms) is not None, "it is the next one's turn"
    consumer.partition.never_comes(lost, "cancelled")
    assert len(consumer.out(NAMES.dead)) == 1, "it is no head any more"


def test_a_message_in_flight_when_a_stopped_key_continues_is_a_dead_letter_and_not_lost() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17))
    assert consumer.read(18) is None
    head, follower = consumer.out("delays")
    consumer.fail(consumer.back(0, head), KeyError("k"))
    consumer.succeed(consumer.read(19, b"k", (RETRY_REDRIVEN, b"orders.billing.dead/17")))
    assert consumer.back(1, follower) is None
    assert [one.value for one in consumer.out(NAMES.dead)] == [b"v17", b"v18"]


def test_messages_that_share_an_id_are_told_apart_on_their_way() -> None:
    consumer = Consumer()
    same = ("tarry-id", b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21")
    consumer.fail(consumer.read(17, b"k", same))
    assert consumer.read(18, b"k", same) is None
    ids = [value_of(sent.headers, ID) for sent in consumer.out("delays")]
    assert len(set(ids)) == 2
    assert [value_of(sent.headers, RETRY_ID) for sent in consumer.out("delays")] == [same[1], same[1]]


def test_a_message_sent_to_the_intake_without_order_joins_the_key_queue_when_order_is_kept() -> None:
    before = Consumer(keeps_order=False)
    before.fail(before.read(17))
    [alone] = before.out("delays")
    consumer = Consumer()
    consumer.fail(consumer.read(18))
    assert consumer.back(0, alone) is None
    assert value_of(consumer.out("delays")[-1].headers, RETRY_TICKET) == b"18/2"


def test_a_key_queue_ends_when_the_consumer_no_longer_keeps_the_order() -> None:
    before = Consumer()
    before.fail(before.read(17))
    assert before.read(18) is None
    head, follower = before.out("delays")
    after = Consumer(keeps_order=False)
    after.fail(after.back(0, head))
    after.succeed(after.back(1, follower))
    assert after.out(NAMES.state) == []


def test_an_error_whose_text_cannot_be_encoded_is_still_recorded() -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise ValueError

    consumer = Consumer()
    consumer.fail(consumer.read(17), ValueError("\ud800"))
    consumer.fail(consumer.read(18, b"other"), Mute())
    errors = [value_of(sent.headers, RETRY_LAST_ERROR) for sent in consumer.out("delays")]
    assert errors[0] == b"ValueError: \\ud800"
    assert (errors[1] or b"").endswith(b"Mute: (no text: ValueError)")


@pytest.mark.parametrize("text", ["a" * 10_000, "\ud800" * 10_000, "a \n" * 10_000])
def test_the_text_of_an_error_is_one_line_of_bounded_length(text: str) -> None:
    line = described(ValueError(text))
    assert len(line) == MOST_OF_AN_ERROR
    assert line.isprintable()


@pytest.mark.parametrize("own", [ValueError, RecursionError, SystemExit, asyncio.CancelledError])
def test_an_error_whose_own_methods_raise_is_described_all_the_same(own: type[BaseException]) -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise own

        __repr__ = __str__

    assert described(Mute()).endswith(f"Mute: (no text: {own.__qualname__})")


def test_a_message_that_cannot_be_sent_to_the_intake_is_a_dead_letter_whatever_the_policy_says() -> None:
    consumer = Consumer()
    record = Incoming(NAMES.topic, 17, NOW_MS, b"k", b"v", [OWN])
    consumer.partition.refused(record, ValueError("too large"), NOW_MS)
    consumer.fail(consumer.read(18))
    consumer.partition.refused(record._replace(offset=19), ValueError("too large"), NOW_MS)
    assert [value_of(one.headers, ERROR) for one in consumer.out(NAMES.dead)] == [b"unsendable", b"unsendable"]
    assert consumer.partition.key_queues.length(b"k") == 1, "it has taken no number"


def test_a_message_that_came_back_early_and_cannot_be_sent_again_is_a_dead_letter_and_its_number_is_passed_over() -> (
    None
):
    consumer = Consumer()
    consumer.fail(consumer.read(17))
    assert [consumer.read(offset) for offset in (18, 19)] == [None, None]
    head, early, last = consumer.out("delays")
    consumer.partition.refused(consumer.returned(0, early), ValueError("too large"), NOW_MS)
    assert len(consumer.out("delays")) == 3, "it is not sent again"
    [dead] = consumer.out(NAMES.dead)
    wanted = {ERROR: b"unsendable", ERROR_DETAIL: b"too large", RETRY_TICKET: b"17/2", RETRY_SOURCE: b"orders/2/18"}
    assert (dead.key, dead.value, dead.headers[0]) == (b"k", b"v18", OWN)
    assert {name: value_of(dead.headers, name) for name in wanted} == wanted
    assert consumer.partition.key_queues.length(b"k") == 2
    consumer.succeed(consumer.back(1, head))
    message = consumer.back(2, last)
    assert message is not None
    assert message.offset == 19
    consumer.succeed(message)
    assert consumer.partition.key_queues.of(b"k") is None


def test_the_last_number_of_a_key_queue_that_is_given_up_early_is_free_again() -> None:
    consumer = Consumer()
    consumer.fail(consumer.read(17))
    assert [consumer.read(offset) for offset in (18, 19)] == [None, None]
    before = consumer.partition.key_queues.of(b"k")
    head, *others = consumer.out("delays")
    for at, other in enumerate(others):
        consumer.partition.refused(consumer.returned(at, other), ValueError("too large"), NOW_MS)
    after = consumer.partition.key_queues.of(b"k")
    assert before is not None
    assert after is not None
    assert (before.tail, after.tail, after.early) == (3, 1, ())
    consumer.succeed(consumer.back(2, head))
    assert consumer.partition.key_queues.of(b"k") is None


def test_a_message_sent_without_order_that_cannot_join_a_key_queue_takes_no_number() -> None:
    before = Consumer(keeps_order=False)
    before.fail(before.read(17))
    [alone] = before.out("delays")
    consumer = Consumer()
    consumer.fail(consumer.read(18))
    consumer.partition.refused(consumer.returned(0, alone), ValueError("too large"), NOW_MS)
    assert [value_of(one.headers, ERROR) for one in consumer.out(NAMES.dead)] == [b"unsendable"]
    assert consumer.partition.key_queues.length(b"k") == 1
    assert consumer.partition.positions[NAMES.retry] == 1


def test_a_key_that_stops_forgets_what_was_given_up_early() -> None:
    queues = KeyQueues(100, {b"k": Trouble(17, 1, 3, NOW_MS, NOW_MS, early=(2,))})
    queues.stop(b"k", 17, Ticket(17, 1), NOW_MS)
    found = queues.of(b"k")
    assert found is not None
    assert (found.stopped, found.early) == (True, ())


def test_markers_behind_the_last_record_are_behind_us() -> None:
    consumer = Consumer()
    consumer.partition.reach(NAMES.retry, 7)
    assert consumer.partition.is_dirty
    assert consumer.partition.positions[NAMES.retry] == 7


def test_request_headers_of_another_producer_do_not_decide_what_the_intake_does() -> None:
    consumer = Consumer()
    others = sorted(REQUEST_HEADERS | REPLACED_HEADERS)
    message = consumer.read(0, b"k", *[(name, b"orders.billing.retry") for name in others])
    consumer.fail(message)
    (sent,) = consumer.out("delays")
    assert {"tarry-every", "tarry-cron", "tarry-zone", "tarry-next", "tarry-schedule", "tarry-occurrence"} < set(others)
    assert {name for name, _ in sent.headers} & set(others) == {TARGET, PARTITION, DELIVER_AT, ID}
    assert dict(sent.headers)[DELIVER_AT] == b"%d" % (NOW_MS + 1_000)
    assert sent.headers[0] == OWN
