"""The composition root: it turns a configuration into a running service.

It builds all that the supervisor and the loop need, and passes it down as plain values.
"""

import gc
import os
import pickle
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tarry import __version__
from tarry.clock import SystemClock
from tarry.config import Config, Intake
from tarry.config.sources import option_files
from tarry.config.tree import Service
from tarry.core.progress.checkpoint import Geometry
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.levels import levels_for
from tarry.errors import TarryError
from tarry.kafka.adoption import Adoption
from tarry.kafka.birth import PATIENCE_S, Birth
from tarry.kafka.broker_time import refuse_a_clock_that_is_ahead
from tarry.kafka.clients import LIBRARY, Clients
from tarry.kafka.intake_topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    control_topic,
    make_or_check,
    make_or_check_topic,
    operations_topic,
    status_topic,
)
from tarry.kafka.patience import patiently
from tarry.kafka.rights import Rights, check_rights, rights_on
from tarry.kafka.rotating import RotatingClients
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import NOT_ALLOWED, REQUEST_TIMEOUT_S, TopicAdmin
from tarry.logs import Level
from tarry.service.http import listen
from tarry.service.metrics import Tally, Totals
from tarry.service.supervisor import Beat, Channel, ChildProcess, StopSignals, Supervisor, ended_at_once
from tarry.service.worker import Plan, Worker
from tarry.service.worker.health import Health
from tarry.service.worker.plan import IntakePlan
from tarry.units import MAX_EPOCH_MS

SWITCH_INTERVAL_S = 1e-4
"""How often Python switches threads: the threads of the client library must not wait long for the loop."""

GC_THRESHOLDS = (50_000, 20, 1_000_000)
"""Thresholds that avoid full garbage collections: they would visit all held messages and free none of them.

Held messages live long and are in no reference cycles.
"""

FIGURES_EVERY_MS = 5_000
"""How often owners publish figures while something happens."""

Log = Callable[..., None]


def cluster_of(config: Config, clients: Clients = LIBRARY) -> Cluster:
    """Return the cluster, with the client properties of the configuration.

    Args:
        config: the whole configuration.
        clients: makes its clients.
    """
    properties = dict(config.kafka.properties())
    return Cluster(str(properties.pop("bootstrap.servers")), properties, clients, config.service.group)


def geometry_of(config: Config, intake: Intake) -> Geometry:
    """Return the shape of an intake's overflow wheel; it has no levels if the longest delay is at most `overflow.from`.

    Then all messages of the intake wait in memory.
    """
    overflow, longest_ms = config.overflow, intake.longest_delay_ms
    fits = longest_ms <= overflow.from_ms
    levels = 0 if fits else levels_for(overflow.width_ms, overflow.size, longest_ms)
    return Geometry(overflow.width_ms, overflow.size, levels)


def prepare(config: Config, *, adopt: bool, on_event: Log) -> None:
    """Create missing topics, check existing ones, and write the first checkpoint of new partitions.

    Args:
        config: the whole configuration.
        adopt: whether to adopt partitions that cannot be taken over.
        on_event: takes an event's name and fields, for the log.

    Raises:
        UsageError: a topic is not as it must be, or an ACL is missing; one line says what to change.
    """
    cluster = cluster_of(config)
    admin = cluster.clients.admin(cluster.admin())
    topics = TopicAdmin(admin, lambda name: on_event("topic_made", topic=name))
    clock = SystemClock()
    config = config.with_copies(patiently(topics.brokers, clock, PATIENCE_S))
    birth = Birth(cluster, admin, config.service.group, clock)
    geometries = {intake.topic: geometry_of(config, intake) for intake in config.intakes}
    needed: dict[str, Rights] = {}
    for intake in config.intakes:
        needed |= rights_on(intake.topic, geometries[intake.topic].levels, schedules=intake.may_repeat)
    patiently(partial(check_rights, admin, config.service.group, needed), clock, PATIENCE_S)
    for intake in config.intakes:
        _make_beside(topics, intake, clock, on_event)
    # Before the first checkpoint of a new partition, which contains where its buckets begin.
    refuse_a_clock_that_is_ahead(cluster, list(geometries), clock, on_event)
    for intake in config.intakes:
        geometry = geometries[intake.topic]
        make = partial(
            make_or_check,
            topics,
            intake.topic,
            intake.partitions,
            intake.replication,
            geometry,
            fixed_delay=intake.is_fixed,
            before_intake=partial(birth.give, intake.topic, intake.partitions, geometry),
        )
        patiently(make, clock, PATIENCE_S)
    # Check again: now all topics exist, so one that is not visible is a missing right.
    patiently(partial(check_rights, admin, config.service.group, needed, all_there=True), clock, PATIENCE_S)
    if adopt:
        with closing(Adoption(cluster, config.service.group, clock)) as adoption:
            for intake in config.intakes:
                adoption.adopt(intake.topic, intake.partitions, geometries[intake.topic], on_event)


