"""Two requests of Kafka's protocol that no client sends by themselves, on a connection of their own.

With them a test leaves behind what only a fault of a broker leaves behind: offsets of a transaction that is over.
"""

import socket
import struct
from typing import Final

from tarry.kafka.types import Place
from tests.support.chaos import INIT_PRODUCER_ID, TXN_OFFSET_COMMIT

TIMEOUT_S: Final = 20.0


def register(bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> tuple[int, int]:
    """Register a transactional id, as `init_transactions` does; return the producer's id and epoch."""
    body = _string(transactional_id) + struct.pack(">i", timeout_ms)
    answer = _ask(bootstrap, INIT_PRODUCER_ID, 1, body)
    _throttle_ms, error, producer, epoch = struct.unpack_from(">ihqh", answer)
    assert error == 0, f"InitProducerId: error {error}"
    return producer, epoch


def send_offset(
    bootstrap: str, transactional_id: str, producer: tuple[int, int], group: str, place: Place, offset: int
) -> None:
    """Send an offset to the group's coordinator as a part of a transaction, which nobody has told it of."""
    topic, partition = place
    body = _string(transactional_id) + _string(group) + struct.pack(">qh", *producer)
    body += struct.pack(">i", 1) + _string(topic) + struct.pack(">iiq", 1, partition, offset) + _string("")
    answer = _ask(bootstrap, TXN_OFFSET_COMMIT, 0, body)
    (error,) = struct.unpack_from(">h", answer, len(answer) - 2)
    assert error == 0, f"TxnOffsetCommit: error {error}"


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _ask(bootstrap: str, api_key: int, version: int, body: bytes) -> bytes:
    """Return the answer of the only broker, without its header."""
    host, _, port = bootstrap.rpartition(":")
    request = struct.pack(">hhi", api_key, version, 1) + _string("test") + body
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            return answers.read(size)[4:]
