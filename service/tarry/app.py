"""The composition root: from a configuration to a running service.

What the loop needs is built here by hand and passed down as plain values.
"""

import gc
import os
import signal
import sys
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

from tarry.clock import SystemClock
from tarry.config import Config, Intake
from tarry.core.checkpoint import Geometry
from tarry.core.request import IntakePolicy, RequestReader
from tarry.kafka.birth import Birth
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import TopicAdmin, admin_client, make_or_check
from tarry.worker import Plan, Worker
from tarry.worker.loop import IntakePlan

SWITCH_INTERVAL_S = 1e-4
"""How often Python lets another thread run: the client library's own must not wait behind the loop."""

GC_THRESHOLDS = (50_000, 20, 1_000_000)
"""Held messages are acyclic and live long: full collections would walk all of them and stop the loop for nothing."""

Log = Callable[..., None]


def cluster_of(config: Config) -> Cluster:
    """The cluster, with the user's options."""
    properties = dict(config.kafka.properties())
    return Cluster(str(properties.pop("bootstrap.servers")), properties)


def geometry_of(config: Config) -> Geometry:
    """The shape of the overflow wheel: no levels before there is one."""
    return Geometry(config.overflow.width_ms, config.overflow.size, 0)


def prepare(config: Config, *, adopt: bool, on_event: Log) -> None:
    """Make the topics that are missing, check those that are there, and give new partitions their first checkpoint.

    Args:
        config: the whole of it.
        adopt: begin at the start of intakes that hold records and have no checkpoint.
        on_event: takes an event's name and fields, for the log.

    Raises:
        UsageError: a topic is not as it must be; one line says how.
    """
    cluster = cluster_of(config)
    admin = admin_client(cluster.client())
    birth = Birth(cluster, admin, config.service.group, geometry_of(config), SystemClock())
    for intake in config.intakes:
        made = make_or_check(
            TopicAdmin(admin),
            intake.topic,
            intake.partitions,
            intake.replication,
            fixed_delay=intake.is_fixed,
            before_intake=partial(birth.give, intake.topic, intake.partitions, adopt=adopt),
        )
        if made:
            on_event("topics_made", topics=made)


def policy_of(config: Config, intake: Intake) -> IntakePolicy:
    """What an intake accepts."""
    longest_ms = intake.longest_delay_ms
    return IntakePolicy(
        topic=intake.topic,
        targets=intake.targets,
        max_delay_ms=intake.max_delay_ms,
        # There is no overflow wheel yet: what is due later than the hot window reaches is dead.
        horizon_ms=config.overflow.from_ms if longest_ms > config.overflow.from_ms else None,
        fixed_delay_ms=intake.delay_ms,
        fixed_target=intake.target,
        tick_ms=config.wheel.tick_ms,
        intakes=frozenset(other.topic for other in config.intakes),
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
                geometry_of(config),
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


def serve(config: Config, *, adopt: bool, on_event: Log) -> None:
    """Serve until SIGTERM or Ctrl-C, then hand the partitions over.

    Args:
        config: the whole of it.
        adopt: begin at the start of intakes that hold records and have no checkpoint.
        on_event: takes an event's name and fields, for the log.

    Raises:
        UsageError: it cannot serve; one line says why.
        FatalError: this process was shut out for good.
    """
    stop = _StopSignals()
    prepare(config, adopt=adopt, on_event=on_event)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    on_event("starting", pid=os.getpid(), intakes=[intake.topic for intake in config.intakes])
    Worker(plan_of(config, 0), SystemClock(), lambda: stop.asked, on_event).run()
    on_event("stopped")


class _StopSignals:
    """Whether SIGTERM or SIGINT has come; a second SIGINT ends the process at once."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, self._ask)

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True


__all__: Sequence[str] = ("cluster_of", "plan_of", "policy_of", "prepare", "serve")
