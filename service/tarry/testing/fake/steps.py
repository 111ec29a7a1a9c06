"""The steps of a simulation. Each request to the cluster has two: before it arrives, and after it is executed."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal


class Fate(Enum):
    """A fault of a request or of its answer."""

    LOSE_ANSWER = auto()
    """The cluster has executed the request, but its answer never reaches the client."""
    WANT_ABORT = auto()
    """The cluster does not execute the request, and answers that the transaction must be aborted."""


@dataclass(frozen=True, slots=True)
class Step:
    """One side of a request.

    Attributes:
        process: the name of the client's process.
        call: the request, such as `commit_transaction`.
        phase: `before` the request reaches the cluster, or `after` it is executed and before the client has the answer.
        number: the number of this step among all steps of the cluster.
        transaction: the transactional id, if the request belongs to a transaction; else empty.
    """

    process: str
    call: str
    phase: Literal["before", "after"]
    number: int
    transaction: str = ""


Hook = Callable[[Step], Fate | None]
"""Called for each step.

It may raise, advance the clock, or run other processes. In phase `before` it may return `Fate.WANT_ABORT`, in phase
`after` `Fate.LOSE_ANSWER`.
"""
