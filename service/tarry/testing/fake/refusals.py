"""What a request may end in, inside the fake cluster; and the errors that a client makes of it."""

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException


class Refused(Exception):  # noqa: N818 - an answer, and no failure
    """The cluster's answer is an error.

    Args:
        code: Kafka's.
        culprits: which records of a batch are to blame; none: all of it.
    """

    def __init__(self, code: int, culprits: Sequence[int] = ()) -> None:
        super().__init__(KafkaError(code).name())
        self.code = code
        self.culprits = culprits


class Busy(Exception):  # noqa: N818 - an answer, and no failure
    """The cluster's answer is: not yet. The client asks again.

    Args:
        code: what it says where patience ends.
        over: whether it would go through now.
    """

    def __init__(self, code: int, over: Callable[[], bool]) -> None:
        super().__init__(KafkaError(code).name())
        self.code = code
        self.over = over


class Unanswered(Exception):  # noqa: N818 - a silence, and no failure
    """No answer came within the time-out."""


class AnswerLost(Exception):  # noqa: N818 - a silence, and no failure
    """It was done, and the answer was lost."""


class ProcessKilled(BaseException):
    """A client of a process that was killed was asked for something: its stack is to unwind."""


def failure(
    code: int, reason: str | None = None, *, fatal: bool = False, retriable: bool = False, abort: bool = False
) -> KafkaException:
    """An exception as the client library raises it.

    Args:
        code: Kafka's or the library's own.
        reason: the text; None: the library's for that code.
        fatal: the client is lost.
        retriable: the call may be made again.
        abort: the transaction must be aborted.
    """
    error = KafkaError(
        code, reason or KafkaError(code).str(), fatal=fatal, retriable=retriable, txn_requires_abort=abort
    )
    return KafkaException(error)
