"""Named courses of events in simulated worlds that random worlds would seldom take.

A test runs each course with the unchanged service, and `planting` runs it with a bug that random worlds seldom find.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Final

from tarry.core.progress.checkpoint import Geometry, decode_checkpoint
from tarry.core.progress.journal import Copy, IndexEntry, decode_entry, encode_done, encode_index
from tarry.core.wheel.overflow import Upkeep
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import DEAD, JOURNAL, PARKED, wheel_topic
from tarry.testing.fake import Fate, Step
from tarry.testing.simulation import Shape, World
from tarry.testing.simulation.process import Process
from tarry.testing.simulation.scenarios import SERVING_WITHIN_MS, serving
from tarry.testing.simulation.world import INTAKE, LARGE_LEVELS, NO_LEVELS, SMALL_LEVELS, nothing
from tests.support import worlds
from tests.support.worlds import only, topics_that_wait_for_another

WIDE_LEVEL = Geometry(5_000, 2, 1)
"""Buckets that fire for seconds: meanwhile journal pointers advance several times."""

ONE_LEVEL = Geometry(1_000, 2, 1)
"""One level, in whose log all buckets stand that are due later than in a second or two."""

TWO_LEVELS = Geometry(400, 4, 2)
"""Two levels, with buckets of 0.4 and 1.6 s: what is due much later stays in the second one."""

OVERSIZED_BYTES = 40_000
"""A memory budget that a bucket of these courses exceeds."""

_DAMAGED: Final = encode_index([])[:-1]
"""A record of the index that cannot be read."""


def serve(seed: int, shape: Shape) -> World:
    """Return a world whose partitions are all served. It runs fine: a bug shows in more of its worlds."""
    return worlds.serve(seed, replace(shape, is_fine=True))


def release_before_markers(seed: int) -> World:
    """A process ends in good order just after it has filed; its release is committed before the filing's markers are.

    The next owner need not fence a process, so it does not wait for those markers: the journal's last stable offset may
    be below records of transactions that are committed.
    """
    world = serve(seed, Shape(geometry=LARGE_LEVELS, marker_lag_ms=(0, 900), partitions=1, processes=1))
    [process] = world.processes
    world.take_away(
        "bills"
    )  # parked messages hold the low watermark, so that only the journal says which messages are filed
    world.send(10, longest_ms=100)
    cluster = Cluster("fake", {}, world.broker.clients("inspector"))
    with closing(Offsets(cluster.clients.admin(cluster.admin()), world.group, cluster)) as offsets:

        def is_released() -> bool:
            return all(decode_checkpoint(text).released for _, text in offsets.committed([(INTAKE, 0)]).values())

        def is_filing_committed() -> bool:
            return f"{world.group}.{process.handle}-file" in world.broker.ending

        for _ in range(20):
            for _ in range(5):
                world.send_due(world.clock.now_ms() + world.random.randint(6_000, 12_000))
            world.run_until(is_filing_committed, 3_000)
            process.stop()
            world.run_until(is_released, 3_000)
            world.restart(process, 0)
            world.run(1_500)
    return world


def cancel_in_passes(seed: int, *, crashes: bool = False) -> World:
    """More than memory is due in one millisecond; some of it is sent twice, in front of a cancel and behind it."""
    world = serve(seed, Shape(geometry=SMALL_LEVELS, memory_budget_bytes=OVERSIZED_BYTES, partitions=1, processes=1))
    due_ms = world.clock.now_ms() + 5_000
    for _ in range(10):
        for _ in range(30):
            world.send_due(due_ms)
        for message in world.random.sample(world.sent, 10):
            world.send_again(message)
            world.cancel(message)
        world.run(100)
    for _ in range(40):
        world.run(150)
        if crashes and world.random.random() < 0.1:
            world.crash(world.processes[0])
    return world


def ahead_at_the_edge(seed: int) -> World:
    """A fixed delay at the edge of the hot window, and a leader whose clock is an hour ahead now and then; crashes.

    Some messages are held in memory, and those behind them go to buckets.
    """
    world = serve(seed, Shape(geometry=SMALL_LEVELS, fixed_delay_ms=700))
    for _ in range(40):
        world.send(4)
        world.leader_behind_ms = world.random.choice((0, 0, 0, -3_600_000))
        if world.random.random() < 0.15:
            world.crash(world.processes[0], back_after_ms=100)
        world.run(150)
    world.leader_behind_ms = 0
    return world


def crash_in_a_wide_bucket(seed: int) -> World:
    """Crashes while a bucket is half fired, and the intake's journal pointer is already behind what fired of it.

    The bucket's first record is due last, so only the journal says which of the others are done.
    """
    world = serve(seed, Shape(geometry=WIDE_LEVEL, partitions=1, processes=1))
    [process] = world.processes
    width_ms = WIDE_LEVEL.width_ms
    for _ in range(3):
        start_ms = (world.clock.now_ms() // width_ms + 3) * width_ms
        for due_ms in (start_ms + width_ms - 1, *range(start_ms, start_ms + width_ms, 250)):
            world.send_due(due_ms)
        while world.clock.now_ms() < start_ms + 0.7 * width_ms:
            world.send(1, longest_ms=100)
            world.run(200)
        world.crash(process)
        world.run(2_000)
    return world


def away_for_minutes(
    seed: int, park_after_ms: int = 600_000, geometry: Geometry = SMALL_LEVELS, longest_ms: int = 3_000
) -> World:
    """A target is away for minutes, so that a bucket is not done while later ones are; then a crash.

    What is parked keeps the logs of the levels from being trimmed, and the journal is summed up meanwhile: so only
    summaries say what is done of the later buckets.
    """
    shape = Shape(geometry=geometry, partitions=1, processes=1, park_after_ms=park_after_ms)
    world = serve(seed, shape)
    [process] = world.processes
    world.take_away("bills")
    for _ in range(24):
        for _ in range(3):
            world.send(2, longest_ms=longest_ms)
            world.run(200)
        world.run(2_400)
    world.crash(process)
    world.run(15_000)
    world.bring_back("bills")
    return world


def away_for_long(seed: int) -> World:
    """A target is away for minutes, comes back for moments only, and its messages go to the parked log; crashes.

    So some transactions that deliver parked messages are aborted, and some take-overs find messages in the parked log
    that no other log has.
    """
    world = serve(seed, Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, most=5, park_after_ms=300))
    [process] = world.processes
    for _ in range(8):
        world.take_away("bills")
        for _ in range(3):
            world.send(world.random.randint(1, 6), longest_ms=world.random.choice((100, 1_500)))
            world.run(world.random.choice((50, 400)))
        deed = world.random.choice(("moment", "moment", "back", "crash", "none"))
        if deed in {"back", "moment"}:
            world.bring_back("bills")
            world.run(2_000 if deed == "back" else world.random.randint(300, 1_300))
        elif deed == "crash" and process.worker is not None:
            # The pointers of the last checkpoint are as near to the journal's end as they may be.
            for _ in range(3):
                world.run(1_500)
                world.send(2, longest_ms=50)
            world.run(300)
            world.crash(process)
            world.run(3_000)
        if deed == "moment" and world.random.random() < 0.5:
            world.take_away("bills")
            world.crash(process)
            world.run(3_000)
        world.run(world.random.choice((200, 1_500)))
    world.crash(process)
    world.run(8_000)
    world.bring_back("bills")
    return world


def parked_while_transactions_are_open(seed: int) -> World:
    """A target goes away while parked messages are tried, and comes back while others are filed; crashes.

    So some of its messages are in an open transaction, and the next ones would fit into another one.
    """
    world = serve(seed, Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, static=True, most=5, park_after_ms=300))
    [process] = world.processes

    def take_away_between(_process: Process, step: Step) -> None:
        if (step.call, step.phase) == ("produce", "before") and not world.away and world.random.random() < 0.1:
            world.take_away("bills", markers_wait=False)

    world.disturb = take_away_between
    for _ in range(10):
        if not world.away:
            world.take_away("bills", markers_wait=False)
        for _ in range(3):
            world.send(world.random.randint(3, 8), longest_ms=world.random.choice((50, 300)))
            world.run(world.random.choice((50, 200)))
        if world.random.random() < 0.5 and not world.leaderless:
            world.lose_leader((INTAKE + PARKED, 0), (INTAKE, 0), world.random.randint(500, 1_500))
        world.run(world.random.choice((50, 400)))
        if world.away:
            world.bring_back("bills")
        world.run(world.random.choice((300, 1_300, 2_500)))
        if world.random.random() < 0.5 and process.worker is not None:
            world.crash(process)
        world.run(world.random.choice((200, 1_500)))
    world.disturb = nothing
    return world


def all_are_away(seed: int) -> World:
    """All targets are away until their messages are in the parked log, next to each other; a crash; then all are back.

    So the next owner knows only where the messages of each target begin.
    """
    world = serve(seed, Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, park_after_ms=300))
    [process] = world.processes
    for _ in range(2):
        for topic, _ in world.shape.targets:
            world.take_away(topic)
        for _ in range(world.random.randint(2, 4)):
            world.send(world.random.randint(2, 8), longest_ms=200)
            world.run(world.random.choice((200, 500)))
        world.run(1_000)
        world.crash(process)
        world.run(3_000)
        for topic, _ in world.shape.targets:
            world.bring_back(topic)
        world.run(world.random.choice((500, 3_000)))
    return world


def paused_while_the_log_is_read_for_another(seed: int) -> World:
    """As `all_are_away`, with little memory and slow reading; then a target is paused that has some in memory.

    The log is read for the other target then, over what the paused one has to read again.
    """
    shape = Shape(partitions=1, processes=1, geometry=NO_LEVELS, poison=0.0, pauses=True, park_after_ms=300)
    slow = replace(shape, most=2, fetch_most=1, latency_ms=(3, 25), memory_budget_bytes=OVERSIZED_BYTES)
    world = serve(seed, slow)
    [process] = world.processes
    targets = [topic for topic, _ in world.shape.targets]
    for topic in targets:
        world.take_away(topic, markers_wait=False)
    for _ in range(8):
        world.send(8, longest_ms=200)
        world.run(200)
    world.run(1_500)
    world.crash(process)
    world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    for topic in targets:
        world.bring_back(topic)
    for _ in range(6):
        world.run_until(lambda: bool(topics_that_wait_for_another(process)), 1_000)
        paused = sorted(topics_that_wait_for_another(process))
        for topic in paused:
            world.pause(topic)
        world.run(world.random.choice((100, 300, 1_000)))
        for topic in paused:
            world.resume(topic)
        world.run(world.random.choice((50, 300)))
    return world


def purged_again_and_again(seed: int) -> World:
    """A target is away, and purged, again and again; crashes, and moments in which it is back.

    Some of its messages are in memory then, some in the parked log, and some on their way to one of them. With an even
    seed, all are in memory, and no bucket must be closed before a purge is due.
    """
    shape = Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, most=50, park_after_ms=300)
    world = serve(seed, shape if seed % 2 else replace(shape, geometry=NO_LEVELS, park_after_ms=60_000))
    [process] = world.processes
    for _ in range(10):
        world.take_away("bills", markers_wait=False)
        for _ in range(3):
            world.send(world.random.randint(1, 8), longest_ms=world.random.choice((100, 1_500)))
            world.run(world.random.choice((20, 400)))
        if world.random.random() < 0.5 and process.worker is not None:
            world.crash(process)
        world.purge("bills")
        world.send(world.random.randint(1, 4), longest_ms=100)
        world.run(world.random.choice((20, 60, 200, 1_500)))
        deed = world.random.choice(("back", "back", "crash", "none"))
        if deed == "back":
            world.bring_back("bills")
        elif deed == "crash" and process.worker is not None:
            world.crash(process)
        world.run(world.random.choice((200, 2_500)))
    world.bring_back("bills")
    return world


def few_are_far(seed: int) -> World:
    """A few messages are due much later than most, and keep the logs of the levels, so they are filed again; crashes.

    Few messages are filed at once, so a refiling takes a while.
    """
    shape = Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, most=8, upkeep=Upkeep(refile_from=10))
    world = serve(seed, shape)
    [process] = world.processes
    for _ in range(14):
        now_ms = world.clock.now_ms()
        for _ in range(world.random.randint(0, 4)):
            world.send_due(now_ms + world.random.randint(15_000, 60_000))
        for _ in range(10):
            world.send_due(now_ms + world.random.randint(1_500, 5_000))
            world.send(1, longest_ms=200)
            world.run(world.random.choice((50, 150)))
        deed = world.random.choice(("crash", "crash", "nap", "none"))
        if deed == "crash" and process.worker is not None:
            world.crash(process)
        elif deed == "nap" and process.worker is not None:
            world.pause_here(process, world.random.choice((500, 3_000)), frozen=False)
        world.run(world.random.choice((300, 2_000)))
    return world


def reads_over_what_is_done(seed: int) -> World:
    """A process naps until two buckets are due, whose records stand far from each other; all between them are done.

    It reads on from the first bucket to the second one, slowly, while the messages of the first one fire.
    """
    shape = Shape(geometry=ONE_LEVEL, partitions=1, processes=1, poison=0.0, latency_ms=(0, 6), fetch_most=1)
    world = serve(seed, shape)
    [process] = world.processes
    width_ms = ONE_LEVEL.width_ms
    start_ms = (world.clock.now_ms() // width_ms + 10) * width_ms
    for due_ms, messages in ((start_ms, 5), (start_ms - 6 * width_ms, 300), (start_ms + width_ms, 5)):
        for _ in range(messages):
            world.send_due(due_ms)
        world.run_until(lambda: only(world).position == len(world.sent), 5_000)
        world.run(500)
    world.run(start_ms - width_ms - world.clock.now_ms())
    world.pause_here(process, world.random.randint(2 * width_ms, 3 * width_ms), frozen=False)
    return world


def many_are_filed_again(seed: int) -> World:
    """Messages that are due much later than all others are filed again, one at a time; then a crash, perhaps meanwhile.

    Nothing else keeps the journal by then, and the index is told often: so a take-over reads only the end of the
    journal. The broker may have brought deleted records back before, and the index may be lost.
    """
    upkeep = Upkeep(refile_from=20, index_after=3)
    shape = Shape(geometry=TWO_LEVELS, partitions=1, processes=1, poison=0.0, most=4, upkeep=upkeep)
    world = serve(seed, shape)
    [process] = world.processes
    width_ms = TWO_LEVELS.width_of(2)
    start_ms = (world.clock.now_ms() // width_ms + 3) * width_ms
    for _ in range(60):
        world.send_due(start_ms + world.random.randint(20_000, 25_000))
    for _ in range(180):
        world.send_due(start_ms + world.random.randrange(width_ms))
    last_ms = start_ms + 2 * width_ms
    for _ in range(45):  # with these, too much waits to file it again
        world.send_due(last_ms)
    world.run_until(lambda: only(world).overflow.is_refiling, last_ms - world.clock.now_ms())
    for _ in range(world.random.randint(30, 110)):
        # As long as there is one of these in each transaction, only one message is filed again with it.
        world.send_due(world.clock.now_ms() + world.random.randint(700, 900))
        world.run(50)
    if world.random.random() < 0.5:
        world.broker.undelete()
    if world.random.random() < 0.5:
        _lose_index(world, 1.0)
    world.crash(process)
    return world


def index_is_lost(seed: int, share: float = 0.2, fetch_most: int = 20, sends: int = 8, kept: int = 0) -> World:
    """Messages wait at all levels; of the index in the journal some records are lost or damaged before each crash.

    Args:
        seed: of the world.
        share: how many of the records are lost each time.
        fetch_most: the largest number of records in a fetch.
        sends: how many messages are sent before.
        kept: up to this level nothing is lost.
    """
    upkeep = Upkeep(tell_from=4, index_after=20)
    shape = Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, most=8, upkeep=upkeep, fetch_most=fetch_most)
    # What is kept is seen only if a process that is killed is back before the survey has ended.
    world = serve(seed, replace(shape, static=kept > 0))
    [process] = world.processes
    for _ in range(14):
        for _ in range(sends):
            world.send_due(world.clock.now_ms() + world.random.randint(800, 9_000))
            world.run(world.random.choice((20, 150)))
        _lose_index(world, share, kept)
        if world.random.random() < 0.7 and process.worker is not None:
            world.crash(process)
        world.run(world.random.choice((300, 1_500)))
    return world


def _lose_index(world: World, share: float, kept: int = 0) -> None:
    """Lose or damage some records of the index in the journal of the only partition, or what is above a level."""
    for record in world.broker.records(INTAKE + JOURNAL):
        if _tells_of_runs(record.value) and world.random.random() < share:
            lost = _index_of(record.value, kept) if kept else world.random.choice((_DAMAGED, encode_done({})))
            world.broker.mend(INTAKE + JOURNAL, 0, record.offset, lost)


def copies_are_lost(seed: int) -> World:
    """All is lost but an old copy of the checkpoint: the index, the group's offsets, and copies of closed buckets.

    So a take-over begins at a copy in which buckets are open that were closed since. The owner before has told of
    several of them as one range, because it had to survey them.
    """
    upkeep = Upkeep(tell_from=4, index_after=20)
    world = serve(seed, Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, static=True, most=8, upkeep=upkeep))
    [process] = world.processes
    journal, aborted = INTAKE + JOURNAL, list[int]()

    def abort_copies(_process: Process, step: Step) -> Fate | None:
        if (step.call, step.phase) != ("commit_transaction", "before"):
            return None
        written = set(world.broker.undecided(journal))
        records = world.broker.records(journal, committed=False)
        if any(one.offset in written and isinstance(decode_entry(one.value), Copy) for one in records):
            aborted.append(step.number)
            return Fate.WANT_ABORT
        return None

    def send(messages: int) -> None:
        for _ in range(messages):
            world.send_due(world.clock.now_ms() + world.random.randint(500, 5_000))

    for _ in range(3):
        for _ in range(8):
            send(2)
            world.run(world.random.choice((20, 150)))
        for record in world.broker.records(journal):
            if _tells_of_runs(record.value):
                world.broker.mend(journal, 0, record.offset, _DAMAGED)
        aborted.clear()
        world.disturb = abort_copies
        world.run_until(lambda: bool(aborted), 1_500)
        world.run(world.random.choice((1, 5, 20, 60)))
        send(12)
        if process.worker is not None:
            world.crash(process, back_after_ms=20)
        world.run_until(lambda: serving(world), 1_000)
        world.run(world.random.choice((60, 150, 300)))
        world.broker.expire_offsets(world.group)
        if process.worker is not None:
            world.crash(process, back_after_ms=20)
        world.disturb = nothing
        world.run(world.random.choice((300, 1_500)))
    return world


def _index_of(value: bytes | None, level: int) -> bytes:
    """Return a record of the index without what it says of higher levels."""
    entry = decode_entry(value)
    assert isinstance(entry, IndexEntry)
    return encode_index(part for part in entry.parts or () if part.level <= level)


def _tells_of_runs(value: bytes | None) -> bool:
    """Whether a record of the journal is of the index, and says more than how far logs reach."""
    entry = decode_entry(value)
    return isinstance(entry, IndexEntry) and any(part.runs for part in entry.parts or ())


def deletes_late(seed: int) -> World:
    """A process freezes while it deletes records of levels, and wakes when another one of its name has taken over.

    That one still reads what it found closed. Nearly all messages are on their way from one level to the next.
    """
    shape = Shape(geometry=SMALL_LEVELS, static=True, partitions=1, processes=1, poison=0.0, most=8, fetch_most=3)
    world = serve(seed, shape)
    numbers, frozen = count(1), list[Process]()

    def freeze(process: Process, step: Step) -> None:
        if not frozen and (step.call, step.phase) == ("delete_records", "before") and world.random.random() < 0.5:
            frozen.append(process)
            other = world.newcomer(f"p{next(numbers)}", instance=process.instance)
            while not other.states:
                world.pause_here(process, 1, frozen=True)

    world.disturb = freeze
    for _ in range(8):
        for _ in range(20):
            world.send_due(world.clock.now_ms() + world.random.randint(2_500, 5_000))
        world.run(world.random.choice((900, 1_300)))
        while frozen:  # for good: processes of the same name would take the partition from each other
            former = frozen.pop()
            world.crash(former, back_after_ms=None)
            world.processes.remove(former)
    return world


def ends_named_too_low(seed: int) -> World:
    """Crashes soon after a filing; then a new leader names too low an end of a level's log, or of the parked log.

    Then nothing is sent for a while: a later filing would show that there is more in the log.
    """
    world = serve(seed, Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, static=True, park_after_ms=300))
    [process] = world.processes
    logs = [INTAKE + PARKED, *(wheel_topic(INTAKE, level) for level in range(1, SMALL_LEVELS.levels + 1))]
    for _ in range(6):
        world.take_away("bills")
        for _ in range(world.random.randint(1, 4)):
            world.send(world.random.randint(1, 6), longest_ms=world.random.choice((100, 3_000)))
            world.run(world.random.choice((50, 400)))
        if process.worker is not None:
            world.crash(process)
            for topic in logs:
                if records := world.broker.records(topic):
                    # At least the last record is missed, and not only what comes after it.
                    behind = world.broker.end(topic) - records[-1].offset
                    world.broker.name_too_low_an_end(topic, 0, behind + world.random.randint(0, 2))
        world.run(world.random.choice((500, 4_000)))
        world.bring_back("bills")
        world.run(world.random.choice((200, 3_000)))
    return world


def ends_named_too_low_twice(seed: int) -> World:
    """A new leader names an end too low by a transaction's marker only; behind the next filing another names the same.

    So no record is missed at first. What that filing says of how far the log reaches must not be counted from there.
    """
    world = serve(seed, Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, static=True, park_after_ms=300))
    [process] = world.processes
    logs = [INTAKE + PARKED, *(wheel_topic(INTAKE, level) for level in range(1, SMALL_LEVELS.levels + 1))]

    def crash_behind(records: int) -> None:
        world.crash(process)
        for topic in logs:
            if there := world.broker.records(topic):
                behind = world.broker.end(topic) - there[-1].offset
                world.broker.name_too_low_an_end(topic, 0, behind - 1 + records)

    for _ in range(6):
        world.take_away("bills")
        for records in (0, 1):
            for _ in range(world.random.randint(1, 2)):
                world.send_due(world.clock.now_ms() + world.random.choice((0, 1_000, 6_000)))
            world.run(world.random.choice((200, 400, 900)))
            if process.worker is not None:
                crash_behind(records)
            world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
        world.bring_back("bills")
        world.run(world.random.choice((200, 3_000)))
    return world


def too_low_an_end_behind_what_was_parked(seed: int) -> World:
    """Nothing is parked any more, but the log still holds it, and the journal what is done; then an end named too low.

    What is parked next must not seem to begin before that: the journal does not say for long what is done there.
    """
    world = serve(
        seed, Shape(partitions=1, processes=1, static=True, poison=0.0, geometry=NO_LEVELS, park_after_ms=300)
    )
    [process] = world.processes

    def park(times: int) -> None:
        for _ in range(times):
            world.send(2, longest_ms=0)
            world.run(150)

    def crash() -> None:
        world.broker.undelete()
        world.crash(process)

    world.take_away("bills")
    park(10)
    world.bring_back("bills")
    world.run_until(lambda: not world.unseen(), SERVING_WITHIN_MS)
    for _ in range(60):
        world.send(1, longest_ms=100)
        world.run(100)
    crash()
    world.broker.name_too_low_an_end(INTAKE + PARKED, 0, world.random.randint(2, 8))
    world.run(3_000)
    world.take_away("bills")
    park(5)
    world.run(1_500)
    crash()
    world.run(2_000)
    world.bring_back("bills")
    return world


def a_level_loses_its_end(seed: int) -> World:
    """The log of a level loses its end while it is written, by an unclean election; then a crash.

    The journal has told of what is lost. So much is filed next that the log is soon as long as before. Some of the
    filings that meet the lost end are aborted: their records fill up the log, and the next filing does not meet it.
    """
    upkeep = Upkeep(tell_from=4, index_after=20)
    world = serve(seed, Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, static=True, poison=0.0, upkeep=upkeep))
    [process] = world.processes
    top = SMALL_LEVELS.levels
    topic = wheel_topic(INTAKE, top)

    def send() -> None:
        for _ in range(12):
            world.send_due(world.clock.now_ms() + world.random.randint(4_000, 7_000))

    def reaches(end: int) -> bool:
        return world.broker.end(topic) >= end

    def abort_filing(step: Step) -> Fate | None:
        if (step.call, step.phase) != ("send_offsets", "before") or not step.transaction.endswith("-file"):
            return None
        world.disturb = nothing
        return Fate.WANT_ABORT

    for _ in range(3):
        send()
        world.run(world.random.randint(400, 1_500))
        world.run_until(lambda: not world.broker.undecided(topic), 1_000)
        world.lose_end_of_level(top, 0, world.random.randint(2, 6))
        if world.random.random() < 0.5:
            world.disturb = lambda _, step: abort_filing(step)
        send()
        world.run_until(partial(reaches, world.broker.end(topic) + 9), 2_000)
        world.disturb = nothing
        world.run(world.random.choice((20, 200, 600)))
        world.crash(process, back_after_ms=None)
        if world.until_refused() is not None:
            world.adopt()
            world.restart(process, 0)
            world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
        world.run(world.random.choice((500, 3_000)))
    return world


def strange_records(seed: int) -> World:
    """Another program writes to the logs of levels; the topic of dead letters refuses some of that; crashes.

    What is refused waits for its dead letter, while the journal tells of all that is behind it.
    """
    upkeep = Upkeep(tell_from=4, index_after=20)
    world = serve(seed, Shape(geometry=SMALL_LEVELS, partitions=1, processes=1, static=True, most=8, upkeep=upkeep))
    [process] = world.processes
    for _ in range(5):
        world.narrow(DEAD, 2_000)
        for _ in range(8):
            world.send_due(world.clock.now_ms() + world.random.randint(800, 6_000))
            world.send(1, longest_ms=200)
            if world.random.random() < 0.2:
                world.put_strange(world.random.randint(1, SMALL_LEVELS.levels), 0, world.random.choice((10, 4_000)))
            world.run(world.random.choice((20, 150)))
        world.run(world.random.choice((300, 1_500)))
        if world.random.random() < 0.7 and process.worker is not None:
            world.crash(process)
            world.widen()
        world.run(world.random.choice((300, 1_500)))
    return world


def far_before_near(seed: int) -> World:
    """Bursts for higher levels, with messages behind them that are due soon; naps and crashes.

    Few messages may wait to be filed, so most of a burst is passed over. A nap ends when some of them are overdue.
    """
    world = serve(seed, Shape(geometry=SMALL_LEVELS, most_to_file=2, partitions=1, processes=1))
    for _ in range(12):
        for _ in range(30):
            world.send_due(world.clock.now_ms() + world.random.randint(1_000, 4_000))
        for _ in range(5):
            world.send(2, longest_ms=200)
            world.run(20)
        [process] = world.processes
        deed = world.random.choice(("nap", "nap", "crash", "none", "none"))
        if deed == "nap" and process.worker is not None:
            world.pause_here(process, world.random.choice((1_000, 3_000)), frozen=False)
        elif deed == "crash":
            world.crash(process)
        world.run(world.random.choice((200, 1_500)))
    return world


def named_again_and_again(seed: int, latency_ms: tuple[int, int] = (0, 1)) -> World:
    """Few names for many records, in memory, at all levels, and parked; crashes, and targets that are away."""
    shape = Shape(geometry=SMALL_LEVELS, names=0.8, poison=0.1, partitions=1, processes=1, park_after_ms=300)
    world = serve(seed, replace(shape, latency_ms=latency_ms))
    [process] = world.processes
    for _ in range(50):
        world.send(3, longest_ms=world.random.choice((500, 3_000, 6_000)))
        deed = world.random.choice(("crash", "away", "back", "back", "none", "none", "none", "none"))
        if deed == "crash" and process.worker is not None:
            world.crash(process)
        elif deed == "away":
            world.take_away("bills", markers_wait=world.random.random() < 0.5)
        elif deed == "back" and world.away:
            world.bring_back("bills")
        world.run(world.random.choice((20, 150, 400)))
    return world


def named_and_rejected(seed: int) -> World:
    """Named records that are rejected, between others; crashes, also between a decision and a large dead letter."""
    shape = Shape(geometry=SMALL_LEVELS, names=0.8, poison=0.1, partitions=1, processes=1)
    world = serve(seed, shape)
    [process] = world.processes
    for _ in range(30):
        world.send_rejected()
        world.send(2, longest_ms=world.random.choice((500, 3_000)))
        world.run(world.random.choice((1, 2, 5, 20)))
        if world.random.random() < 0.3 and process.worker is not None:
            world.crash(process)
            world.run(400)
    return world


def repeated_again_and_again(seed: int, latency_ms: tuple[int, int] = (0, 1)) -> World:
    """Schedules that are replaced, cancelled and sent again, in memory, at all levels, and parked; with crashes.

    Some are written while a transaction is open that delivers an occurrence: in front of the next record.
    """
    shape = Shape(geometry=SMALL_LEVELS, schedules=0.6, names=0.2, poison=0.1, partitions=1, processes=1)
    world = serve(seed, replace(shape, latency_ms=latency_ms, park_after_ms=300))
    [process] = world.processes

    def write_between(_process: Process, step: Step) -> None:
        if (step.call, step.phase) == ("produce", "before") and world.random.random() < 0.05:
            world.send_schedule()

    world.disturb = write_between
    for _ in range(40):
        world.send(world.random.choice((0, 1, 2)))
        deed = world.random.choice(("crash", "away", "back", "back", "none", "none", "none", "none"))
        if deed == "crash" and process.worker is not None:
            world.crash(process)
        elif deed == "away":
            world.take_away("bills", markers_wait=world.random.random() < 0.5)
        elif deed == "back" and world.away:
            world.bring_back("bills")
        world.run(world.random.choice((20, 400, 1_500)))
    return world


def expiring_again_and_again(seed: int) -> World:
    """Half of the messages expire soon, at all levels and parked, with windows, cancels and some that are sent twice.

    Targets are away now and then, and processes crash or nap, so that some of the messages are late.
    """
    shape = Shape(geometry=SMALL_LEVELS, expiring=0.6, windows=0.4, cancels=0.15, again=0.15, names=0.2)
    world = serve(seed, replace(shape, partitions=1, processes=1, most=10, park_after_ms=300))
    [process] = world.processes
    for _ in range(30):
        world.send(4, longest_ms=world.random.choice((100, 1_500, 4_000)))
        deed = world.random.choice(("crash", "nap", "away", "away", "back", "back", "none", "none"))
        if deed == "crash" and process.worker is not None:
            world.crash(process, back_after_ms=world.random.choice((100, 1_500)))
        elif deed == "nap" and process.worker is not None:
            world.pause_here(process, world.random.choice((300, 2_500)), frozen=False)
        elif deed == "away":
            world.take_away("bills", markers_wait=world.random.random() < 0.5)
        elif deed == "back" and world.away:
            world.bring_back("bills")
        world.run(world.random.choice((20, 300, 1_200)))
    return world


def paused_again_and_again(seed: int, *, while_open: bool = False) -> World:
    """A target is paused and resumed again and again, with messages in memory, at all levels and parked; crashes.

    Args:
        seed: of the world.
        while_open: whether some pauses come while the target is away for a moment, so that a transaction stays open
            that tries to deliver what the pause before had parked.
    """
    shape = Shape(geometry=SMALL_LEVELS, pauses=True, partitions=1, processes=1, most=5, park_after_ms=300)
    world = serve(seed, shape)
    [process] = world.processes

    def pause_between(_process: Process, step: Step) -> None:
        is_paused = world.pausing.is_paused("bills", world.clock.now_ms())
        if (step.call, step.phase) != ("produce", "before") or is_paused or world.away:
            return
        if world.random.random() < 0.2:
            world.take_away("bills", markers_wait=False)
            world.pause("bills")
            world.clock.call_at(world.clock.monotonic_ms() + world.random.randint(100, 900), back)

    def back() -> None:
        world.bring_back("bills")

    if while_open:
        world.disturb = pause_between
    for _ in range(30):
        world.send(world.random.randint(1, 6), longest_ms=world.random.choice((50, 400, 3_000)))
        if not world.pausing.is_paused("bills", world.clock.now_ms()):
            world.pause("bills")
        deed = world.random.choice(("crash", "resume", "resume", "moment", "moment", "none"))
        world.run(world.random.choice((30, 300, 1_200)))
        if deed == "crash" and process.worker is not None:
            world.crash(process)
        elif deed in {"resume", "moment"}:
            world.resume("bills")
        world.run(world.random.choice((20, 60, 120)) if deed == "moment" else world.random.choice((300, 1_500)))
    return world


def paused_for_a_day(seed: int) -> World:
    """A target is paused, all is killed, and a day later served again; then the target is resumed."""
    world = serve(seed, Shape(geometry=SMALL_LEVELS, pauses=True, park_after_ms=300))
    world.send(30, longest_ms=6_000)
    world.run(500)
    paused = world.pause("bills")
    world.run_until(lambda: paused.confirmed is not None, 10_000)
    world.send(30, longest_ms=6_000)
    world.run(world.random.choice((50, 2_000)))
    for process in world.processes:
        world.crash(process, back_after_ms=None)
    world.send(20, longest_ms=6_000)
    world.clock.advance(86_400_000)
    for process in world.processes:
        world.restart(process, 0)
    world.touch()
    world.run_until(lambda: serving(world), SERVING_WITHIN_MS)
    world.run(20_000)
    return world


COURSES: Final[Mapping[str, Callable[[int], World]]] = {
    "a-level-loses-its-end": a_level_loses_its_end,
    "ahead-at-the-edge": ahead_at_the_edge,
    "away-for-minutes": away_for_minutes,
    "away-while-buckets-mix": partial(away_for_minutes, geometry=WIDE_LEVEL, longest_ms=20_000),
    "parked-for-minutes": partial(away_for_minutes, park_after_ms=300),
    "parked-while-transactions-are-open": parked_while_transactions_are_open,
    "all-are-away": all_are_away,
    "away-for-long": away_for_long,
    "cancel-in-passes": cancel_in_passes,
    "copies-are-lost": copies_are_lost,
    "crash-in-a-wide-bucket": crash_in_a_wide_bucket,
    "deletes-late": deletes_late,
    "ends-named-too-low": ends_named_too_low,
    "ends-named-too-low-twice": ends_named_too_low_twice,
    "expiring-again-and-again": expiring_again_and_again,
    "far-before-near": far_before_near,
    "few-are-far": few_are_far,
    "index-is-lost": index_is_lost,
    "many-are-filed-again": many_are_filed_again,
    "index-is-lost-and-the-survey-slow": partial(index_is_lost, share=1.0, fetch_most=1, sends=20),
    "index-of-higher-levels-is-lost": partial(index_is_lost, share=1.0, fetch_most=1, sends=12, kept=1),
    "named-again-and-again": named_again_and_again,
    "named-and-rejected": named_and_rejected,
    "named-while-transactions-are-open": partial(named_again_and_again, latency_ms=(3, 25)),
    "paused-again-and-again": paused_again_and_again,
    "paused-while-the-log-is-read-for-another": paused_while_the_log_is_read_for_another,
    "paused-while-transactions-are-open": partial(paused_again_and_again, while_open=True),
    "purged-again-and-again": purged_again_and_again,
    "reads-over-what-is-done": reads_over_what_is_done,
    "release-before-markers": release_before_markers,
    "repeated-again-and-again": repeated_again_and_again,
    "repeated-while-transactions-are-open": partial(repeated_again_and_again, latency_ms=(3, 25)),
    "strange-records": strange_records,
    "too-low-an-end-behind-what-was-parked": too_low_an_end_behind_what_was_parked,
}
