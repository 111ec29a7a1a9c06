"""The state of the cluster: one broker, which is leader of all partitions and coordinator of all groups."""

from functools import partial
from random import Random
from typing import Protocol

from tarry.testing.fake.groups import Groups
from tarry.testing.fake.process import ClientProcess
from tarry.testing.fake.quota import Quota
from tarry.testing.fake.steps import Hook
from tarry.testing.fake.topics import Topics
from tarry.testing.fake.transactions import Transactions
from tarry.testing.manual_clock import ManualClock


class Member(Protocol):
    """A client that is a member of a group."""

    @property
    def process(self) -> ClientProcess:
        """The process of the client."""
        ...

    def end_session_after(self, stops: int) -> None:
        """Called when the cluster stops. The session expires if the cluster does not answer in time."""
        ...

    @property
    def id(self) -> str:
        """The member id."""
        ...

    def forget(self, group: str, code: int) -> bool:
        """If this is a member of the group, have its next heartbeat fail fatally; return whether it is one."""
        ...

    def wedge(self, group: str) -> bool:
        """If this is a member of the group, have it do nothing until it is closed; return whether it is one."""
        ...

    def still_is(self, group: str, instance: str) -> bool:
        """Return whether it sends heartbeats for an instance."""
        ...


class Server:
    """The logs, groups, transactions and client processes of the cluster.

    Args:
        clock: the clock of all parts.
        random: the source of all random choices.
        marker_lag_ms: how long a transaction marker takes: minimum and maximum.
        latency_ms: how long a request takes: minimum and maximum.
        fetch_most: the largest number of records that a fetch returns; None: no limit.
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
        """The number of times that the cluster was stopped."""
        self.steps = 0
        """The number of steps so far."""
        self.longest_wait_ms: int | None = None
        """How long a consumer waits for records at most, whatever its timeout; None: as long as its timeout."""
        self.members: list[Member] = []
        """Clients that are members of groups."""
        self._latency_ms = latency_ms
        self._fetch_most = fetch_most
        self._processes: dict[str, ClientProcess] = {}
        self.quota = Quota(clock)
        self.topics = Topics(self._topic_changed)
        self.groups = Groups(clock, random, self.topics.count, lambda: self.running)
        self.transactions = Transactions(
            clock, self.topics, self.groups, lambda: self.running, partial(random.randint, *marker_lag_ms)
        )

    def process(self, name: str, hook: Hook | None) -> ClientProcess:
        """Return the living process with this name; create one if there is none."""
        found = self._processes.get(name)
        if found is None or not found.alive:
            found = self._processes[name] = ClientProcess(name, hook)
        found.hook = hook
        return found

    def living(self, name: str) -> ClientProcess | None:
        """Return the living process with this name, or None."""
        found = self._processes.get(name)
        return found if found is not None and found.alive else None

    def draw_fetched(self, most: int) -> int:
        """Draw how many of the records that a consumer asks for have arrived."""
        return most if self._fetch_most is None else min(most, self.random.randint(1, self._fetch_most))

    def draw_latency_ms(self) -> int:
        """Draw how long a request takes."""
        return self.random.randint(*self._latency_ms)

    def answers(self, group: str | None = None) -> bool:
        """Return whether the cluster would answer a request now: with `group`, a request to its coordinator."""
        if not self.running:
            return False
        return group is None or self.groups.of(group).away_until_ms <= self.clock.monotonic_ms()

    def stop(self) -> None:
        """Stop answering requests."""
        self.running = False
        self.stops += 1
        for member in self.members:
            member.end_session_after(self.stops)

    def start(self) -> None:
        """Answer requests again."""
        self.running = True
        self.groups.begin_sessions()

    def _topic_changed(self, name: str) -> None:
        if self.topics.count(name) == 0:
            self.groups.forget_topic(name)
        self.groups.look_again()
