"""`tarry check`: check whether the service could run here, with one line for each thing that it needs.

The command creates and changes nothing. It prints each line as soon as it knows the result. A line starts with one of
three words:

    ok      as it must be, or `tarry serve` would create it so
    FAIL    the service would refuse to start, or could not work
    note    the command could not check it, or it is a problem that does not stop the service

If a broker does not answer, the command prints one FAIL and ends.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.admin._resource import ResourceType

from tarry.cli.check.finding import ANSWER_WITHIN_S, FAIL, NOTE, OK, Finding
from tarry.cli.check.partitions import refused, unserved
from tarry.cli.check.rights import rights
from tarry.cli.check.troubles import RUNBOOK, away_brokers, troubles
from tarry.cli.check.upkeep import left_behind, short_of_copies, slow_to_notice, topics_among, unprotected
from tarry.cli.check.wheel import refusals
from tarry.cli.options import ConfigOption
from tarry.clock import SystemClock
from tarry.config import Config, Intake, load
from tarry.config.sources import DEFAULT_PATH, file_of
from tarry.core.progress.checkpoint import LIMIT, Geometry
from tarry.errors import BrokerError, ConfigError, TarryError
from tarry.kafka.errors import error_of
from tarry.kafka.intake_topics import Checked, compare_topic, control_topic, operations_topic, status_topic
from tarry.kafka.intake_topics import compare_topics as check_topics
from tarry.kafka.partition_logs import logs_of
from tarry.kafka.rights import DENIED
from tarry.kafka.topics import DEAD, WHEEL, Topic, TopicAdmin
from tarry.kafka.types import Place
from tarry.service.app import cluster_of, geometry_of

METADATA_LIMIT, AUTHORIZER = "offset.metadata.max.bytes", "authorizer.class.name"


def check(
    context: typer.Context,
    config: ConfigOption = None,
) -> None:
    """Check whether the service could run; change nothing.

    Checks the configuration, the brokers, the topics and the ACLs, and prints one line for each check: `ok`; `FAIL` if
    the service could not start or work; `note` if the command could not check it, or if the problem does not stop the
    service.

    Exit codes: 1 if a check failed; 2 if the configuration is wrong.

    Example: tarry check --config tarry.toml
    """
    try:
        settings = load(config, os.environ)
        admin, complaints = _connect(settings)
    except ConfigError as error:
        if context.obj is not None and context.obj.debug:
            raise
        typer.echo(f"{FAIL}  configuration: {error}", err=True)
        raise typer.Exit(2) from error
    failed = False
    typer.echo(f"{OK:4}  configuration: {_where_from(config)}")
    for finding in examine(settings, admin, complaints):
        failed = failed or finding.word == FAIL
        typer.echo(f"{finding.word:4}  {finding.text}")
    if failed:
        raise typer.Exit(1)


def examine(settings: Config, admin: AdminClient, complaints: list[str]) -> Iterator[Finding]:
    """Check everything that the service needs in the cluster, in the order of the service's start.

    Args:
        settings: the configuration.
        admin: an admin client.
        complaints: the client's errors about connections; the client appends to it while it is polled.
    """
    servers = settings.kafka.bootstrap_servers
    try:
        cluster = admin.list_topics(timeout=ANSWER_WITHIN_S)
    except KafkaException as exception:
        admin.poll(0)
        why = complaints[0] if complaints else error_of(exception).str()
        yield Finding(FAIL, f"broker {servers}: no answer within {ANSWER_WITHIN_S:g} s: {why}")
        return
    brokers = len(cluster.brokers)
    settings = settings.with_copies(brokers)
    yield Finding(OK, f"broker {servers}: answers ({_counted(brokers, 'broker')}, cluster {cluster.cluster_id})")
    open_to_all = False
    for broker in sorted(cluster.brokers):
        try:
            has = _settings_of(admin, broker)
        except KafkaException as exception:
            error = error_of(exception)
            yield Finding(FAIL, f"broker {broker}: no answer at its advertised listener: {error.str()}")
            return
        yield _metadata_limit(broker, has)
        if has is not None and settings.service.group_protocol == "consumer":
            yield from (Finding(NOTE, line) for line in slow_to_notice(broker, has))
        open_to_all = has is not None and has.get(AUTHORIZER) == ""
    there: set[str] = set(cluster.topics)
    not_served: set[Place] = set()
    for intake in settings.intakes:
        geometry = geometry_of(settings, intake)
        yield from _topics(admin, intake, geometry, brokers)
        if intake.topic in there:
            yield from _wheel(settings, intake)
            yield from _partitions(settings, admin, intake, cluster, not_served)
        if intake.target is not None and intake.target not in there:
            yield Finding(
                FAIL,
                f"topic {intake.target}: does not exist; messages of {intake.topic} would go to "
                f"{intake.topic}{DEAD} as unknown-target",
            )
    yield from _upkeep(settings, admin, cluster)
    yield from away_brokers(cluster, settings.intakes)
    complete = [intake for intake in settings.intakes if _has_all_topics(settings, intake, there)]
    if complete:
        yield from troubles(settings, complete, cluster_of(settings), admin, there, not_served, SystemClock())
    if open_to_all:
        yield Finding(OK, "ACLs: the brokers have no authorizer: every user has all rights")
    else:
        yield from rights(admin, settings, there)


def _has_all_topics(settings: Config, intake: Intake, there: set[str]) -> bool:
    """Return whether the topics of an intake exist; if one is missing, it has its own line, and nothing is served."""
    return {log for log, _ in logs_of((intake.topic, 0), geometry_of(settings, intake))} <= there


def _connect(settings: Config) -> tuple[AdminClient, list[str]]:
    """Create an admin client.

    Returns:
        The client, and the list to which it appends its errors about connections.

    Raises:
        ConfigError: `kafka.options` has a property that librdkafka refuses.
    """
    complaints: list[str] = []
    # librdkafka logs each refused connection; this command reports the failure once, in its own line.
    logging.getLogger("librdkafka").addHandler(logging.NullHandler())
    silent = logging.getLogger("tarry.check.librdkafka")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    properties = cluster_of(settings).client(
        logger=silent,
        socket_timeout_ms=int(ANSWER_WITHIN_S * 1_000),
    )
    properties["error_cb"] = lambda error: complaints.append(error.str())
    try:
        return AdminClient(properties), complaints
    except KafkaException as exception:
        raise ConfigError(f"kafka.options: {error_of(exception).str()}") from exception


def _where_from(config: Path | None) -> str:
    """Return the name of the configuration file that was read, for people."""
    chosen = file_of(config, os.environ)
    return str(chosen) if chosen else f"defaults (there is no {DEFAULT_PATH} here)"


def _settings_of(admin: AdminClient, broker: int) -> Mapping[str, str] | None:
    """Read a broker's settings from that broker itself, which also checks that its advertised address is reachable.

    Returns:
        Name to value; None if this user has no right to describe the broker's configuration.

    Raises:
        KafkaException: the broker does not answer.
    """
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        found: Any = admin.describe_configs([resource], request_timeout=ANSWER_WITHIN_S)[resource].result()
    except KafkaException as exception:
        if error_of(exception).code() in DENIED:
            return None
        raise
    return {name: entry.value for name, entry in found.items()}


def _metadata_limit(broker: int, has: Mapping[str, str] | None) -> Finding:
    """Check that a broker's limit for offset metadata is large enough for a checkpoint."""
    if has is None:
        return Finding(
            NOTE, f"broker {broker}: no right to read {METADATA_LIMIT} (not checked); it must be {LIMIT + 1} or more"
        )
    allowed = int(has[METADATA_LIMIT])
    if allowed <= LIMIT:
        return Finding(FAIL, f"broker {broker}: {METADATA_LIMIT}={allowed}; it must be {LIMIT + 1} or more")
    return Finding(OK, f"broker {broker}: {METADATA_LIMIT}={allowed}")