def _make_beside(topics: TopicAdmin, intake: Intake, clock: SystemClock, on_event: Log) -> None:
    """Create or check the topics of status, pauses and operations. The service also runs without them."""
    for topic_of, unfit in (
        (status_topic, "status_topic_unfit"),
        (control_topic, "control_topic_unfit"),
        (operations_topic, "operations_topic_unfit"),
    ):
        make = partial(make_or_check_topic, topics, topic_of(intake.topic, intake.replication))
        try:
            patiently(make, clock, PATIENCE_S)
        except TarryError as error:
            on_event(unfit, reason=str(error))


def largest_schedules(config: Config, on_event: Log) -> dict[str, int | None]:
    """Return the largest record of a schedule that each intake accepts, in bytes, once its topic exists.

    Args:
        config: the whole configuration.
        on_event: takes an event's name and fields, for the log.

    Returns:
        By intake; None: it accepts no schedules, because the service must not write to it.
    """
    cluster, clock = cluster_of(config), SystemClock()
    topics = TopicAdmin(cluster.clients.admin(cluster.admin()))
    names = [intake.topic for intake in config.intakes if intake.may_repeat]
    found = patiently(partial(topics.targets, names, REQUEST_TIMEOUT_S), clock, PATIENCE_S)
    room: dict[str, int | None] = {}
    for name, intake in found.items():
        room[name] = None if intake.obstacle == NOT_ALLOWED else intake.max_bytes or DEFAULT_MAX_MESSAGE_BYTES
        if room[name] is None:
            on_event("no_schedules", topic=name, reason="this user has no right to write to it (WRITE)")
    return room


def policy_of(config: Config, intake: Intake, schedule_bytes: int | None = DEFAULT_MAX_MESSAGE_BYTES) -> IntakePolicy:
    """Return the policy of an intake.

    Args:
        config: the whole configuration.
        intake: the intake.
        schedule_bytes: the largest record of a schedule; None: it accepts no schedules.
    """
    return IntakePolicy(
        topic=intake.topic,
        targets=intake.targets,
        max_delay_ms=intake.max_delay_ms,
        fixed_delay_ms=intake.delay_ms,
        fixed_target=intake.target,
        tick_ms=config.wheel.tick_ms,
        intakes=frozenset(other.topic for other in config.intakes),
        dialect=intake.dialect,
        same_key=intake.same_key,
        schedule_bytes=schedule_bytes,
    )


def policy_at(config: Config, topic: str) -> IntakePolicy:
    """Return the policy of an intake by its name; of one that is not configured, a policy for any valid message."""
    for intake in config.intakes:
        if intake.topic == topic:
            return policy_of(config, intake)
    return IntakePolicy(topic, max_delay_ms=MAX_EPOCH_MS, tick_ms=config.wheel.tick_ms)


def _instance_of(service: Service, index: int) -> str | None:
    return f"{service.instance}-{index}" if service.instance else None


def _name_of(service: Service, index: int) -> str:
    """Return the first part of a process's transactional ids; without `service.instance` it is random."""
    return f"{service.group}.{_instance_of(service, index) or uuid.uuid4().hex[:12]}"


