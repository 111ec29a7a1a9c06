"""The take-overs of one process that are under way: each reads one part of its journals a turn of the loop.

Reading a journal of hours takes longer than the group waits for a member that does not poll. So between two parts the
loop goes round: it serves the group, and fires the messages of partitions that are already taken over.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tarry.core.progress.checkpoint import Checkpoint
from tarry.core.progress.recovered import Recovered
from tarry.errors import AbortableError, BrokerError, FatalError, RetriableError, UsageError
from tarry.kafka.partition_logs import proof_of
from tarry.kafka.reader import Reader
from tarry.kafka.refusals import Shortfalls
from tarry.kafka.rights import denial
from tarry.kafka.stall import StallWatch
from tarry.kafka.takeover import ByParts, Identity, TakeOver
from tarry.kafka.transaction import end_pending_offsets, fence
from tarry.kafka.types import Place
from tarry.service.worker.connections import Connections
from tarry.service.worker.context import Context
from tarry.service.worker.plan import Plan, earlier_ids

RELEASED_EVERY_MS = 600_000
"""How often a process that has released a partition may be fenced for offsets that stay pending."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Partitions that are taken over; only the replay is left.

    Attributes:
        recovered: what the take-over found, by partition.
        took_ms: how long the take-over took.
    """

    recovered: Mapping[Place, Recovered]
    took_ms: int


@dataclass(frozen=True, slots=True)
class TakeOverRefused:
    """The partitions of a take-over that was refused, because of one of them or all; it has ended.

    Attributes:
        places: the partitions.
        error: why; a `UsageError` stays until an operator removes its cause, the others pass.
    """

    places: Sequence[Place]
    error: RetriableError | AbortableError | UsageError


@dataclass(frozen=True, slots=True, eq=False)
class _UnderWay:
    """One take-over."""

    places: Sequence[Place]
    began_ms: int
    take_over: TakeOver
    journal: Reader
    course: ByParts[dict[Place, Recovered]]


class TakeOvers:
    """The take-overs under way.

    Args:
        plan: the configuration of the process.
        connections: its clients.
        context: time and the log.
    """

    def __init__(self, plan: Plan, connections: Connections, context: Context) -> None:
        self._plan = plan
        self._connections = connections
        self._context = context
        self._shortfalls = Shortfalls(context.clock)
        self._under_way: list[_UnderWay] = []
        self._fence_again_ms: dict[str, int] = {}
        """When a transactional id of a process that has released may be fenced again."""

    @property
    def places(self) -> set[Place]:
        """The partitions whose take-over is under way."""
        return {place for one in self._under_way for place in one.places}

    def prove(self, places: Sequence[Place]) -> None:
        """Step 0: prove the membership by a plain commit; only then register our producers that are not registered.

        Registering them fences the process that used their ids before, even one that still runs: with a static
        instance's ids another process may have them by now.

        Raises:
            RetriableError: refused for now.
            UsageError: a right is missing.
            FatalError: a producer is lost.
        """
        try:
            self._connections.membership.commit(proof_of(places))
        except FatalError as error:
            if (refusal := denial(error)) is None:
                raise
            raise refusal from error
        self._plan.cluster.clients.at_once([one.renew for one in self._connections.transactors if not one.started])

    def begin(self, places: Sequence[Place], began_ms: int) -> None:
        """Begin to take over partitions for which `prove` has succeeded.

        Args:
            places: partitions whose take-over is not under way.
            began_ms: when it began; monotonic.
        """
        journal = Reader(
            self._plan.cluster,
            self._context.warn,
            watch=StallWatch(self._connections.offsets, self._context.clock),
        )
        geometry = {topic: intake.geometry for topic, intake in self._plan.intakes.items()}
        take_over = TakeOver(
            self._connections.membership,
            self._connections.offsets,
            self._connections.origins,
            self._shortfalls,
            journal,
            Identity(self._connections.writer, self._connections.former, geometry),
            partial(fence, self._plan.cluster),
            self._end_pending,
            self._context.clock,
            self._context.on_event,
        )
        self._under_way.append(_UnderWay(places, began_ms, take_over, journal, take_over.run(places)))

    def _end_pending(self, places: Sequence[Place], checkpoints: Sequence[Checkpoint]) -> list[str]:
        connections = self._connections
        offsets, group_metadata = proof_of(places), connections.membership.metadata()
        writers = {name for one in checkpoints if not one.released for name in one.writer}
        # Those that have released had no transaction open then; but they may run, and this fences them.
        writers |= self._not_lately({name for one in checkpoints if one.released for name in one.writer})
        ids = {*writers, *(earlier for writer in writers for earlier in earlier_ids(writer))}
        if connections.firing.transactional_id in ids:  # of our own producers, only it sends the offsets
            connections.firing.abort_offsets(offsets, group_metadata)
        others = sorted(ids.difference(connections.writer))
        end_pending_offsets(self._plan.cluster, others, offsets, group_metadata)
        return sorted(ids)

    def _not_lately(self, released: Collection[str]) -> set[str]:
        """Return those of some transactional ids for which this was not called within `RELEASED_EVERY_MS`."""
        now_ms = self._context.clock.monotonic_ms()
        due = {name for name in released if self._fence_again_ms.get(name, now_ms) <= now_ms}
        self._fence_again_ms |= dict.fromkeys(due, now_ms + RELEASED_EVERY_MS)
        return due

    def turn(self) -> Iterator[TakenOver | TakeOverRefused]:
        """Read one part for each take-over; yield each one that is complete or refused, at once.

        Raises:
            FatalError: refused, and a producer is lost.
        """
        for one in list(self._under_way):
            try:
                recovered = self._go_on(one)
            except (UsageError, FatalError) as error:
                refusal = error if isinstance(error, UsageError) else denial(error)
                if refusal is None:
                    raise
                # The partitions stay without service for long, and another member may get them.
                self._release(one, one.places)
                yield TakeOverRefused(one.places, refusal)
                continue
            except (RetriableError, AbortableError) as error:
                yield TakeOverRefused(one.places, error)
                continue
            if recovered is not None:
                yield TakenOver(recovered, self._context.clock.monotonic_ms() - one.began_ms)

    def _go_on(self, one: _UnderWay) -> dict[Place, Recovered] | None:
        is_over = True
        try:
            next(one.course)
            is_over = False
        except StopIteration as end:
            recovered: dict[Place, Recovered] = end.value
            return recovered
        finally:
            if is_over:
                self._end(one)
        return None

    def give_up(self, places: Collection[Place]) -> None:
        """Give up partitions that are still ours: release them, so that the next owner need not fence us."""
        for one in list(self._under_way):
            self._release(one, [place for place in one.places if place in places])
        self.forget(places)

    def _release(self, one: _UnderWay, places: Sequence[Place]) -> None:
        try:
            one.take_over.release(places)
        except BrokerError as error:
            self._context.on_event("not_released", reason=str(error))

    def forget(self, places: Collection[Place]) -> None:
        """Drop the take-overs that include any of these partitions; their other partitions must begin again, too."""
        for one in [one for one in self._under_way if not set(places).isdisjoint(one.places)]:
            self._end(one)

    def part_with(self, places: Collection[Place]) -> None:
        """Forget all about these partitions, which belong to another member."""
        self.forget(places)
        self._shortfalls.forget(places)

    def clear(self) -> None:
        """Drop all take-overs; all their partitions must begin again."""
        for one in list(self._under_way):
            self._end(one)

    def _end(self, one: _UnderWay) -> None:
        self._under_way.remove(one)
        one.course.close()
        one.journal.close()
