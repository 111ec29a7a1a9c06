"""The translation of Kafka's errors, done once.

The order of the checks matters: an error that is fatal may also be marked as retriable. An error that is neither fatal,
nor abortable, nor retriable counts as fatal, because the state that it left behind is unknown.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from tarry.errors import AbortableError, BrokerError, FatalError, RetriableError
from tarry.headers import ErrorCode

PASSING = frozenset(
    {
        # A group rebalances.
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "MEMBER_ID_REQUIRED",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "UNRELEASED_INSTANCE_ID",
        "GROUP_ID_NOT_FOUND",  # a broker has lost the group; the member's next poll reports it
        "_ASSIGNMENT_LOST",
        "_MAX_POLL_EXCEEDED",
        "_STATE",
        # A coordinator moves, or is busy with an earlier request.
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "UNSTABLE_OFFSET_COMMIT",
        "_WAIT_COORD",
        # A topic was just created, a leader has moved, or its disk fails and another replica leads soon.
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",  # the new leader does not know its high watermark yet
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "LISTENER_NOT_FOUND",
        "KAFKA_STORAGE_ERROR",
        "REASSIGNMENT_IN_PROGRESS",
        "_NOENT",  # "no leaders found", from an admin client
        # A controller moves.
        "NOT_CONTROLLER",
        "STALE_CTRL_EPOCH",
        "STALE_BROKER_EPOCH",
        # A broker is slow, away, or has had too many requests.
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "BROKER_NOT_AVAILABLE",
        "THROTTLING_QUOTA_EXCEEDED",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "REBOOTSTRAP_REQUIRED",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_FAIL",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_DESTROY_BROKER",
        "_NODE_UPDATE",
        # A response was damaged on its way, or answered an older request.
        "INVALID_MSG",
        "_PARTIAL",
        "_OUTDATED",
        "_WAIT_CACHE",
        # The client is still working on it.
        "_RETRY",
        "_IN_PROGRESS",
        "_PREV_IN_PROGRESS",
        "_INTR",
    }
)
"""Names of errors of a consumer or an admin request that are no fault of the request: it is retried later.

All others are final: the request, its sender or the data are at fault, and a retry changes nothing. A test lists all
codes of the client library, so that a new one must be classified.
"""

REFUSALS = {
    KafkaError.MSG_SIZE_TOO_LARGE: ErrorCode.TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: ErrorCode.TOO_LARGE,
    KafkaError.TOPIC_EXCEPTION: ErrorCode.BAD_TARGET,
    KafkaError.INVALID_RECORD: ErrorCode.REJECTED_BY_BROKER,
    KafkaError.POLICY_VIOLATION: ErrorCode.REJECTED_BY_BROKER,
}
"""Errors of a record that is refused for good, with the error code of its dead letter."""

ANOTHER_IS_INVALID = KafkaError._INVALID_DIFFERENT_RECORD
"""The client library's error for the valid records of a refused batch, if the broker has named the invalid ones."""

_CAUSED_BY_ANOTHER = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._FENCED,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_TXN_STATE,
        KafkaError._STATE,  # of a record that is given behind it
    }
)


def is_caused_by_another(error: KafkaError) -> bool:
    """Return whether an error of a record says that it failed only because another one of its transaction did."""
    return error.code() in _CAUSED_BY_ANOTHER


def is_refusal(error: KafkaError) -> bool:
    """Return whether a delivery report says that a record, or another record of its batch, was refused permanently."""
    return error.code() in REFUSALS or error.code() == ANOTHER_IS_INVALID


def translate(error: KafkaError, doing: str) -> BrokerError:
    """Translate an error of a transaction or a producer.

    Args:
        error: from the client library.
        doing: the action that failed, for the text: "commit the transaction".
    """
    text = f"could not {doing}: {error.str()}"
    code = error.name()
    if error.fatal():
        return FatalError(text, code)
    if error.txn_requires_abort():
        return AbortableError(text, code)
    if error.retriable():
        return RetriableError(text, code)
    return FatalError(text, code)


def translate_group(error: KafkaError, doing: str) -> BrokerError:
    """Translate an error of a consumer or of an admin request; errors of a rebalance are retriable."""
    text = f"could not {doing}: {error.str()}"
    code = error.name()
    if error.fatal():
        return FatalError(text, code)
    if code in PASSING or error.retriable():
        return RetriableError(text, code)
    return FatalError(text, code)


def error_of(exception: KafkaException) -> KafkaError:
    """Return the error that an exception of the client library carries."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)  # noqa: S101 - the client library promises this
    return error


@contextmanager
def producer_errors(doing: str) -> Iterator[None]:
    """Translate the exceptions that a producer raises inside."""
    try:
        yield
    except KafkaException as exception:
        raise translate(error_of(exception), doing) from exception


@contextmanager
def group_errors(doing: str) -> Iterator[None]:
    """Translate the exceptions that a consumer or an admin request raises inside."""
    try:
        yield
    except KafkaException as exception:
        raise translate_group(error_of(exception), doing) from exception
