"""Give up orders that are not paid in time: with a delayed message for each order, compared with polling a database.

Both ways handle the same orders, each with a database of its own; every fourth order is never paid. Polling queries
the database for overdue orders at a fixed interval, and finds each one late by up to that interval. With tarry the shop
sends a delayed message for each order, due when the time to pay is over, and cancels it by its name when the order is
paid: it stores no handle, and the database gets one query for each message that arrives.

    python -m examples.unpaid_orders --bootstrap-servers 127.0.0.1:9092
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Event, Thread

from examples.common import make_topics, options, records
from tarry.client import DelayedProducer

ORDERS = 24
UNPAID = ORDERS // 4
CREATE_EVERY_S = 0.1
PAY_WITHIN_MS = 4_000
"""The time that a customer has to pay. Those who pay do so after half of it."""
POLL_EVERY_S = 0.5
GIVE_UP = "update orders set state = 'given up' where state = 'open'"


class Shop:
    """Orders in a database; counts the queries for overdue orders.

    Args:
        created: called with the number of each new order.
        paid: called with the number of each order that was paid.
    """

    def __init__(self, created: Callable[[int], None], paid: Callable[[int], None]) -> None:
        self.queries = 0
        self.late_ms: list[int] = []
        """For each order that was given up: how long after its deadline, in milliseconds."""
        self._created = created
        self._paid = paid
        self._orders: list[int] = []
        self._next = time.monotonic()
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        self._database.execute("create table orders (id integer primary key, due_ms integer, state text)")
        self._database.execute("create index overdue on orders (state, due_ms)")

    def trade(self) -> None:
        """Create the next order if it is time for it, and pay the orders whose customers pay now."""
        if len(self._orders) < ORDERS and time.monotonic() >= self._next:
            self._next += CREATE_EVERY_S
            order = len(self._orders)
            self._orders.append(now_ms() + PAY_WITHIN_MS // 2)
            self._database.execute("insert into orders values (?, ?, 'open')", (order, now_ms() + PAY_WITHIN_MS))
            self._created(order)
        for order, pays_ms in enumerate(self._orders):
            if order % 4 and 0 < pays_ms <= now_ms():
                self._orders[order] = 0
                self._database.execute("update orders set state = 'paid' where state = 'open' and id = ?", (order,))
                self._paid(order)

    def give_up_overdue(self) -> None:
        """Close all orders that are not paid and whose deadline has passed."""
        self._give_up(f"{GIVE_UP} and due_ms <= ? returning due_ms", now_ms())

    def give_up(self, order: int) -> None:
        """Close an order, unless it is paid or closed already."""
        self._give_up(f"{GIVE_UP} and id = ? returning due_ms", order)

    def _give_up(self, query: str, value: int) -> None:
        self.queries += 1
        self.late_ms += [now_ms() - due_ms for (due_ms,) in self._database.execute(query, (value,))]

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def poll() -> Shop:
    """Query the database for overdue orders at a fixed interval, until all unpaid orders are closed."""
    with closing(Shop(lambda _order: None, lambda _order: None)) as shop:
        next_poll = time.monotonic()
        while len(shop.late_ms) < UNPAID:
            shop.trade()
            if time.monotonic() >= next_poll:
                next_poll += POLL_EVERY_S
                shop.give_up_overdue()
            time.sleep(0.001)
    return shop


def be_told(servers: str, intake: str, topic: str) -> Shop:
    """Send a delayed message for each order, due at its deadline, until all unpaid orders are closed."""
    arrived: SimpleQueue[int] = SimpleQueue()
    reading = Event()

    def read() -> None:
        for record in records(servers, topic, f"{topic}.reader", reading.set):
            order = int(record.key() or b"-1")
            arrived.put(order)
            if order == last:
                return

    last = ORDERS - 4  # the last order that is never paid
    reader = Thread(target=read, daemon=True)
    reader.start()
    if not reading.wait(60):
        raise TimeoutError(f"no reader of {topic} within a minute")
    with DelayedProducer(servers, intake) as producer:

        def created(order: int) -> None:
            producer.send(topic, b"", b"%d" % order, delay=timedelta(milliseconds=PAY_WITHIN_MS), name="unpaid")

        def paid(order: int) -> None:
            producer.cancel_named(b"%d" % order, "unpaid")

        with closing(Shop(created, paid)) as shop:
            while len(shop.late_ms) < UNPAID:
                shop.trade()
                try:
                    shop.give_up(arrived.get(timeout=0.001))
                except Empty:
                    continue
        reader.join()
    return shop


def main() -> None:
    """Run both ways, and print a comparison."""
    arguments = options(__doc__).parse_args()
    topic = f"{arguments.prefix}.unpaid"
    make_topics(arguments.bootstrap_servers, topic)
    shops = {"polling": poll(), "tarry": be_told(arguments.bootstrap_servers, arguments.intake, topic)}
    for name, shop in shops.items():
        mean_ms = sum(shop.late_ms) / len(shop.late_ms)
        print(
            f"{name}: {len(shop.late_ms)} of {ORDERS} orders given up, {shop.queries} queries, "
            f"late by {mean_ms:.0f} ms on average, {max(shop.late_ms)} ms at most, {min(shop.late_ms)} ms at least"
        )


if __name__ == "__main__":
    main()
