"""Kafka's errors, translated once.

The order matters: an error that is fatal may also call itself retriable. One that is neither fatal, nor asks for an
abort, nor may be retried counts as fatal: what it left behind is not known.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from tarry.errors import AbortableError, BrokerError, FatalError, RetriableError

# Refusals while a group moves on or a cluster settles: what was asked is asked again after the next poll.
_PASSING = frozenset(
    {
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.REQUEST_TIMED_OUT,
        # A topic just made, or a leader just moved.
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError._NOENT,  # "no leaders found", from an admin client
        KafkaError._TIMED_OUT,
        KafkaError._WAIT_COORD,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
    }
)


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
    if error.code() in _PASSING or error.retriable():
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
