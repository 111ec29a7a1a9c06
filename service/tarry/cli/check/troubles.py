"""The checks of `tarry check` for troubles of a service that runs, or should run, as far as an outsider can see them.

- Brokers that have replicas of an intake's topics and are not in the cluster now.
- Partitions that the group has assigned to nobody, or to a member that has not taken them over.
- Machines whose clocks are not the brokers': each service leaves its time in the status topic when it asks for theirs.
- Messages that are overdue: in a bucket, among the first offsets of a level or of the intake, or of a target that is
  away.
- Targets that are paused, and pauses that may be lost.
- Done records that are not deleted.

Each line says what to do. What is not served is a failure; all else is a note.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Generator, Iterable, Iterator, Sequence
from contextlib import closing

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from tarry.cli.check.finding import ANSWER_WITHIN_S, FAIL, NOTE, Finding
from tarry.cli.check.upkeep import topics_among
from tarry.clock import Clock
from tarry.config import Config, Intake
from tarry.core.request.pause import Pause
from tarry.core.request.reader import RequestReader
from tarry.errors import TarryError
from tarry.kafka.backlog import Backlog
from tarry.kafka.broker_time import RECENT_MS, ComparedClock, clocks_of
from tarry.kafka.control import Control
from tarry.kafka.group import owners_of
from tarry.kafka.inspector import Inspector, States
from tarry.kafka.offsets import Offsets
from tarry.kafka.overdue import overdue
from tarry.kafka.partition_logs import level_log_of
from tarry.kafka.rights import READ, granted
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import CONTROL, STATUS
from tarry.kafka.types import Place
from tarry.service.app import policy_of
from tarry.units import format_duration, format_instant, shown

RUNBOOK = "docs/operations.md"

UNTRIMMED = 100_000
"""The service deletes done records once a second; so many are left only if it cannot."""

TAKE_OVER_MS, LOOK_S = 10_000, 0.5
"""How long a member may take for a take-over before it is a trouble, and how often to look."""


def away_brokers(cluster: ClusterMetadata, intakes: Iterable[Intake]) -> Iterator[Finding]:
    """Return a line for each broker that is not there and should have replicas of the intakes' topics."""
    missing: defaultdict[int, set[str]] = defaultdict(set)
    for intake in intakes:
        for topic in topics_among(intake, cluster.topics):
            for number, partition in cluster.topics[topic].partitions.items():
                for broker in set(partition.replicas) - set(cluster.brokers):
                    missing[broker].add(f"{topic}/{number}")
    for broker, places in sorted(missing.items()):
        yield Finding(
            NOTE,
            f"broker {broker}: is not in the cluster now, and has replicas of {_some(sorted(places))}; "
            "start it again, or reassign its replicas (kafka-reassign-partitions)",
        )


def troubles(
    settings: Config,
    intakes: Sequence[Intake],
    cluster: Cluster,
    admin: AdminClient,
    there: Iterable[str],
    told: Collection[Place],
    clock: Clock,
) -> Iterator[Finding]:
    """Look for troubles of intakes.

    Args:
        settings: the configuration.
        intakes: those of its intakes whose topics all exist.
        cluster: the cluster.
        admin: an admin client.
        there: all topics that this user can see.
        told: partitions of which it is said already why they are not served.
        clock: wall time, to which messages are overdue, and monotonic time for waits.
    """
    known = set(there)
    with closing(Inspector(cluster, settings.service.group, clock)) as inspector:
        backlogs: dict[str, list[Backlog]] = {}
        for intake in intakes:
            try:
                backlogs[intake.topic], states = inspector.look(intake.topic)
                paused = yield from _pauses(settings, cluster, intake, known, clock)
                targets = {pause.target for pause in paused}
                yield from _waiting(settings, inspector, intake, backlogs[intake.topic], states, targets, clock)
            except TarryError as error:
                yield Finding(NOTE, f"messages of {intake.topic}: could not check whether any is overdue: {error}")
        try:
            places = [one.place for found in backlogs.values() for one in found if one.place not in told]
            yield from _unserved(admin, settings.service.group, inspector, places, clock)
        except TarryError as error:
            yield Finding(
                NOTE, f"group {settings.service.group}: could not ask which partitions its members have: {error}"
            )
    yield from _clocks(settings, intakes, cluster, admin, known, clock)


