"""Injects faults into services and brokers, and measures the recovery."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.ports import HOST, free_port
from tarry.testing import PRODUCE, Fault
from tarry.testing.proxy import Side
from tarry.testing.serve import ServeError
from tests.support.brokers import is_alive
from tests.support.checker import Arrived
from tests.support.further_broker import FurtherBroker
from tests.support.processes import Serve
from tests.support.proxy_process import ProxyProcess
from tests.support.reader import Reader
from tests.support.workload import Workload

SERVED_WITHIN_S: Final = 60.0

ENDED_AT_ONCE: Final = 128 + signal.SIGTERM
"""The exit code of a service that SIGTERM ends before it has started its processes."""

ABORTED: Final = 128 + signal.SIGABRT
BY_THE_CLIENT_LIBRARY: Final = "rd_kafka_enq_once_del_source_return: Assertion `eonce->refcnt > 0' failed"
"""What librdkafka says when it aborts the process: a connection ended while it was asked about a group (#4605)."""

INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28
"""API keys of Kafka's protocol."""

TRANSACTION_REQUESTS: Final = (
    PRODUCE,
    INIT_PRODUCER_ID,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)


class Watch:
    """Detects from arriving messages when every partition is served again.

    A delivered message shows that its partition's owner has read all records before it. So the services have recovered
    when, from each partition, a message has arrived that was sent after the fault. This also works for faults that the
    services do not log, such as a stopped process, or a lost broker or connection.

    Args:
        workload: keeps sending to all partitions.
        reader: reads all targets.
    """

    def __init__(self, workload: Workload, reader: Reader) -> None:
        self.took_s: list[float] = []
        """For each fault, how long it took until all partitions were served again."""
        self._workload = workload
        self._reader = reader

    @contextmanager
    def harm(self, within_s: float = SERVED_WITHIN_S) -> Iterator[None]:
        """A context whose block injects a fault, and undoes it if necessary; at its end, wait for the recovery.

        Raises:
            AssertionError: the services have not recovered in time.
        """
        began = time.monotonic()
        yield
        self.wait_served(within_s)
        self.took_s.append(time.monotonic() - began)

    def wait_served(self, within_s: float = SERVED_WITHIN_S) -> None:
        """Wait until every partition was read beyond its present end, and then a second time.

        Twice, because the first partitions may move to another owner before the last one is served.

        Raises:
            AssertionError: one of the waits takes too long.
        """
        for _ in range(2):
            sent = self._workload.newest
            arrived = self._reader.newest
            self._reader.wait_until(
                lambda _: all(arrived.get(place, -1) > offset for place, offset in sent.items()),  # noqa: B023 (called here)
                f"message behind {sent}, and these are the last: {arrived}; none",
                within_s,
            )


class Wire:
    """Injects faults into connections through a proxy. Each fault is short, and is undone at its end.

    Args:
        proxy: the proxy between services and broker.
        choose: the random source of all choices.
    """

    def __init__(self, proxy: ProxyProcess, choose: random.Random) -> None:
        self._proxy = proxy
        self._choose = choose

    def harm(self) -> str:
        """Inject a random fault; return its name."""
        harms = (self.cut, self.half_close, self.slow_down, self.stall, self.cut_at_a_request)
        done = self._choose.choice(harms)
        done()
        return done.__name__

    def cut(self) -> None:
        """Reset all connections."""
        self._proxy.cut()

    def half_close(self) -> None:
        """End one direction of all connections."""
        self._proxy.half_close(self._choose.choice(list(Side)))

    def slow_down(self) -> None:
        """Delay every frame for a while."""
        self._proxy.delay(self._choose.uniform(0.01, 0.3))
        time.sleep(self._choose.uniform(0.5, 3))
        self._proxy.delay(0)

    def stall(self) -> None:
        """Stop all traffic for a while, which may be longer than a session."""
        self._proxy.stall()
        time.sleep(self._choose.uniform(0.5, 8))
        self._proxy.resume()

    def cut_at_a_request(self) -> None:
        """Reset the connection of the next requests of a kind, before the broker has them or before it answers."""
        fault = self._choose.choice((Fault.CUT_AT_REQUEST, Fault.CUT_AT_RESPONSE))
        self._proxy.plan(fault, self._choose.choice(TRANSACTION_REQUESTS), self._choose.randint(1, 3))


class Chaos:
    """Injects faults into services, their broker and their connections, and undoes them.

    Args:
        services: the running services.
        broker: their broker, which nothing else uses.
        wire: their connections.
        choose: the random source of all choices.
        further: a second broker with the only replica of one of the service's own partitions, which has no leader while
            this broker is stopped.
        kills_broker: whether the broker is also killed, and not only restarted. If KIP-848 members join while a killed
            broker comes back, it may never serve their group again (docs/guarantees.md).
    """

    def __init__(
        self,
        services: Sequence[Serve],
        broker: EmbeddedBroker,
        wire: Wire,
        choose: random.Random,
        *,
        kills_broker: bool = True,
        further: FurtherBroker | None = None,
    ) -> None:
        self.done: Counter[str] = Counter()
        self._kills_broker = kills_broker
        self._further = further
        self._services = list(services)
        self._broker = broker
        self._wire = wire
        self._choose = choose

    def strike(self) -> None:
        """Inject a random fault, and one time in three a second one before the recovery from the first."""
        self.start_aborted()
        for _ in range(self._choose.choice((1, 1, 2))):
            harm = self._choose.choice(
                (
                    self.worker_killed,
                    self.worker_killed,
                    self.service_killed,
                    self.worker_stopped,
                    self.service_stopped,
                    self.broker_killed if self._kills_broker else self.broker_restarted,
                    self.broker_restarted,
                    self.services_rolled,
                    self.connections_harmed,
                    self.connections_harmed,
                    *([self.partition_taken_away] if self._further is not None else []),
                )
            )
            harm()
            self.done[harm.__name__] += 1

    def start_aborted(self) -> None:
        """Start the services again that the client library has aborted, as the platform of a service does.

        Raises:
            ServeError: one has ended for another reason.
        """
        for serve in self._services:
            try:
                serve.check_running()
            except ServeError:
                if BY_THE_CLIENT_LIBRARY not in serve.tail(100) or serve.wait_ended() != ABORTED:
                    raise
                self.done["aborted by the client library"] += 1
                serve.start().wait_serving()

    def worker_killed(self) -> None:
        """kill -9 of a process under its supervisor."""
        if (pid := self._worker()) is not None:
            os.kill(pid, signal.SIGKILL)

    def service_killed(self) -> None:
        """kill -9 of a supervisor, and so of all its processes."""
        serve = self._choose.choice(self._services)
        serve.kill()
        time.sleep(self._choose.uniform(0, 4))
        serve.start()

    def worker_stopped(self) -> None:
        """SIGSTOP of a process, for less than a session or for more."""
        if (pid := self._worker()) is not None:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self._choose.uniform(0.5, 10))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def service_stopped(self) -> None:
        """SIGSTOP of a supervisor and all its processes."""
        pid = self._choose.choice(self._services).pid
        os.killpg(pid, signal.SIGSTOP)
        time.sleep(self._choose.uniform(0.5, 10))
        os.killpg(pid, signal.SIGCONT)

    def broker_killed(self) -> None:
        """kill -9 of the broker."""
        self._broker.kill()
        time.sleep(self._choose.uniform(0, 4))
        self._broker.start()

    def broker_restarted(self) -> None:
        """Stop the broker with SIGTERM, and start it again."""
        self._broker.restart()

    def services_rolled(self) -> None:
        """A rolling restart: end each service with SIGTERM and start it again, one after the other."""
        for serve in self._services:
            code = serve.stop()
            # A service that another fault has just started again has nothing to hand over, and ends at once.
            if code != 0 and (code != ENDED_AT_ONCE or serve.events("starting")):
                raise AssertionError(f"{serve.name} ended with {code} after SIGTERM\n{serve.tail()}")
            serve.start().wait_serving()

    def partition_taken_away(self) -> None:
        """A partition of one of the service's own topics has no leader for a while."""
        if self._further is not None:
            self._further.stop()
            time.sleep(self._choose.uniform(0, 20))
            self._further.start()

    def connections_harmed(self) -> None:
        """A random fault of `Wire`."""
        self.done[f"connections: {self._wire.harm()}"] += 1

    def _worker(self) -> int | None:
        """Return a running worker process, if there is one."""
        pids = [pid for serve in self._services for pid in serve.workers.values() if is_alive(pid)]
        return self._choose.choice(pids) if pids else None


