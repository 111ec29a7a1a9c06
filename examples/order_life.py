"""The life of an order: create, pay, ship, receive. It ships only after it is paid, even if paying takes long.

Each step is a message whose key is the order's number. The payment of order-1 fails three times and is retried
according to the policy. The order's next steps wait for it, in their order; the other order continues.

    python -m examples.order_life --bootstrap-servers 127.0.0.1:9092
"""

from itertools import islice
from threading import Thread

from confluent_kafka import Producer

from examples.common import make_topics, options, records
from tarry.client.retry import HandlerTransaction, RetryingConsumer, RetryMessage, RetryPolicy

LIFE = (b"create", b"pay", b"ship", b"receive")
ORDERS = (b"order-1", b"order-2")


class PaymentError(Exception):
    """The card was declined."""


def main() -> None:
    """Send the steps of two orders, handle them, and print the sequence in which each order's steps were done."""
    arguments = options(__doc__).parse_args()
    servers, prefix = arguments.bootstrap_servers, arguments.prefix
    steps, done = f"{prefix}.steps", f"{prefix}.done"
    make_topics(servers, steps, done)

    def handle(message: RetryMessage, transaction: HandlerTransaction) -> None:
        order, step = (message.key or b"").decode(), (message.value or b"").decode()
        if (order, step) == ("order-1", "pay") and message.attempt <= 3:
            print(f"{order} {step}: fails, attempt {message.attempt}", flush=True)
            raise PaymentError("card declined")
        print(f"{order} {step}: done, attempt {message.attempt}", flush=True)
        # Exactly once: this record and the message's offset are committed in the same transaction.
        transaction.produce(done, message.value, message.key)

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"})
    for step in LIFE:
        for order in ORDERS:
            producer.produce(steps, step, order)
    producer.flush()

    policy = RetryPolicy(first_ms=500, factor=2.0, longest_ms=30_000, jitter=0.0)
    consumer = RetryingConsumer(servers, steps, f"{prefix}.fulfilment", handle, policy, intake=arguments.intake)
    running = Thread(target=consumer.run)
    running.start()
    lives: dict[bytes, list[str]] = {order: [] for order in ORDERS}
    for record in islice(records(servers, done, f"{prefix}.reader"), len(ORDERS) * len(LIFE)):
        lives[record.key() or b""].append((record.value() or b"").decode())
    consumer.stop()
    running.join()
    for order, life in lives.items():
        print(f"{order.decode()}: {', '.join(life)}")


if __name__ == "__main__":
    main()
