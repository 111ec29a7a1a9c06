"""The parts of the loop, made in one place."""

from dataclasses import dataclass

from tarry.kafka.reader import Reader
from tarry.kafka.settings import QUEUE_KBYTES
from tarry.kafka.stall import StallWatch
from tarry.kafka.transaction import Transactor
from tarry.service.worker.connections import Connections, GroupProducer
from tarry.service.worker.context import Context
from tarry.service.worker.draining import Draining
from tarry.service.worker.filing import Filer
from tarry.service.worker.firing import Firing
from tarry.service.worker.gathering import Gathering
from tarry.service.worker.letters import LetterWriter
from tarry.service.worker.maintenance import Maintenance
from tarry.service.worker.open_transactions import OpenTransactions
from tarry.service.worker.parked_reading import ParkedReading
from tarry.service.worker.parking import Parking
from tarry.service.worker.pausing import Pausing
from tarry.service.worker.plan import Plan
from tarry.service.worker.publishing import Publishing
from tarry.service.worker.reading import Reading
from tarry.service.worker.second_reading import SecondReading
from tarry.service.worker.steady_clock import SteadyClock
from tarry.service.worker.targets import Targets

DRAIN_QUEUE_KBYTES = 16_384
"""How much the client library fetches ahead from buckets, and of what is read again."""

METADATA_TIMEOUT_S = 5.0
"""How long the loop waits for the metadata of a target."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the loop, in the order of a turn.

    Attributes:
        reading: reads the intakes.
        pausing: knows which targets are paused.
        second_reading: reads again what was passed over.
        draining: closes and reads buckets, and trims the logs.
        firing: delivers due messages, and commits checkpoints.
        filer: files messages to buckets.
        parking: delivers the messages of targets that are set apart.
        letters: writes large dead letters.
        maintenance: copies checkpoints and trims logs.
        open_transactions: looks for transactions that stay open.
        publishing: publishes what the intakes accept, and how their partitions do.
    """

    reading: Reading
    pausing: Pausing
    second_reading: SecondReading
    draining: Draining
    firing: Firing
    filer: Filer
    parking: Parking
    letters: LetterWriter
    maintenance: Maintenance
    open_transactions: OpenTransactions
    publishing: Publishing

    @property
    def side_transactions(self) -> tuple[Filer, Parking, LetterWriter]:
        """Those that have producers of their own, beside the firing producer."""
        return self.filer, self.parking, self.letters


def make_parts(plan: Plan, connections: Connections, clock: SteadyClock, context: Context) -> Parts:
    """Make the parts of one process.

    Args:
        plan: the configuration of the process.
        connections: its clients.
        clock: the clock of the context.
        context: time, the log and the metrics.
    """

    def new_reader(queue_kbytes: int = QUEUE_KBYTES) -> Reader:
        return Reader(plan.cluster, context.warn, queue_kbytes, StallWatch(connections.offsets, clock))

    def producer(transactor: Transactor) -> GroupProducer:
        return GroupProducer(transactor, connections.membership)

    clients, budget_bytes = plan.cluster.clients, plan.memory_budget_bytes
    targets = Targets(
        lambda topics: connections.topics.targets(topics, METADATA_TIMEOUT_S),
        connections.others,
        compresses=plan.cluster.compresses,
    )
    letters = LetterWriter(producer(connections.letters), clients, context)
    reading_parked = ParkedReading(new_reader, budget_bytes, context.on_event)
    pausing = Pausing(
        list(plan.intakes) if plan.obeys_pauses else [],
        connections.reader,
        connections.control_log,
        connections.others,
        lambda states: firing.commit_checkpoints(states, released=False),
        context,
    )
    parking = Parking(
        producer(connections.parking), clients, targets, letters, reading_parked, plan.most, context, pausing.paused
    )
    firing = Firing(producer(connections.firing), targets, parking, letters, plan.most, plan.interval_ms, context)
    filer = Filer(producer(connections.filing), clients, plan.most, context)
    draining = Draining(
        connections.offsets,
        connections.membership,
        lambda: new_reader(DRAIN_QUEUE_KBYTES),
        filer,
        plan.most_to_file,
        lambda states: firing.commit_checkpoints(states, released=False),
        budget_bytes,
        context,
    )
    maintenance = Maintenance(
        connections.offsets,
        {topic: intake.keep_ms for topic, intake in plan.intakes.items()},
        lambda intakes: connections.origins.ask({topic: plan.intakes[topic].geometry for topic in intakes}),
        lambda states, summed_up: firing.commit_checkpoints(states, released=False, summed_up=summed_up),
        lambda: not any(one.is_open for one in (filer, parking, letters)),
        plan.sum_up_after,
        context,
    )
    open_transactions = OpenTransactions(
        connections.offsets,
        {topic: intake.geometry for topic, intake in plan.intakes.items()},
        plan.open_after_ms,
        context,
    )
    reading = Reading(connections.reader, plan.intakes, budget_bytes, plan.most_to_file, pausing, clock, context)
    second_reading = SecondReading(lambda: new_reader(DRAIN_QUEUE_KBYTES), plan.most_to_file, budget_bytes, context)
    policies = {topic: intake.reader.policy for topic, intake in plan.intakes.items()}
    gathering = Gathering(clock, pausing.pauses, context)
    publishing = Publishing(plan.cluster, plan.name, policies, gathering, plan.figures_every_ms, context)
    return Parts(
        reading,
        pausing,
        second_reading,
        draining,
        firing,
        filer,
        parking,
        letters,
        maintenance,
        open_transactions,
        publishing,
    )
