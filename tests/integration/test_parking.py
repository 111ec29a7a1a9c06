"""A target that is away delays its own messages only; when it is back all of them arrive, in order."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tarry.devbroker import EmbeddedBroker
from tests.support.brokers import wait_until
from tests.support.checker import digest
from tests.support.processes import Serve, ServeConfig
from tests.support.reader import reading

_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_ROUNDS = 20


def _acl(topic: str, permission: AclPermissionType, operation: AclOperation) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission
    )


def _deny_writing(admin: AdminClient, topic: str) -> None:
    bindings = [
        _acl(topic, AclPermissionType.ALLOW, AclOperation.ALL),
        _acl(topic, AclPermissionType.DENY, AclOperation.WRITE),
    ]
    for future in admin.create_acls(bindings).values():
        future.result(timeout=30)


def _allow_writing(admin: AdminClient, topic: str) -> None:
    denial = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    for future in admin.delete_acls([denial]).values():
        future.result(timeout=30)


def test_a_target_that_is_away_delays_its_own_messages_only(
    start_embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    bootstrap = start_embedded_broker(properties=_AUTHORIZER).bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("away", 2, 1), NewTopic("there", 2, 1)]).values():
        future.result(timeout=30)
    _deny_writing(admin, "away")
    serve = Serve(ServeConfig(bootstrap=bootstrap, intake="intake", partitions=2), tmp_path, "serve")
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def send(target: str, delay_ms: int, value: bytes) -> None:
        headers: list[tuple[str, str | bytes | None]] = [("tarry-target", target), ("tarry-delay-ms", str(delay_ms))]
        producer.produce("intake", value, b"key", headers=headers)
        assert producer.flush(30) == 0

    try:
        serve.start()
        serve.wait_serving()
        with reading(bootstrap, ("away", "there"), tmp_path) as reader:
            for round_ in range(_ROUNDS):
                for target in ("away", "there"):
                    send(target, 200 + 100 * round_, b"%d" % round_)
            reader.wait_until(
                lambda arrived: sum(one.target == "there" for one in arrived) == _ROUNDS, "what goes elsewhere", 30
            )
            wait_until(lambda: bool(serve.events("target_away")), "a target that is away")
            # Once it is known to be away nothing else waits for it.
            sent_ms = time.time_ns() // 1_000_000
            send("there", 500, b"late")
            reader.wait_until(lambda arrived: any(one.value == digest(b"late") for one in arrived), "one more", 10)
            late = next(one for one in reader.arrived if one.value == digest(b"late"))
            assert late.seen_ms - sent_ms < 2_500
            assert not any(one.target == "away" for one in reader.arrived)
            wait_until(lambda: serve.metric("tarry_parked_messages", target="away") == _ROUNDS, "they are counted")
            _allow_writing(admin, "away")
            reader.wait_until(
                lambda arrived: sum(one.target == "away" for one in arrived) == _ROUNDS, "what was parked", 40
            )
            parked = [one for one in reader.finish() if one.target == "away"]
        assert [one.value for one in parked] == [digest(b"%d" % round_) for round_ in range(_ROUNDS)]
        wait_until(lambda: bool(serve.events("target_back")), "the target back")
        wait_until(lambda: "tarry_parked_messages{" not in serve.get("/metrics")[1], "none is counted any more")
        assert serve.stop() == 0
    finally:
        serve.close()
