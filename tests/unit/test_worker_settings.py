"""librdkafka's properties: the operator's options hold, but for what the promises rest on."""

from typing import Literal

import pytest

from tarry.kafka.settings import Cluster

WRONG: dict[str, str | int | float | bool] = {
    "isolation.level": "read_uncommitted",
    "enable.auto.commit": True,
    "auto.offset.reset": "latest",
    "enable.idempotence": False,
    "acks": 1,
    "partitioner": "random",
    "allow.auto.create.topics": True,
    "bootstrap.servers": "elsewhere:1",
}
CLUSTER = Cluster("here:9092", {"security.protocol": "SASL_SSL", "queue.buffering.max.kbytes": 64, **WRONG})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_no_option_makes_the_member_read_what_is_not_committed(protocol: Literal["classic", "consumer"]) -> None:
    member = CLUSTER.member("g", protocol, None)
    assert member["isolation.level"] == "read_committed"
    assert (member["enable.auto.commit"], member["auto.offset.reset"]) == (False, "error")
    assert {"range,roundrobin", "range"} & {
        member.get("partition.assignment.strategy"),
        member.get("group.remote.assignor"),
    }
    assert "group.instance.id" not in member


def test_under_kip_848_the_session_is_the_brokers_business() -> None:
    assert {"session.timeout.ms", "heartbeat.interval.ms"}.isdisjoint(CLUSTER.member("g", "consumer", None))
    assert CLUSTER.member("g", "classic", "a")["session.timeout.ms"] == 6_000
    assert CLUSTER.member("g", "classic", "a")["group.instance.id"] == "a"


def test_no_option_lets_the_reader_skip_or_see_what_is_not_committed() -> None:
    reader = CLUSTER.reader()
    assert (reader["isolation.level"], reader["auto.offset.reset"]) == ("read_committed", "error")
    assert (reader["enable.auto.commit"], reader["enable.partition.eof"]) == (False, True)


def test_no_option_weakens_the_transactions() -> None:
    transactor = CLUSTER.transactor("t")
    assert (transactor["enable.idempotence"], transactor["acks"]) == (True, "all")
    assert transactor["partitioner"] == "murmur2_random"
    assert transactor["allow.auto.create.topics"] is False
    assert transactor["transactional.id"] == "t"


def test_other_options_reach_every_client() -> None:
    for properties in (CLUSTER.client(), CLUSTER.reader(), CLUSTER.transactor("t"), CLUSTER.member("g", "classic", "")):
        assert properties["security.protocol"] == "SASL_SSL"
        assert properties["queue.buffering.max.kbytes"] == 64
        assert properties["bootstrap.servers"] == "here:9092"
