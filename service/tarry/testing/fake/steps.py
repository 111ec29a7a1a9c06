"""The steps of a simulation: every request to the cluster, before it gets there and after it is done."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal


class Fate(Enum):
    """What may happen to a request, or to its answer."""

    LOSE_ANSWER = auto()
    """The cluster has done it, and the client never hears of it."""
    WANT_ABORT = auto()
    """The cluster does nothing, and answers that the transaction is to be aborted."""


@dataclass(frozen=True, slots=True)
class Step:
    """One side of a request.

    Attributes:
        process: whose client makes it.
        call: what is asked for, such as `commit_transaction`.
        phase: `before` it reaches the cluster, or `after` it is done and before the client has the answer.
        number: counts all steps of the cluster.
    """

    process: str
    call: str
    phase: Literal["before", "after"]
    number: int


Hook = Callable[[Step], Fate | None]
"""Is told of each step.

It may raise, let time pass, run other processes, and in phase `before` want a transaction aborted, or in phase `after`
lose an answer.
"""