def _topics(admin: AdminClient, intake: Intake, geometry: Geometry, brokers: int) -> Iterator[Finding]:
    """Check the topics of an intake: one line for each correct topic, and one for each fault."""
    name = intake.topic
    try:
        checked = check_topics(
            TopicAdmin(admin), name, intake.partitions, intake.replication, geometry, fixed_delay=intake.is_fixed
        )
    except BrokerError as error:
        yield Finding(FAIL, f"topic {name}: {error}")
        return
    yield from _of_intake(name, checked, intake.replication, brokers)
    yield from _beside(
        admin,
        intake,
        status_topic,
        "the service runs without it, but clients cannot ask what the intake accepts, "
        "and the service cannot ask the brokers for their time",
    )
    yield from _beside(
        admin, intake, control_topic, "the service runs without it, but no target can be paused reliably"
    )
    yield from _beside(admin, intake, operations_topic, "the service runs without it, but `tarry api` has no bulk acts")


def _beside(
    admin: AdminClient,
    intake: Intake,
    topic_of: Callable[[str, int], Topic],
    without: str,
) -> Iterator[Finding]:
    """Check a topic that the service can run without: that of status, of pauses or of operations."""
    wanted = topic_of(intake.topic, intake.replication)
    topic = wanted.name
    try:
        one = compare_topic(TopicAdmin(admin), wanted)
    except BrokerError as error:
        yield Finding(NOTE, f"topic {topic}: {error}; {without}")
        return
    if one.faults:
        yield from (
            Finding(NOTE, f"topic {topic}: {fault.removeprefix(f'{topic} ')}; {without}") for fault in one.faults
        )
    elif one.exists:
        yield Finding(OK, f"topic {topic}: 1 partition, as it must be")
    else:
        yield Finding(
            OK,
            f"topic {topic}: does not exist; `tarry serve` would create it "
            f"(1 partition, replication {intake.replication})",
        )


