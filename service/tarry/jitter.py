"""The jitter of a message with `tarry-window-ms`: how much later it is due than the time that it asks for.

It follows from the message's id alone. So the service computes the same due time each time it reads the record, and a
client computes it for the handle. The ids of many messages spread them evenly over the window.

    window 1000, id 00000000-0000-0000-0000-000000000000: 8 bytes of BLAKE2b-128 of 16 zero bytes, modulo 1000
"""

from hashlib import blake2b

from tarry.headers import id_bytes


def jitter_ms(message_id: bytes, window_ms: int) -> int:
    """Return the jitter of a message.

    It is the first 8 bytes, big-endian, of BLAKE2b-128 of the id's 16 bytes, modulo the window.

    Args:
        message_id: 36 ASCII characters.
        window_ms: at least 1.

    Returns:
        Milliseconds from 0 to `window_ms` - 1.
    """
    return int.from_bytes(blake2b(id_bytes(message_id), digest_size=16).digest()[:8]) % window_ms
