"""A retry topic for a consumer that uses no code of tarry's: an intake with a fixed delay.

The service delivers each record of the intake to the intake's target after the delay, with the same key, value and
headers. So a consumer that fails to handle a record copies it to the intake and continues. (This does not keep the
order of a key's records; `examples.order_life` does.) The service's configuration:

    [[intake]]
    topic = "example.orders.retry"
    delay = "1s"
    target = "example.orders"

    python -m examples.retry_topic --bootstrap-servers 127.0.0.1:9092 --intake example.orders.retry
"""

import time

from confluent_kafka import Producer

from examples.common import check_served, make_topics, options, records

FAILURES = {b"order-1": 0, b"order-2": 2, b"order-3": 1}
"""How many times handling each order fails."""


def main() -> None:
    """Send three orders, and handle them until all are done."""
    arguments = options(__doc__).parse_args()
    servers, orders = arguments.bootstrap_servers, f"{arguments.prefix}.orders"
    check_served(servers, arguments.intake)
    make_topics(servers, orders)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"})
    for order in FAILURES:
        producer.produce(orders, b"", order)
    producer.flush()

    began = time.monotonic()
    left = set(FAILURES)
    for record in records(servers, orders, f"{arguments.prefix}.billing"):
        order = record.key() or b""
        headers = dict(record.headers() or [])
        attempt = int(headers.get("attempt") or b"1")
        if attempt <= FAILURES[order]:
            print(f"{order.decode()}: attempt {attempt} fails", flush=True)
            producer.produce(arguments.intake, record.value(), order, headers={"attempt": b"%d" % (attempt + 1)})
            producer.flush()
            continue
        print(f"{order.decode()}: done, attempt {attempt}, after {time.monotonic() - began:.1f} s", flush=True)
        left.discard(order)
        if not left:
            return


if __name__ == "__main__":
    main()
