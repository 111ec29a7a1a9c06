"""Small transactions one after the other, and what would slow them down: a busy Python thread beside the loop.

How quick they are is for the benches; here are deadlines far beyond that. And what waiting for a broker costs.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tarry.devbroker import EmbeddedBroker
from tarry.kafka.settings import Cluster
from tarry.kafka.transaction import Transactor
from tests.support.brokers import wait_until
from tests.support.chaos import proxied_broker
from tests.support.ignoring import ignore
from tests.support.stage import Stage

TRANSACTIONS = 100
WITHIN_S = 8.0
"""Expected are two seconds at most; ten are what it takes where each one waits for the client's default of 100 ms."""


ACKNOWLEDGED_AFTER_S = 0.5


@contextmanager
def busy_thread() -> Iterator[None]:
    """A thread that never lets go of the interpreter by itself."""
    is_over = threading.Event()

    def spin() -> None:
        while not is_over.is_set():
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_hundred_small_transactions_follow_each_other_without_a_long_pause(stage: Stage) -> None:
    stage.make_topic(stage.target)
    transactor = Transactor(stage.cluster, f"{stage.group}.transactor")
    stage.until_the_end.callback(transactor.close)
    transactor.renew()
    values = [b"%d" % number for number in range(TRANSACTIONS)]
    began = time.monotonic()
    for value in values:
        transactor.begin()
        transactor.produce(stage.target, 0, None, value, None, ignore)
        transactor.commit()
    assert time.monotonic() - began < WITHIN_S
    assert [record.value() for record in stage.committed(stage.target).read_to_the_end()] == values


def test_waiting_for_acknowledgements_costs_no_processor_time(
    start_embedded_broker: Callable[..., EmbeddedBroker], unique_name: Callable[[str], str]
) -> None:
    values = [b"%0256d" % number for number in range(600)]
    with proxied_broker(start_embedded_broker) as (proxy, broker), ExitStack() as until_the_end:
        stage = Stage(broker.bootstrap_servers, unique_name("pace"), 1, until_the_end)
        stage.make_topic(stage.target)
        transactor = Transactor(Cluster(proxy.address), f"{stage.group}.transactor")
        until_the_end.callback(transactor.close)
        transactor.renew()
        transactor.begin()
        transactor.produce(stage.target, 0, None, b"first", None, ignore)
        transactor.commit()
        proxy.delay(ACKNOWLEDGED_AFTER_S / 2)
        transactor.begin()
        for value in values:
            transactor.produce(stage.target, 0, None, value, None, ignore)
        spent_s, began = sum(os.times()[:2]), time.monotonic()
        transactor.deliver(lambda: False)
        waited_s, spent_s = time.monotonic() - began, sum(os.times()[:2]) - spent_s
        proxy.delay(0)
        transactor.commit()
        assert waited_s > ACKNOWLEDGED_AFTER_S
        assert spent_s < waited_s / 4  # several batches one behind the other have the client library spin
        assert [record.value() for record in stage.committed(stage.target).read_to_the_end()] == [b"first", *values]


def test_a_worker_that_serves_runs_no_python_thread_beside_its_loop(stage: Stage) -> None:
    stage.make_intake()
    before = set(threading.enumerate())
    worker = stage.worker()
    worker.until_serving()
    arrived = stage.committed(stage.target)
    stage.send(*[b"%d" % number for number in range(100)])
    worker.until(lambda: len(arrived.poll()) == 100, "all messages")
    # What was started for a take-over ends by itself.
    wait_until(lambda: set(threading.enumerate()) <= before, f"no thread besides {before}")
    worker.until(lambda: set(threading.enumerate()) <= before, "and none while it goes on")
    worker.close()


def test_a_busy_thread_beside_a_worker_costs_time_and_no_message(stage: Stage) -> None:
    stage.make_intake()
    worker = stage.worker()
    worker.until_serving()
    arrived = stage.committed(stage.target)
    numbers = [b"%03d" % number for number in range(300)]
    with busy_thread():
        for at in range(0, 300, 30):
            stage.send(*numbers[at : at + 30])
            worker.worker.turn()
        worker.until(lambda: len(arrived.poll()) >= 300, "all messages", 60.0)
    worker.close()
    assert [record.value() for record in arrived.read_to_the_end()] == numbers
    assert stage.watermarks()[stage.places[0]][0] == 300
