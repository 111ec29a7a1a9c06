"""A producer beside the loop whose coordinator goes away with a transaction open: it is built anew all the same."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tarry.clock import SystemClock
from tarry.devbroker import EmbeddedBroker
from tarry.errors import RetriableError
from tarry.kafka.settings import Cluster
from tarry.kafka.transaction import Transactor
from tarry.service.worker.side_producer import SideProducer
from tests.support.brokers import wait_until
from tests.support.chaos import proxied_broker
from tests.support.stage import Stage

GIVEN_UP_WITHIN_S = 60.0
"""An abort and a registration, with the patience that each of them has."""


def is_given_up(side: SideProducer) -> bool:
    """Whether a look says that the brokers cannot be reached."""
    try:
        assert not side.is_ready()
    except RetriableError:
        return True
    return False


@pytest.mark.exhaustive
def test_a_renewal_ends_while_no_byte_comes_through_and_the_next_one_aborts(
    start_embedded_broker: Callable[..., EmbeddedBroker], unique_name: Callable[[str], str]
) -> None:
    with proxied_broker(start_embedded_broker) as (proxy, broker), ExitStack() as until_the_end:
        stage = Stage(broker.bootstrap_servers, unique_name("side"), 1, until_the_end)
        stage.make_topic(stage.target)
        cluster = Cluster(proxy.address)
        transactor = Transactor(cluster, f"{stage.group}.side")
        until_the_end.callback(transactor.close)
        side = SideProducer(transactor, cluster.clients, SystemClock())
        wait_until(side.is_ready, "the first producer")
        side.begin()
        transactor.produce(stage.target, 0, None, b"given up", None, lambda _error, _record: None)
        wait_until(lambda: not transactor.push(), "it is in the log")
        proxy.stall()
        side.renew()
        wait_until(lambda: is_given_up(side), "it is given up", GIVEN_UP_WITHIN_S)
        proxy.resume()
        wait_until(side.is_ready, "the next producer", GIVEN_UP_WITHIN_S)
        side.begin()
        transactor.produce(stage.target, 0, None, b"good", None, lambda _error, _record: None)
        side.commit()
        assert [record.value() for record in stage.committed(stage.target).read_to_the_end()] == [b"good"]
