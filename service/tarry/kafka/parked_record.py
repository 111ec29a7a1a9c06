"""Reading a record of a parked log without parsing its request.

It is not in `partition_logs`, because a client reads logs, too, and needs nothing of what a schedule needs.
"""

from confluent_kafka import Message

from tarry.core.wheel.filed import target_of
from tarry.errors import UsageError
from tarry.kafka.record_headers import headers_of


def parked_target(record: Message) -> str | None:
    """Return the target of a record of a parked log; None if the service has not filed the record.

    Raises:
        UsageError: a later version of tarry has filed it, or its header is damaged.
    """
    try:
        return target_of(headers_of(record))
    except ValueError as error:
        raise UsageError(f"{record.topic()}/{record.partition()} at offset {record.offset()}: {error}") from error
