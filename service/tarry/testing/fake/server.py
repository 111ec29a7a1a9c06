"""The cluster's own state: one broker that is leader and coordinator of everything."""

from functools import partial
from random import Random
from typing import Protocol

from tarry.testing.fake.groups import Groups
from tarry.testing.fake.process import Process
from tarry.testing.fake.quota import Quota
from tarry.testing.fake.steps import Hook
from tarry.testing.fake.topics import Topics
from tarry.testing.fake.transactions import Transactions
from tarry.testing.manual_clock import ManualClock


class Member(Protocol):
    """A client that is a member of a group."""

    @property
    def process(self) -> Process:
        """Whose it is."""
        ...

    def end_session_after(self, stops: int) -> None:
        """The cluster has stopped; end the session when it does not answer in time."""
        ...

    @property
    def id(self) -> str:
        """Its member id."""
        ...

    def forget(self, group: str, code: int) -> bool:
        """Its next heartbeat is refused for good, if it is of that group; whether it is."""
        ...

    def wedge(self, group: str) -> bool:
        """Do nothing more until it is closed, if it is of that group; whether it is."""
        ...

    def still_is(self, group: str, instance: str) -> bool:
        """Whether it sends heartbeats for an instance."""
        ...


class Server:
    """Logs, groups, transactions, and the processes whose clients ask for them.

    Args:
        clock: of everything.
        random: of every choice.
        marker_lag_ms: how long a marker takes, at least and at most.
        latency_ms: how long a request takes, at least and at most.
        fetch_most: the most records that a fetch brings; None for no limit.
    """

    def __init__(
        self,
        clock: ManualClock,
        random: Random,
        marker_lag_ms: tuple[int, int],
        latency_ms: tuple[int, int],
        fetch_most: int | None,
    ) -> None:
        self.clock = clock
        self.random = random
        self.running = True
        self.stops = 0
        """How often it was stopped."""
        self.steps = 0
        """How many there have been."""
        self.members: list[Member] = []
        """Clients that are members of groups."""
        self._latency_ms = latency_ms
        self._fetch_most = fetch_most
        self._processes: dict[str, Process] = {}
        self.quota = Quota(clock)
        self.topics = Topics(self._topic_changed)
        self.groups = Groups(clock, random, self.topics.count, lambda: self.running)
        self.transactions = Transactions(
            clock, self.topics, self.groups, lambda: self.running, partial(random.randint, *marker_lag_ms)
        )

    def process(self, name: str, hook: Hook | None) -> Process:
        """The living process of a name, which may be a new one."""
        found = self._processes.get(name)
        if found is None or not found.alive:
            found = self._processes[name] = Process(name, hook)
        found.hook = hook
        return found

    def living(self, name: str) -> Process | None:
        """The living process of a name, or None."""
        found = self._processes.get(name)
        return found if found is not None and found.alive else None

    def draw_fetched(self, most: int) -> int:
        """How many records have arrived of those that a consumer asks for."""
        return most if self._fetch_most is None else min(most, self.random.randint(1, self._fetch_most))

    def draw_latency_ms(self) -> int:
        """How long a request takes."""
        return self.random.randint(*self._latency_ms)

    def answers(self, group: str | None = None) -> bool:
        """Whether a request would be answered; one to a group's coordinator where a group is named."""
        if not self.running:
            return False
        return group is None or self.groups.of(group).away_until_ms <= self.clock.monotonic_ms()

    def stop(self) -> None:
        """Answer nobody."""
        self.running = False
        self.stops += 1
        for member in self.members:
            member.end_session_after(self.stops)

    def start(self) -> None:
        """Answer again."""
        self.running = True
        self.groups.begin_sessions()

    def _topic_changed(self, name: str) -> None:
        if self.topics.count(name) == 0:
            self.groups.forget_topic(name)
        self.groups.look_again()
