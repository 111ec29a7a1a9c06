"""The configuration of the one node, which is broker and controller in one.

One node can hold one replica, so every internal topic has one. The rest makes it quick: few partitions to
create and load, groups that begin at once and notice a dead member in 6 s, and timed-out transactions
aborted within a second.
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
    # Groups, of both protocols. The heartbeat is also how long a member takes to hear of its new partitions.
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "1000",
    # A dead producer's transaction holds readers back until aborted: look every second, not every ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # After a kill the controller takes the old broker for alive, and refuses a new one, for so long.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # The log cleaner takes its buffer from the heap at the start: a quarter of a small heap, by default.
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
"""Warnings and errors to one small file; what a test or a demo does wrong should not fill a disk."""


def server_properties(port: int, controller_port: int, log_dir: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """What `server.properties` is to say.

    Args:
        port: where clients connect, in plain text, on the loopback address.
        controller_port: where the broker reaches its controller.
        log_dir: where the topics are.
        extra: Kafka's properties to set or override. `listeners`, `advertised.listeners` and
            `listener.security.protocol.map` are added to the plain listener, which stays.
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


def render(properties: Mapping[str, str]) -> str:
    """`properties` in Java's format, one a line."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    # A leading blank would be dropped; a backslash and a line's end mean something to Java.
    value = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    value = f"\\{value}" if value[:1] == " " else value
    return "".join(sign if sign.isascii() else _java_escape(sign) for sign in value)


def _java_escape(sign: str) -> str:
    r"""One sign as Java's `\uXXXX`, two of them where UTF-16 needs two."""
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
