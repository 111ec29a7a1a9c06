"""The composition root: from a configuration to a running service.

What the supervisor and the loop need is built here by hand and passed down as plain values.
"""

import gc
import os
import pickle
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tarry import __version__
from tarry.clock import SystemClock
from tarry.config import Config, Intake
from tarry.core.checkpoint import Geometry
from tarry.core.intake_policy import IntakePolicy
from tarry.core.levels import levels_for
from tarry.core.request_reader import RequestReader
from tarry.http import listen
from tarry.kafka.birth import PATIENCE_S, Birth
from tarry.kafka.intake_topics import make_or_check
from tarry.kafka.patience import patiently
from tarry.kafka.rights import Rights, check_rights, rights_on
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin
from tarry.logs import Level
from tarry.metrics import Tally, Totals
from tarry.supervisor import Beat, Channel, ChildProcess, StopSignals, Supervisor, ended_at_once
from tarry.worker import Plan, Worker
from tarry.worker.plan import IntakePlan

SWITCH_INTERVAL_S = 1e-4
"""How often Python lets another thread run: the client library's own must not wait behind the loop."""

GC_THRESHOLDS = (50_000, 20, 1_000_000)
"""Held messages are acyclic and live long: full collections would walk all of them and stop the loop for nothing."""

Log = Callable[..., None]


def cluster_of(config: Config) -> Cluster:
    """The cluster, with the user's options."""
    properties = dict(config.kafka.properties())
    return Cluster(str(properties.pop("bootstrap.servers")), properties, reads_as=config.service.group)


def geometry_of(config: Config, intake: Intake) -> Geometry:
    """The shape of an intake's overflow wheel: no levels where memory holds whatever its delays allow."""
    overflow, longest_ms = config.overflow, intake.longest_delay_ms
    fits = longest_ms <= overflow.from_ms
    levels = 0 if fits else levels_for(overflow.width_ms, overflow.size, longest_ms)
    return Geometry(overflow.width_ms, overflow.size, levels)


def prepare(config: Config, *, adopt: bool, on_event: Log) -> None:
    """Make the topics that are missing, check those that are there, and give new partitions their first checkpoint.

    Args:
        config: the whole of it.
        adopt: begin at the start of intakes that hold records and have no checkpoint.
        on_event: takes an event's name and fields, for the log.

    Raises:
        UsageError: a topic is not as it must be, or a right is missing; one line says how.
    """
    cluster = cluster_of(config)
    admin = cluster.clients.admin(cluster.admin())
    topics = TopicAdmin(admin)
    clock = SystemClock()
    birth = Birth(cluster, admin, config.service.group, clock)
    geometries = {intake.topic: geometry_of(config, intake) for intake in config.intakes}
    needed: dict[str, Rights] = {}
    for topic, geometry in geometries.items():
        needed |= rights_on(topic, geometry.levels)
    patiently(partial(check_rights, admin, config.service.group, needed), clock, PATIENCE_S)
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
            before_intake=partial(birth.give, intake.topic, intake.partitions, geometry, adopt=adopt),
        )
        made = patiently(make, clock, PATIENCE_S)
        if made:
            on_event("topics_made", topics=made)
    # Once more: now all of them are there, and none may be hidden.
    patiently(partial(check_rights, admin, config.service.group, needed, all_there=True), clock, PATIENCE_S)


def policy_of(config: Config, intake: Intake) -> IntakePolicy:
    """What an intake accepts."""
    return IntakePolicy(
        topic=intake.topic,
        targets=intake.targets,
        max_delay_ms=intake.max_delay_ms,
        fixed_delay_ms=intake.delay_ms,
        fixed_target=intake.target,
        tick_ms=config.wheel.tick_ms,
        intakes=frozenset(other.topic for other in config.intakes),
        dialect=intake.dialect,
    )


def plan_of(config: Config, index: int) -> Plan:
    """What one process of the service does.

    Args:
        config: the whole of it.
        index: which of the processes of this `serve`, from 0.
    """
    service = config.service
    instance = f"{service.instance}-{index}" if service.instance else None
    cluster = cluster_of(config)
    return Plan(
        cluster=cluster,
        group=service.group,
        member=cluster.member(service.group, service.group_protocol, instance),
        name=f"{service.group}.{instance or uuid.uuid4().hex[:12]}",
        intakes={
            intake.topic: IntakePlan(
                RequestReader(policy_of(config, intake)),
                intake.is_fixed,
                geometry_of(config, intake),
                intake.keep_ms,
            )
            for intake in config.intakes
        },
        tick_ms=config.wheel.tick_ms,
        wheel_size=config.wheel.size,
        memory_budget_bytes=service.memory_budget_bytes,
        interval_ms=service.transaction_interval_ms,
        most=service.transaction_max_messages,
    )


def serve(config: Config, *, adopt: bool, processes: int, log_level: Level, on_event: Log) -> None:
    """Serve until SIGTERM or Ctrl-C, then hand the partitions over.

    Args:
        config: the whole of it.
        adopt: begin at the start of intakes that hold records and have no checkpoint.
        processes: how many of them work; this one watches them.
        log_level: of the processes.
        on_event: takes an event's name and fields, for the log.

    Raises:
        UsageError: it cannot serve; one line says why.
        ConfigError: the same, where the configuration is to blame.
    """
    clock = SystemClock()
    with listen(config.http.host, config.http.port) as door:
        with ended_at_once():
            prepare(config, adopt=adopt, on_event=on_event)
        stop = StopSignals()
        topics = [intake.topic for intake in config.intakes]
        on_event("starting", pid=os.getpid(), processes=processes, intakes=topics)
        totals = Totals({"intake": topics, "decision": ("assigned", "revoked", "lost")})
        Supervisor(
            lambda index: ChildProcess(work_command(), pickle.dumps(Orders(config, index, log_level))),
            processes,
            door,
            totals,
            __version__,
            clock,
            stop,
            on_event,
        ).run()
    on_event("stopped")


@dataclass(frozen=True, slots=True)
class Orders:
    """What the supervisor tells a process: the configuration as it was read once, not as the file may be by now.

    Attributes:
        config: the whole of it.
        index: which of the processes.
        log_level: what it logs.
    """

    config: Config
    index: int
    log_level: Level


def work_command() -> list[str]:
    """The command of one process; it imports the package from where we have it."""
    # Without -P any file named like a module of ours, in the directory where we were started, would be imported.
    installed = Path(__file__).parents[1] != Path.cwd()
    return [sys.executable, *(["-P"] if installed else []), "-m", "tarry.cli.work"]


def work(orders: Orders, channel: Channel, on_event: Log) -> None:
    """Be one of the processes, until SIGTERM.

    Args:
        orders: from the supervisor.
        channel: to it.
        on_event: takes an event's name and fields, for the log.

    Raises:
        UsageError: it cannot serve; one line says why.
        FatalError: this process was shut out for good.
    """
    stop = StopSignals(interrupt=False)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    tally = Tally()
    Worker(
        plan_of(orders.config, orders.index),
        SystemClock(),
        lambda: stop.asked or channel.orphaned,
        on_event,
        tally,
        lambda health: channel.beat(Beat(health.ready, health.why, tally.snapshot())),
    ).run()


__all__: Sequence[str] = ("cluster_of", "geometry_of", "plan_of", "policy_of", "prepare", "serve", "work")
