"""The state machine of a transactional producer, as in librdkafka.

NEW ──init──▶ READY ──begin──▶ OPEN ──commit──▶ COMMITTING ──▶ READY
                ▲                │                  │
                │                └──── refused ─────┤
                └────── abort ────── ABORTABLE ◀────┘        fenced, from anywhere: FATAL
"""

from collections.abc import Callable
from enum import Enum, auto
from functools import partial

from confluent_kafka import KafkaError, KafkaException

from tarry.kafka.types import OffsetMetadata, Place
from tarry.testing.fake.membership import GroupMetadata
from tarry.testing.fake.refusals import Busy, RefusedRequest, Unanswered, failure
from tarry.testing.fake.transactions import Producer
from tarry.testing.fake.wire import Wire

_FATAL = frozenset(
    {KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_TXN_STATE, KafkaError.INVALID_PRODUCER_ID_MAPPING}
)


class Stage(Enum):
    """The state of a producer."""

    PLAIN = auto()
    """Not transactional."""
    NEW = auto()
    READY = auto()
    OPEN = auto()
    COMMITTING = auto()
    ABORTABLE = auto()
    FATAL = auto()


class Transacting:
    """One producer's transactions.

    Args:
        wire: the connection to the cluster.
        name: the transactional id; empty for a producer without transactions.
        timeout_ms: the timeout of a transaction.
        give_up: drops the queued records when the transaction can no longer be committed.
        begin_sequences: called when the sequence numbers of all partitions start at 0 again.
    """

    def __init__(
        self,
        wire: Wire,
        name: str,
        timeout_ms: int,
        give_up: Callable[[], None],
        begin_sequences: Callable[[], None],
    ) -> None:
        self._wire = wire
        self._name = name
        self._timeout_ms = timeout_ms
        self._give_up = give_up
        self._begin_sequences = begin_sequences
        self._identity: Producer | None = None
        self._error: KafkaException | None = None
        self._requests = 0
        self._wants_epoch = False
        self._is_told = True
        self.stage = Stage.NEW if name else Stage.PLAIN

    @property
    def may_send(self) -> bool:
        """Whether queued records may be sent."""
        return self.stage in {Stage.PLAIN, Stage.OPEN, Stage.COMMITTING}

    def require(self, *stages: Stage) -> None:
        """Check that the producer is in one of these stages.

        Raises:
            KafkaException: it is in another stage; the error says why.
        """
        if self.stage in stages:
            return
        if self.stage in {Stage.FATAL, Stage.ABORTABLE}:
            raise self._why
        raise failure(KafkaError._STATE, f"Operation not valid in state {self.stage.name}")

    def tell(self) -> None:
        """Raise a fatal error once, as the client library does in a callback.

        Raises:
            KafkaException: the producer has a fatal error that was not raised yet.
        """
        if not self._is_told:
            self._is_told = True
            raise self._why

    def init(self, timeout_ms: int | None) -> None:
        """Register the transactional id, which fences an earlier producer and aborts its open transaction."""
        self.require(Stage.NEW)
        register = partial(self._wire.server.transactions.register, self._name, self._timeout_ms)
        patience_ms = self._timeout_ms * 2 if timeout_ms is None else timeout_ms
        try:
            self._identity = self._wire.ask_until_answered(
                "init_transactions", register, patience_ms, transaction=self._name
            )
        except Unanswered as silence:
            raise failure(KafkaError._TIMED_OUT, "Failed to initialize Producer ID", retriable=True) from silence
        except Busy as busy:
            raise failure(busy.code, "Failed to initialize Producer ID", retriable=True) from busy
        self.stage = Stage.READY

    def begin(self) -> None:
        """Open a transaction locally, without a request."""
        self.require(Stage.READY)
        self.stage = Stage.OPEN
        self._requests = 0
        self._error = None

    def admit(self, place: Place) -> int | None:
        """Add a partition to the open transaction.

        Returns:
            The producer's id; None outside of transactions.
        """
        if self.stage is Stage.PLAIN:
            return None
        self._requests += 1
        self._wire.server.transactions.add(self._registered, places=[place])
        return self._registered.id

    def send_offsets(self, offsets: dict[Place, OffsetMetadata], shown: GroupMetadata, timeout_ms: int | None) -> None:
        """Add offsets to the open transaction, if `shown` proves membership of their group."""
        self.require(Stage.OPEN)
        self._requests += 1
        server, producer = self._wire.server, self._registered
        group = server.groups.of(shown.group)

        def send() -> None:
            server.transactions.add(producer, groups=[shown.group])
            group.membership.check(shown, transactional=True)
            group.offsets.commit(offsets, producer.id)

        try:
            # librdkafka ignores the timeout while the group's coordinator does not answer (#5456), but respects it
            # while the last transaction is still ending.
            self._wire.ask_until_answered("send_offsets", send, None, shown.group, timeout_ms, self._name)
        except RefusedRequest as refusal:
            raise self.refuse(refusal, "send offsets to the transaction") from refusal
        except Busy as busy:
            raise failure(busy.code, "Failed to add offsets to transaction", retriable=True) from busy

    def end(self, timeout_ms: int, *, commit: bool) -> None:
        """Commit or abort the open transaction. Without an earlier request of it, no request is sent."""
        if self._requests:
            end = partial(self._wire.server.transactions.end, self._registered, commit=commit)
            self._ask("commit_transaction" if commit else "abort_transaction", end, timeout_ms)
        if self._wants_epoch:
            self._take_next_epoch(timeout_ms)
        self.stage = Stage.READY

    def refuse(self, refusal: RefusedRequest, doing: str) -> KafkaException:
        """Change the stage after a refused request.

        Returns:
            The error that the call must raise.
        """
        self._requests += 1
        self._wants_epoch = self._wants_epoch or refusal.code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        if refusal.code in _FATAL:
            fenced = refusal.code == KafkaError.INVALID_PRODUCER_EPOCH
            code = KafkaError._FENCED if fenced else refusal.code
            self.stage = Stage.FATAL
            self._error = failure(code, f"Failed to {doing}: {KafkaError(code).str()}", fatal=True)
            self._is_told = False
            self._give_up()
        else:
            self.fail(refusal.code, f"Failed to {doing}: {KafkaError(refusal.code).str()}")
        return self._why

    def fail(self, code: int, text: str) -> None:
        """Make the transaction abortable. The first of several errors is kept."""
        if self.stage not in {Stage.FATAL, Stage.ABORTABLE}:
            self.stage = Stage.ABORTABLE
            self._error = failure(code, text, abort=True)
        self._give_up()

    def _take_next_epoch(self, timeout_ms: int) -> None:
        """Take the next epoch: the broker refuses all records of an epoch after a gap in a partition's sequence."""

        def bump() -> None:
            self._identity = self._wire.server.transactions.bump(self._registered)

        self._ask("init_transactions", bump, timeout_ms)
        self._begin_sequences()
        self._wants_epoch = False

    def _ask(self, call: str, do: Callable[[], None], timeout_ms: int) -> None:
        try:
            self._wire.ask_until_answered(call, do, timeout_ms, transaction=self._name)
        except RefusedRequest as refusal:
            raise self.refuse(refusal, call.replace("_", " ")) from refusal
        except (Unanswered, Busy) as silence:
            raise failure(KafkaError._TIMED_OUT, f"{call} timed out", retriable=True) from silence

    @property
    def _why(self) -> KafkaException:
        assert self._error is not None  # noqa: S101 - these stages always have an error
        return KafkaException(*self._error.args)

    @property
    def _registered(self) -> Producer:
        assert self._identity is not None  # noqa: S101 - the stages guarantee it
        return self._identity
