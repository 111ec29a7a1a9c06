"""Kafka's errors, translated once.

The order matters: an error that is fatal may also call itself retriable. One that is neither fatal, nor asks for an
abort, nor may be retried counts as fatal: what it left behind is not known.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from tarry.errors import AbortableError, BrokerError, FatalError, RetriableError

PASSING = frozenset(
    {
        # A group moves on.
        "REBALANCE_IN_PROGRESS",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "MEMBER_ID_REQUIRED",
        "STALE_MEMBER_EPOCH",
        "FENCED_MEMBER_EPOCH",
        "UNRELEASED_INSTANCE_ID",
        "GROUP_ID_NOT_FOUND",  # a broker has lost it, and whoever polls finds out
        "_ASSIGNMENT_LOST",
        "_MAX_POLL_EXCEEDED",
        "_STATE",
        # A coordinator moves, or is busy with what was asked before.
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "CONCURRENT_TRANSACTIONS",
        "UNSTABLE_OFFSET_COMMIT",
        "_WAIT_COORD",
        # A topic was just made, a leader has moved, or its disk fails and another leads soon.
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
        # What came was damaged on its way, or was an answer to an older question.
        "INVALID_MSG",
        "_PARTIAL",
        "_OUTDATED",
        "_WAIT_CACHE",
        # The client is still at it.
        "_RETRY",
        "_IN_PROGRESS",
        "_PREV_IN_PROGRESS",
        "_INTR",
    }
)
"""Names of refusals of a consumer or an admin request that say nothing about what was asked: it is asked again later.

All others are final: the request, its sender or the data are at fault, and asking again changes nothing. A test holds
the whole list of the library's codes, so that a new one has to be put on one side.
"""


def translate(error: KafkaError, doing: str) -> BrokerError:
    """Turn an error of a transaction or a producer into ours.

    Args:
        error: as the client library gives it.
        doing: what was tried, for the text: "commit the transaction".
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
    """Turn an error of a consumer or of an admin request into ours: the moves of a group are to be retried."""
    text = f"could not {doing}: {error.str()}"
    code = error.name()
    if error.fatal():
        return FatalError(text, code)
    if code in PASSING or error.retriable():
        return RetriableError(text, code)
    return FatalError(text, code)


def error_of(exception: KafkaException) -> KafkaError:
    """The error that an exception of the client library carries."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)  # noqa: S101 - the library's own promise
    return error


@contextmanager
def producer_errors(doing: str) -> Iterator[None]:
    """Raise what a producer raises inside as one of ours."""
    try:
        yield
    except KafkaException as exception:
        raise translate(error_of(exception), doing) from exception


@contextmanager
def group_errors(doing: str) -> Iterator[None]:
    """Raise what a consumer or an admin request raises inside as one of ours."""
    try:
        yield
    except KafkaException as exception:
        raise translate_group(error_of(exception), doing) from exception