def _of_intake(name: str, checked: list[Checked], replication: int, brokers: int) -> Iterator[Finding]:
    """Return one line for each correct topic, and one for each fault; the intake's own topic comes first."""
    for one in sorted(checked, key=lambda one: one.topic.name != name):
        topic, partitions = one.topic.name, _counted(one.topic.partitions, "partition")
        if one.faults:
            yield from (Finding(FAIL, f"topic {topic}: {fault.removeprefix(f'{topic} ')}") for fault in one.faults)
        elif one.exists:
            yield Finding(OK, f"topic {topic}: {partitions}, as it must be")
        elif replication > brokers:
            yield Finding(
                FAIL,
                f"topic {topic}: does not exist, and cannot be created: replication = {replication}, "
                f"but the cluster has {_counted(brokers, 'broker')}",
            )
        else:
            shape = f"{partitions}, replication {replication}"
            yield Finding(OK, f"topic {topic}: does not exist; `tarry serve` would create it ({shape})")


def _wheel(settings: Config, intake: Intake) -> Iterator[Finding]:
    """Compare the configured overflow wheel with the checkpoints; return a line for each difference that matters."""
    try:
        for refusal in refusals(settings, cluster_of(settings), intake):
            yield Finding(FAIL, f"overflow wheel: {refusal}")
    except TarryError as error:
        yield Finding(NOTE, f"overflow wheel of {intake.topic}: its shape could not be checked: {error}")


def _partitions(
    settings: Config, admin: AdminClient, intake: Intake, cluster: ClusterMetadata, not_served: set[Place]
) -> Iterator[Finding]:
    """Return a line for each partition that the service could not serve.

    A missing topic has its own line already; the partitions do not repeat it. But if a level is missing, they say
    whether messages may have waited in it. `not_served` takes the partitions that have a line.
    """
    partitions = len(cluster.topics[intake.topic].partitions)
    missing = {log for log, _ in logs_of((intake.topic, 0), geometry_of(settings, intake))}.difference(cluster.topics)
    try:
        if not missing:
            lines = unserved(settings, cluster_of(settings), admin, intake, partitions)
        elif all(topic.startswith(intake.topic + WHEEL) for topic in missing):
            places = [(intake.topic, partition) for partition in range(partitions)]
            lines = refused(settings, cluster_of(settings), intake, places)
        else:
            return
        for place, line in lines:
            not_served.add(place)
            yield Finding(FAIL, f"partition {line} ({RUNBOOK}#partitions-set-aside)")
    except TarryError as error:
        yield Finding(NOTE, f"partitions of {intake.topic}: could not check whether all can be served: {error}")


def _upkeep(settings: Config, admin: AdminClient, cluster: ClusterMetadata) -> Iterator[Finding]:
    """Return a line for each problem that does not stop the service but that an operator should know."""
    copies = {
        name: min(len(partition.replicas) for partition in topic.partitions.values())
        for name, topic in cluster.topics.items()
        if topic.partitions
    }
    for intake in settings.intakes:
        yield from (Finding(NOTE, line) for line in short_of_copies(intake, copies))
        yield from _protection(admin, intake, copies)
    configured = [intake.topic for intake in settings.intakes]
    there = {name: len(topic.partitions) for name, topic in cluster.topics.items()}
    found = left_behind(cluster_of(settings), settings.service.group, configured, there)
    yield from (Finding(NOTE, line) for line in found)


def _protection(admin: AdminClient, intake: Intake, copies: Mapping[str, int]) -> Iterator[Finding]:
    """Return a line for each setting of an intake's topics with which a failing broker can lose messages."""
    try:
        found = TopicAdmin(admin).find(topics_among(intake, copies))
    except BrokerError as error:
        yield Finding(NOTE, f"topics of {intake.topic}: could not check their protection: {error}")
        return
    for line in unprotected({name: one.config for name, one in found.items()}, copies):
        yield Finding(NOTE, line)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
