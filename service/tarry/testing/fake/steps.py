"""The steps of a simulation: every request to the cluster, before it gets there and after it is done."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal


class Fate(Enum):
    """What may happen to the answer of a request."""

    LOSE_ANSWER = auto()
    """The cluster has done it, and the client never hears of it."""


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
"""Is told of each step; may raise, let time pass, run other processes, or lose an answer in phase `after`."""
