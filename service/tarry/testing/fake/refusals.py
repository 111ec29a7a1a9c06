"""The outcomes of a failed request inside the fake cluster, and the errors that a client raises for them."""

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException


class RefusedRequest(Exception):  # noqa: N818 - an answer, and no failure
    """The cluster's answer is an error.

    Args:
        code: Kafka's error code.
        culprits: the indexes of the bad records of a batch; empty: the whole batch.
    """

    def __init__(self, code: int, culprits: Sequence[int] = ()) -> None:
        super().__init__(KafkaError(code).name())
        self.code = code
        self.culprits = culprits


class Busy(Exception):  # noqa: N818 - an answer, and no failure
    """The cluster's answer is a retriable error, and the client asks again.

    Args:
        code: the error code for the application, if the client gives up.
        over: returns whether the request would succeed now.
    """

    def __init__(self, code: int, over: Callable[[], bool]) -> None:
        super().__init__(KafkaError(code).name())
        self.code = code
        self.over = over


class Unanswered(Exception):  # noqa: N818 - a silence, and no failure
    """The cluster did not answer within the timeout."""


class AnswerLost(Exception):  # noqa: N818 - a silence, and no failure
    """The cluster executed the request, but its answer was lost."""


class ProcessKilled(BaseException):
    """A client of a killed process was called. This exception unwinds the stack of that process."""


def failure(
    code: int, reason: str | None = None, *, fatal: bool = False, retriable: bool = False, abort: bool = False
) -> KafkaException:
    """Return an exception as the client library raises it.

    Args:
        code: the error code of Kafka or of the library.
        reason: the text; None: the library's text for the code.
        fatal: whether the client cannot be used any more.
        retriable: whether the call may be repeated.
        abort: whether the transaction must be aborted.
    """
    error = KafkaError(
        code, reason or KafkaError(code).str(), fatal=fatal, retriable=retriable, txn_requires_abort=abort
    )
    return KafkaException(error)
