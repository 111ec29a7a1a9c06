"""The log of a level on the fake cluster, and a partition that reads it."""

from collections.abc import Mapping
from functools import partial

from tarry.core.message import FiledMessage
from tarry.core.partition import PartitionState
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.done_set import DoneSet
from tarry.core.progress.recovered import Buckets, Recovered
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.wheel.filed import filed_headers
from tarry.kafka.reader import Reader
from tarry.kafka.topics import wheel_topic
from tarry.kafka.types import Place
from tarry.service.worker.level_reader import LevelReader
from tarry.timer import TimingWheel
from tests.unit.testing.stage import TopicStage

LOG = ("in.wheel-1", 0)
ROOM_BYTES = 1 << 30
START_MS = 1_700_000_000_000
"""Where the first open bucket of level 1 begins; buckets are one second wide."""


def message(due_ms: int) -> FiledMessage:
    return FiledMessage(due_ms, 0, None, b"v", None, False, "out", -1, b"%036d" % due_ms)


class Level:
    """The logs of levels on the fake cluster, and the partition that reads them; all is about level 1 unless said."""

    def __init__(self, stage: TopicStage) -> None:
        self.stage = stage
        self.clock = stage.clock
        for level in (1, 2):
            stage.broker.make_topic(wheel_topic("in", level), 2)
        self.reader = LevelReader(self.new_reader)
        self.writer = stage.producer()
        self.opened: list[int] = []
        """The offsets at which the log was opened."""

    def new_reader(self) -> Reader:
        """Return a reader that notes in `opened` where it is opened."""

        class Told(Reader):
            def open(told, starts: Mapping[Place, int]) -> None:  # noqa: N805
                self.opened += starts.values()
                super().open(starts)

        return Told(self.stage.cluster("worker"), lambda _text: None)

    def write(self, *due_ms: int, commit: bool = True, partition: int = 0, level: int = 1) -> None:
        """File messages in one transaction."""
        self.writer.begin_transaction()
        for due in due_ms:
            self.writer.produce(wheel_topic("in", level), b"v", None, partition, headers=filed_headers(message(due)))
        self.writer.flush(30)
        if commit:
            self.writer.commit_transaction(30)
        else:
            self.writer.abort_transaction(30)

    def take_over(
        self, end: int | None = None, *, done_ms: int = START_MS, partition: int = 0, levels: int = 1
    ) -> PartitionState:
        """Take over a partition; the brokers name `end` as the end of the log of level 1."""
        ends = {
            level: (0, self.stage.broker.end(wheel_topic("in", level), partition)) for level in range(1, levels + 1)
        }
        if end is not None:
            ends[1] = (0, end)
        geometry = Geometry(1_000, 10, levels)
        checkpoint = Checkpoint(("w",), False, geometry, (START_MS,) * levels, (done_ms,) * levels, (0,) * levels)
        recovered = Recovered(0, checkpoint, DoneSet(), 0, Buckets(ends, {}, 50))
        reader = RequestReader(IntakePolicy("in", max_delay_ms=10**9))
        new_wheel = partial(TimingWheel, 1, 64)
        return PartitionState("in", partition, reader, False, new_wheel, recovered, START_MS - 2_000)

    def open(self, state: PartitionState) -> None:
        for to_read in state.level_records.to_read(ROOM_BYTES):
            self.reader.open(state, to_read)

    def read(self, state: PartitionState, now_ms: int = START_MS - 2_000, *, turns: int = 100) -> None:
        """Read what is to be read, to its end."""
        self.open(state)
        for _ in range(turns):
            if not self.reader.is_open:
                return
            self.reader.read(now_ms)
            self.clock.advance(5)
        assert turns < 100, "it does not come to the end"