# -- who serves --------------------------------------------------------------------------------------------------------


def _unserved(
    admin: AdminClient, group: str, inspector: Inspector, places: Sequence[Place], clock: Clock
) -> Iterator[Finding]:
    """Return a line for each partition that no process serves, or one line if there is no process at all."""
    ends_ms = clock.monotonic_ms() + TAKE_OVER_MS
    while True:
        state, owners = owners_of(admin, group)
        released = {
            one.place
            for topic in {topic for topic, _ in places}
            for one in inspector.survey(topic)
            if _is_released(one)
        }
        held = {place: owner.client for owner in owners for place in owner.places}
        unassigned = [place for place in places if place not in held]
        idle = [place for place in places if place in held and place in released]
        if not owners or not (unassigned or idle) or clock.monotonic_ms() > ends_ms:
            break
        clock.sleep(LOOK_S)  # the group may be rebalancing, or a take-over under way
    if not owners:
        yield Finding(NOTE, f"group {group}: no process is in it, so nothing is delivered; start `tarry serve`")
        return
    for topic, partition in unassigned:
        yield Finding(
            FAIL,
            f"partition {topic}/{partition}: is not served: group {group} ({state.lower()}) has assigned it to nobody; "
            f"look for a member that comes and goes ({RUNBOOK}#tarryrebalancesoften)",
        )
    for topic, partition in idle:
        yield Finding(
            FAIL,
            f"partition {topic}/{partition}: is not served: group {group} has assigned it to {held[topic, partition]}, "
            "which has not taken it over; if that is no process of tarry, end it; otherwise `take_over_refused` or "
            f"`partition_quarantined` in its log says why ({RUNBOOK}#tarrypartitionsunserved)",
        )


def _is_released(backlog: Backlog) -> bool:
    return backlog.checkpoint is not None and backlog.checkpoint.released


# -- what waits --------------------------------------------------------------------------------------------------------


def _pauses(
    settings: Config, cluster: Cluster, intake: Intake, known: set[str], clock: Clock
) -> Generator[Finding, None, list[Pause]]:
    """Return the pauses of an intake that are in force, the oldest first, with a line for each."""
    if (topic := intake.topic + CONTROL) not in known:
        return []
    try:
        with closing(Control(cluster, settings.service.group, clock)) as control:
            deleted, decided = control.deleted(intake.topic), control.pauses(intake.topic).values()
    except TarryError as error:
        yield Finding(NOTE, f"pauses of {intake.topic}: could not be read: {error}")
        return []
    if deleted:
        yield Finding(
            NOTE,
            f"topic {topic}: begins at offset {deleted}: its first records were deleted, and pauses may be lost with "
            f"them; pause again what must be paused ({RUNBOOK}#stop-the-delivery-to-a-target)",
        )
    paused = sorted((one for one in decided if one.holds_at(clock.now_ms())), key=lambda one: one.at_ms)
    yield from map(_line_of, paused)
    return paused


def _line_of(pause: Pause) -> Finding:
    until = "" if pause.until_ms is None else f", until {format_instant(pause.until_ms)}"
    why = pause.unreadable or f"{pause.reason} (by {pause.who})"
    return Finding(
        NOTE,
        f"target {pause.target}: is paused since {format_instant(pause.at_ms)}{until}: {shown(why)}; "
        f"`tarry resume` ends it ({RUNBOOK}#tarrypausedforlong)",
    )


