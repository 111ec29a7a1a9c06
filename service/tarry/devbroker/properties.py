"""The configuration of the single node, which is broker and controller.

A single node can hold only one replica, so every internal topic has one. The other properties make the broker fast:
internal topics have few partitions to create and load, groups start without a delay and notice a dead member after 6 s,
and timed-out transactions are aborted within a second.
"""

from collections.abc import Mapping
from pathlib import Path

from tarry.devbroker.ports import HOST

_ADDED_TO = ("listeners", "advertised.listeners", "listener.security.protocol.map")

_FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    # One replica of everything.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Internal topics are created at first use, and loaded partition by partition.
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.num.partitions": "8",
    # Groups of both protocols. With KIP-848 a member learns its new partitions only at its next heartbeat.
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "1000",
    # The open transaction of a dead producer blocks read_committed readers until it is aborted: check every second
    # instead of every ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # After a kill, the controller refuses the restarted broker until the session of the old one has expired.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # The log cleaner allocates this buffer at the start; the default is a quarter of a small heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}

LOG4J = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {file}
appender.file.filePattern = {file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m (%c)%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""
"""Logs warnings and errors to one small file, so that a faulty test or demo does not fill the disk."""


def server_properties(port: int, controller_port: int, log_dir: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the content of `server.properties`.

    Args:
        port: the port of the plaintext listener for clients, on the loopback address.
        controller_port: the port of the controller's listener.
        log_dir: the directory for the topics.
        extra: Kafka properties to set or override. The values of `listeners`, `advertised.listeners` and
            `listener.security.protocol.map` are appended to those of the plaintext listener.
    """
    properties = _FIXED | {
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(log_dir),
    }
    for name, value in extra.items():
        properties[name] = f"{properties[name]},{value}" if name in _ADDED_TO else value
    return properties


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the properties in Java's format, one per line."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    # Java would drop a leading space, and interpret a backslash or a line break.
    value = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    value = f"\\{value}" if value[:1] == " " else value
    return "".join(character if character.isascii() else _java_escape(character) for character in value)


def _java_escape(character: str) -> str:
    r"""Return a character as Java's `\uXXXX`, or two of them for a surrogate pair."""
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
