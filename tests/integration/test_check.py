"""`tarry check` against brokers: as it should be, of several minds about rights, and away."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tarry.client import DelayedProducer
from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.ports import HOST, free_port
from tests.support.brokers import wait_until
from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry
from tests.support.topics import read_topic

LOST = "the service cannot delete done records and it accepts no schedules (tarry-every, tarry-cron)"
NO_CHECK = "the service cannot check the topic that `tarry api` needs for bulk acts"
SUFFIXES = ("", ".results", ".journal", ".dead", ".parked")
WHEELS = (".wheel-1", ".wheel-2")
"""The levels of an intake with a delay of up to an hour, by default."""


def check(directory: Path, toml: str, **environment: str) -> tuple[int, list[str]]:
    """Run the command; return its exit code and lines. Nothing but its lines may come, on neither stream."""
    path = directory / "checked.toml"
    path.write_text(toml, encoding="utf-8")
    said = tarry("check", "--config", str(path), cwd=directory, environment=environment)
    assert said.err == ""
    return said.code, said.out.splitlines()


def test_a_broker_that_is_away_is_one_failing_line_after_eight_seconds(tmp_path: Path) -> None:
    port = free_port()
    code, lines = check(tmp_path, f'[kafka]\nbootstrap_servers = "{HOST}:{port}"\n')
    assert code == 1
    assert len(lines) == 2
    assert lines[0] == f"ok    configuration: {tmp_path / 'checked.toml'}"
    assert lines[1].startswith(f"FAIL  broker {HOST}:{port}: no answer within 8 s: ")
    assert "refused" in lines[1]


def test_before_the_first_start_all_would_be_made_and_after_it_all_is_as_it_must_be(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    config = ServeConfig(
        bootstrap,
        unique_name("check"),
        partitions=2,
        group=unique_name("group"),
        intake_settings={"max_delay": "1h"},
    )
    code, before = check(tmp_path, config.toml())
    assert code == 0
    assert before[1].startswith(f"ok    broker {bootstrap}: answers (1 broker, cluster ")
    assert before[2] == "ok    broker 1: offset.metadata.max.bytes=4096"
    partitions = dict.fromkeys((*SUFFIXES, *WHEELS), 2)
    assert before[3:10] == [
        f"ok    topic {config.intake}{suffix}: does not exist; `tarry serve` would create it "
        f"({count} partitions, replication 1)"
        for suffix, count in partitions.items()
    ]
    status, control, operations, open_to_all = (
        f"ok    topic {config.intake}.status:",
        f"ok    topic {config.intake}.control:",
        f"ok    topic {config.intake}.operations:",
        "ok    ACLs: the brokers have no authorizer: every user has all rights",
    )
    would_create = "does not exist; `tarry serve` would create it (1 partition, replication 1)"
    beside = status, control, operations
    assert before[10:] == [*(f"{topic} {would_create}" for topic in beside), open_to_all]

    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        assert serve.stop() == 0
    finally:
        serve.close()
    code, after = check(tmp_path, config.toml())
    assert code == 0
    assert after[3:10] == [
        f"ok    topic {config.intake}{suffix}: {count} partitions, as it must be"
        for suffix, count in partitions.items()
    ]
    assert after[:3] == before[:3]
    nobody = f"note  group {config.group}: no process is in it, so nothing is delivered; start `tarry serve`"
    as_it_must_be = "1 partition, as it must be"
    assert after[10:] == [*(f"{topic} {as_it_must_be}" for topic in beside), nobody, open_to_all]


def test_another_shape_of_the_overflow_wheel_fails_while_a_bucket_holds_a_message(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    config = ServeConfig(
        bootstrap,
        unique_name("check"),
        partitions=1,
        group=unique_name("group"),
        intake_settings={"max_delay": "1h"},
    )
    other = replace(config, overflow={"width": "10s"})
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        assert serve.stop() == 0
        code, lines = check(tmp_path, other.toml())
        assert (code, [line for line in lines if "wheel:" in line]) == (0, []), lines

        serve.start().wait_serving()
        with DelayedProducer(bootstrap, config.intake) as producer:
            producer.send("orders", b"v", delay=timedelta(minutes=2))
        wait_until(lambda: len(read_topic(bootstrap, f"{config.intake}.wheel-1")) == 1, "it is filed")
        assert serve.stop() == 0
    finally:
        serve.close()
    code, lines = check(tmp_path, other.toml())
    assert code == 1
    (failed,) = [line for line in lines if line.startswith("FAIL")]
    assert failed == (
        f"FAIL  overflow wheel: {config.intake}/0 has messages in an overflow wheel of another shape (width 20000 ms, "
        "size 16, 2 levels): set [overflow] and max_delay back to it until they have fired"
    )
    code, lines = check(tmp_path, config.toml())
    assert (code, [line for line in lines if "wheel:" in line]) == (0, [])


def test_each_fault_of_a_topic_is_a_line_of_its_own(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name, target = unique_name("check"), unique_name("target")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = [NewTopic(name, 3, 1), NewTopic(f"{name}.journal", 2, 1, config={"cleanup.policy": "compact"})]
    for future in admin.create_topics(made).values():
        future.result(30)
    toml = (
        f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[[intake]]\ntopic = "{name}"\npartitions = 2\n'
        f'replication = 9\ndelay = "5s"\ntarget = "{target}"\n'
    )
    code, lines = check(tmp_path, toml)
    assert code == 1
    failed = [line.removeprefix("FAIL  topic ") for line in lines if line.startswith("FAIL")]
    expected = {
        (
            f"{name}: has 3 partitions, and 2 are configured"
            ": give the intake that number of partitions, or delete the topic if it is empty"
        ),
        f"{name}: has retention.ms=604800000; it must be -1",
        f"{name}: has message.timestamp.type=CreateTime; it must be LogAppendTime",
        f"{name}.results: does not exist, and cannot be created: replication = 9, but the cluster has 1 broker",
        f"{name}.journal: has cleanup.policy=compact; it must be delete",
        f"{name}.journal: has retention.ms=604800000; it must be -1",
        f"{name}.journal: has max.message.bytes=1048588; it must be at least 1114124",
        f"{name}.dead: does not exist, and cannot be created: replication = 9, but the cluster has 1 broker",
        f"{name}.parked: does not exist, and cannot be created: replication = 9, but the cluster has 1 broker",
        f"{target}: does not exist; messages of {name} would go to {name}.dead as unknown-target",
    }
    assert {text.split(" (kafka-configs")[0] for text in failed} == expected


@pytest.mark.exhaustive
def test_a_broker_without_room_for_a_checkpoint_fails(
    start_embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    slow = {"group.consumer.heartbeat.interval.ms": "5000", "group.consumer.session.timeout.ms": "45000"}
    broker = start_embedded_broker(properties={"offset.metadata.max.bytes": "1024", **slow})
    text = f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
    code, lines = check(tmp_path, text)
    assert code == 1
    failed = [line for line in lines if line.startswith("FAIL")]
    assert failed == ["FAIL  broker 1: offset.metadata.max.bytes=1024; it must be 4096 or more"]
    assert [line for line in lines if line.startswith("note")] == []
    _, lines = check(tmp_path, f'{text}[service]\ngroup_protocol = "consumer"\n')
    noted = [line.split(":")[1].strip() for line in lines if line.startswith("note  broker 1: ")]
    assert noted == [f"{name}={value}" for name, value in slow.items()]


@pytest.mark.exhaustive
def test_rights_are_told_one_by_one(start_embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    port = free_port()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    broker = start_embedded_broker(
        properties={
            "listeners": f"SASL_PLAINTEXT://{HOST}:{port}",
            "advertised.listeners": f"SASL_PLAINTEXT://{HOST}:{port}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} required user_service="secret";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    )
    admin: Any = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def allow(kind: ResourceType, name: str, *operations: AclOperation) -> None:
        for operation in operations:
            binding = AclBinding(
                kind, name, ResourcePatternType.LITERAL, "User:service", "*", operation, AclPermissionType.ALLOW
            )
            admin.create_acls([binding])[binding].result(30)

    # The first start makes topics and the topic of offsets, as the superuser of the plain listener.
    settings = {"targets": ["orders"], "max_delay": "2m"}
    config = ServeConfig(broker.bootstrap_servers, "checked", partitions=2, intake_settings=settings)
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        assert serve.stop() == 0
    finally:
        serve.close()
    toml = config.toml().replace(broker.bootstrap_servers, f"{HOST}:{port}")
    login_as = {
        "TARRY_KAFKA__OPTIONS__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "TARRY_KAFKA__OPTIONS__SASL_MECHANISM": "PLAIN",
        "TARRY_KAFKA__OPTIONS__SASL_USERNAME": "service",
        "TARRY_KAFKA__OPTIONS__SASL_PASSWORD": "secret",
    }
    for suffix in (*SUFFIXES, ".wheel-1"):
        allow(ResourceType.TOPIC, f"checked{suffix}", AclOperation.DESCRIBE_CONFIGS)
    allow(ResourceType.TOPIC, "checked", AclOperation.READ)
    allow(ResourceType.TOPIC, "checked.results", AclOperation.WRITE)
    allow(ResourceType.TOPIC, "checked.journal", AclOperation.WRITE, AclOperation.DELETE)
    allow(ResourceType.TOPIC, "checked.dead", AclOperation.DESCRIBE)
    allow(ResourceType.TOPIC, "checked.parked", AclOperation.READ, AclOperation.WRITE)
    allow(ResourceType.TOPIC, "checked.wheel-1", AclOperation.READ, AclOperation.WRITE)
    allow(ResourceType.TOPIC, "checked.status", AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    allow(ResourceType.TOPIC, "checked.control", AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    allow(ResourceType.TOPIC, "checked.operations", AclOperation.DESCRIBE)

    code, lines = check(tmp_path, toml, **login_as)
    assert code == 1
    rights = {line for line in lines if "ACLs of" in line and "transactional ids" not in line}
    assert rights == {
        f"note  ACLs of topic checked: without DELETE, WRITE {LOST}",
        "ok    ACLs of topic checked.results: DESCRIBE_CONFIGS, WRITE",
        "FAIL  ACLs of topic checked.journal: READ needed, but not granted",
        "FAIL  ACLs of topic checked.dead: WRITE needed, but not granted",
        "note  ACLs of topic checked.parked: without DELETE the service cannot delete done records",
        "FAIL  ACLs of topic checked.wheel-1: DELETE needed, but not granted",
        "note  ACLs of topic checked.status: without WRITE clients cannot ask what the intake accepts",
        "note  ACLs of topic checked.control: without READ no target can be paused",
        f"note  ACLs of topic checked.operations: without DESCRIBE_CONFIGS {NO_CHECK}",
        "note  ACLs of topic orders: it does not exist, or is hidden from this user; creating it needs CREATE",
        "FAIL  ACLs of group tarry: READ needed, but not granted",
    }

    allow(ResourceType.TOPIC, "checked", AclOperation.DELETE)
    allow(ResourceType.TOPIC, "checked.journal", AclOperation.READ)
    allow(ResourceType.TOPIC, "checked.dead", AclOperation.WRITE)
    allow(ResourceType.TOPIC, "checked.parked", AclOperation.DELETE)
    allow(ResourceType.TOPIC, "checked.wheel-1", AclOperation.DELETE)
    allow(ResourceType.TOPIC, "checked.status", AclOperation.WRITE)
    allow(ResourceType.TOPIC, "checked.control", AclOperation.READ)
    allow(ResourceType.TOPIC, "checked.operations", AclOperation.DESCRIBE_CONFIGS)
    allow(ResourceType.GROUP, "tarry", AclOperation.READ)
    code, lines = check(tmp_path, toml, **login_as)
    assert code == 0
    assert "ok    ACLs of topic checked.journal: DELETE, DESCRIBE_CONFIGS, READ, WRITE" in lines
    assert "ok    ACLs of topic checked.wheel-1: DELETE, DESCRIBE_CONFIGS, READ, WRITE" in lines
    assert "ok    ACLs of group tarry: READ" in lines

    code, lines = check(tmp_path, toml, **(login_as | {"TARRY_KAFKA__OPTIONS__SASL_PASSWORD": "wrong"}))
    assert code == 1
    assert "Authentication failed" in lines[-1]
    assert "wrong" not in lines[-1]