def plan_of(
    config: Config, index: int, clients: Clients = LIBRARY, schedule_bytes: Mapping[str, int | None] | None = None
) -> Plan:
    """Return the plan of one worker process.

    Args:
        config: the whole configuration.
        index: the number of the process within this `serve`, from 0.
        clients: makes its clients.
        schedule_bytes: from `largest_schedules`; None: it is not known.
    """
    service, room = config.service, schedule_bytes or {}
    instance = _instance_of(service, index)
    cluster = cluster_of(config, clients)
    return Plan(
        cluster=cluster,
        group=service.group,
        member=cluster.member(service.group, service.group_protocol, instance, together=len(config.intakes) > 1),
        name=_name_of(service, index),
        intakes={
            intake.topic: IntakePlan(
                RequestReader(policy_of(config, intake, room.get(intake.topic, DEFAULT_MAX_MESSAGE_BYTES))),
                intake.is_fixed,
                geometry_of(config, intake),
                intake.keep_ms,
                intake.names_limit,
            )
            for intake in config.intakes
        },
        tick_ms=config.wheel.tick_ms,
        wheel_size=config.wheel.size,
        memory_budget_bytes=service.memory_budget_bytes,
        interval_ms=service.transaction_interval_ms,
        most=service.transaction_max_messages,
        figures_every_ms=FIGURES_EVERY_MS,
    )


def serve(config: Config, *, adopt: bool, processes: int, log_level: Level, on_event: Log) -> None:
    """Run the service until SIGTERM or Ctrl-C, then release the partitions. This process is the supervisor.

    Args:
        config: the whole configuration.
        adopt: whether to adopt partitions that cannot be taken over.
        processes: the number of worker processes.
        log_level: the log level of the worker processes.
        on_event: takes an event's name and fields, for the log.

    Raises:
        UsageError: the service cannot run; one line says why.
        ConfigError: the same, if the configuration is wrong.
    """
    clock = SystemClock()
    with listen(config.http.host, config.http.port) as listener:
        with ended_at_once():
            prepare(config, adopt=adopt, on_event=on_event)
            schedule_bytes = largest_schedules(config, on_event)
        stop = StopSignals()
        topics = [intake.topic for intake in config.intakes]
        on_event("starting", pid=os.getpid(), processes=processes, intakes=topics)
        totals = Totals(
            {"intake": topics, "decision": ("assigned", "revoked", "lost")},
            {intake.topic: intake.partitions for intake in config.intakes},
        )
        Supervisor(
            lambda index: ChildProcess(work_command(), pickle.dumps(Orders(config, index, log_level, schedule_bytes))),
            processes,
            listener,
            totals,
            __version__,
            clock,
            stop,
            on_event,
        ).run()
    on_event("stopped")


@dataclass(frozen=True, slots=True)
class Orders:
    """The supervisor's orders to a worker process.

    They contain the configuration as the supervisor has read it, because the file may have changed since.

    Attributes:
        config: the whole configuration.
        index: the number of the process.
        log_level: the log level of the process.
        schedule_bytes: from `largest_schedules`.
    """

    config: Config
    index: int
    log_level: Level
    schedule_bytes: Mapping[str, int | None]


def work_command() -> list[str]:
    """Return the command of a worker process, which imports the same package as this process."""
    # Without -P, a file in the working directory that is named like one of our modules would be imported instead.
    installed = Path(__file__).parents[2] != Path.cwd()
    return [sys.executable, *(["-P"] if installed else []), "-m", "tarry.cli.work"]


def work(orders: Orders, channel: Channel, on_event: Log) -> None:
    """Run one worker process until SIGTERM, or until the supervisor has ended.

    Args:
        orders: the supervisor's orders.
        channel: the channel to the supervisor.
        on_event: takes an event's name and fields, for the log.

    Raises:
        UsageError: the process cannot serve; one line says why.
        FatalError: the process was fenced permanently.
    """
    stop = StopSignals(interrupt=False)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    tally = Tally()
    clients = RotatingClients(option_files(os.environ), orders.config.kafka.properties(), on_event)
    plan, clock = plan_of(orders.config, orders.index, clients, orders.schedule_bytes), SystemClock()

    def report(health: Health) -> None:
        clients.refresh()
        channel.beat(Beat(health.ready, health.why, tally.snapshot()))

    brokers_ms = refuse_a_clock_that_is_ahead(plan.cluster, list(plan.intakes), clock, on_event)
    Worker(
        plan,
        clock,
        lambda: stop.asked or channel.orphaned,
        on_event,
        tally,
        report,
        brokers_ms,
    ).run()


__all__: Sequence[str] = ("cluster_of", "geometry_of", "plan_of", "policy_of", "prepare", "serve", "work")