def _waiting(
    settings: Config,
    inspector: Inspector,
    intake: Intake,
    backlogs: Sequence[Backlog],
    states: States,
    paused: Container[str],
    clock: Clock,
) -> Iterator[Finding]:
    """Return a line for what is overdue, for what is parked, and for what is not deleted."""
    requests, now_ms = RequestReader(policy_of(settings, intake)), clock.now_ms()
    for place, since_ms in sorted(overdue(inspector, backlogs, states, requests, now_ms).items()):
        yield Finding(
            NOTE,
            f"partition {place[0]}/{place[1]}: a message has been due for {_for(now_ms - since_ms)}; "
            f"check that `tarry serve` runs, and read its log ({RUNBOOK}#tarryoverdue)",
        )
    parked: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in inspector.parked(backlogs, states):
        parked[one.target].append((one.messages, now_ms if one.since_ms is None else one.since_ms))
    for target, found in sorted(parked.items()):
        if target in paused:  # it has a line
            continue
        yield Finding(
            NOTE,
            f"target {target}: is away; {sum(messages for messages, _ in found)} messages of {intake.topic} wait for "
            f"it, the first one for {_for(now_ms - min(since_ms for _, since_ms in found))}; bring its brokers back, "
            f"grant WRITE, or give it up with `tarry parked --purge` ({RUNBOOK}#tarrytargetaway)",
        )
    for (topic, partition), records in sorted(_untrimmed(backlogs).items()):
        yield Finding(
            NOTE,
            f"topic {topic}: partition {partition} keeps {records} done records that should have been deleted; grant "
            f"DELETE, or bring its leader back ({RUNBOOK}#tarrytrimfails)",
        )


def _untrimmed(backlogs: Iterable[Backlog]) -> dict[Place, int]:
    """Return the logs of levels with many records below the first one that is not done."""
    found: dict[Place, int] = {}
    for backlog in backlogs:
        if backlog.checkpoint is None:
            continue
        for level, low in enumerate(backlog.checkpoint.low, 1):
            start, _ = backlog.spans.get(level, (low, low))
            if low - start > UNTRIMMED:
                found[level_log_of(backlog.place, level)] = low - start
    return found


# -- clocks ------------------------------------------------------------------------------------------------------------


def _clocks(
    settings: Config,
    intakes: Iterable[Intake],
    cluster: Cluster,
    admin: AdminClient,
    known: set[str],
    clock: Clock,
) -> Iterator[Finding]:
    """Return a line for each machine whose clock was not the brokers' when its service last asked for their time."""
    last: dict[str, ComparedClock] = {}
    with closing(Offsets(admin, settings.service.group, cluster)) as offsets:
        for intake in intakes:
            status = intake.topic + STATUS
            if status not in known:
                continue
            allowed = granted(admin, [status], ANSWER_WITHIN_S)[status]
            if isinstance(allowed, KafkaError) or (allowed and READ not in allowed):
                yield Finding(NOTE, f"clocks: without READ on {status} they cannot be compared")
                continue
            try:
                found = clocks_of(cluster, intake.topic, offsets, clock)
            except TarryError as error:
                yield Finding(NOTE, f"clocks: could not read {status}: {error}")
                continue
            for one in found:
                if one.host not in last or last[one.host].at_ms < one.at_ms:
                    last[one.host] = one
    newest_ms = max((one.at_ms for one in last.values()), default=0)
    for one in sorted(last.values()):
        if one.is_wrong and one.at_ms > newest_ms - RECENT_MS:
            word = "ahead of" if one.ahead_ms > 0 else "behind"
            yield Finding(
                NOTE,
                f"clock of {one.host}: was {_for(abs(one.ahead_ms))} {word} the brokers' clocks when the service there "
                f"last asked; set the wrong one right ({RUNBOOK}#tarryclockskew)",
            )


def _for(duration_ms: int) -> str:
    """Return a duration in whole seconds, for people."""
    return format_duration(max(0, duration_ms) // 1_000 * 1_000)


def _some(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    shown, more = ", ".join(names[:3]), len(names) - 3
    return shown if more <= 0 else f"{shown} and {more} more"