@contextmanager
def proxied_broker(start: Callable[..., EmbeddedBroker]) -> Iterator[tuple[ProxyProcess, EmbeddedBroker]]:
    """Start a broker with a listener behind a proxy; its plain listener bypasses the proxy.

    Args:
        start: starts an embedded broker, given its properties.
    """
    port = free_port()
    with ProxyProcess(port) as proxy:
        listener = {
            "listeners": f"PROXIED://{HOST}:{port}",
            "advertised.listeners": f"PROXIED://{proxy.address}",
            "listener.security.protocol.map": "PROXIED:PLAINTEXT",
        }
        yield proxy, start(properties=listener)


def first_fired_ms(arrived: Iterable[Arrived], places: Collection[str], after_ms: int) -> dict[str, int]:
    """Return when the first message that is due after a time was seen, for each partition; epoch milliseconds.

    Raises:
        AssertionError: no such message has come from one of the partitions.
    """
    first: dict[str, int] = {}
    for arrival in arrived:
        place = arrival.source.rpartition("/")[0]
        if place in places and int(arrival.due_ms) > after_ms:
            first[place] = min(arrival.seen_ms, first.get(place, arrival.seen_ms))
    if missing := set(places).difference(first):
        raise AssertionError(f"nothing that was due later has arrived from {sorted(missing)}")
    return first


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T"


def now_ms() -> int:
    """Wall time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def pause(choose: random.Random, shortest_s: float, longest_s: float) -> None:
    """Let the service work for a random time. This sleep is not a synchronisation: the test needs time to pass."""
    time.sleep(choose.uniform(shortest_s, longest_s))


def kill_and_start(serve: Serve, choose: random.Random, times: int, longest_s: float) -> None:
    """kill -9 at random moments: usually while the service serves, one time in four while it is starting again."""
    for _ in range(times):
        if choose.random() < 0.75:
            serve.wait_serving()
            pause(choose, 0.1, longest_s)
        else:
            pause(choose, 0.3, 1.0)
        serve.kill()
        serve.start()
    serve.wait_serving()
