"""A dead letter that Kafka refuses to take again: it stays, and holds up no other one."""

import uuid

from tarry.client.retry.core.journey import Journey
from tarry.client.retry.core.key_queue import Ticket
from tarry.client.retry.redrive import Redrive
from tests.contracts.steps import Reading
from tests.support.contract import Kafka
from tests.support.ignoring import ignore

SMALL, LARGE = b"small", b"x" * 3_000


def test_a_letter_that_is_refused_stays_and_all_others_are_sent_once(kafka: Kafka, topic: str) -> None:
    target = kafka.make_topic(max_message_bytes=2_000)
    values = [SMALL + b" 1", LARGE, SMALL + b" 2", LARGE, SMALL + b" 3"]
    for value in values:
        kafka.put_raw(topic, [(b"tarry-error", b"unknown-target")], b"k", value)
    warnings: list[str] = []
    redrive = Redrive(kafka.cluster, topic, warnings.append, ignore)
    assert (redrive.run(target, []), redrive.refused) == (3, 2)
    reading = Reading(kafka, {(target, 0): 0})
    assert reading.until_end(target, kafka.settled_end(target)) == [SMALL + b" 1", SMALL + b" 2", SMALL + b" 3"]
    for offset in (1, 3):
        place = f"{topic}/0 at offset {offset} is left out: could not send to {target}: "
        assert len([line for line in warnings if line.startswith(place)]) == 1, warnings
    assert [letter.offset for letter in redrive.look([])] == [1, 3]
    # When the target takes them, another run sends them.
    other = kafka.make_topic()
    again = Redrive(kafka.cluster, topic, warnings.append, ignore)
    assert (again.run(other, []), again.refused) == (2, 0)
    assert Redrive(kafka.cluster, topic, warnings.append, ignore).run(other, []) == 0


def test_a_letter_of_a_partition_that_the_topic_does_not_have_stays_and_all_others_are_sent(
    kafka: Kafka, topic: str
) -> None:
    target = kafka.make_topic()
    for number in range(3):
        journey = Journey(str(uuid.UUID(int=number)), f"{target}/{9 if number == 1 else 0}/0", Ticket(0, 0)).headers()
        headers = [(name.encode(), value) for name, value in journey]
        kafka.put_raw(topic, [*headers, (b"tarry-error", b"final-error")], b"k", b"%d" % number)
    warnings: list[str] = []
    redrive = Redrive(kafka.cluster, topic, warnings.append, ignore)
    assert (redrive.run(target, []), redrive.refused) == (2, 1)
    reading = Reading(kafka, {(target, 0): 0})
    assert reading.until_end(target, kafka.settled_end(target)) == [b"0", b"2"]
    assert f"{topic}/0 at offset 1 is left out: could not send to {target}: " in "".join(warnings)
