"""Produces records as a C client can: with header names of any bytes.

Clients in Python and Java write names as UTF-8. librdkafka and the brokers accept any bytes.
"""

import ctypes
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_PRODUCER, _COPY = 0, 2
_END, _TOPIC, _PARTITION, _VALUE, _KEY, _FLAGS, _HEADERS = 0, 1, 3, 4, 5, 7, 10


def _library() -> Any:
    package = Path(str(import_module("confluent_kafka").__file__)).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*")]
    library = ctypes.CDLL(str(found[0]))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new", "rd_kafka_headers_copy"):
        getattr(library, name).restype = ctypes.c_void_p
    return library


def produce_raw(
    servers: str,
    topic: str,
    headers: Sequence[tuple[bytes, bytes | None]],
    key: bytes = b"",
    value: bytes = b"",
    partition: int = -1,
    times: int = 1,
) -> None:
    """Write a record a number of times, and wait for the acknowledgements."""
    library = _library()
    told = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    for name, text in ((b"bootstrap.servers", servers.encode()), (b"acks", b"all")):
        assert library.rd_kafka_conf_set(conf, name, text, told, ctypes.c_size_t(len(told))) == 0, told.value
    client = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, told, ctypes.c_size_t(len(told))))
    assert client.value, told.value
    size = ctypes.c_size_t
    arguments: list[Any] = [_TOPIC, topic.encode(), _PARTITION, ctypes.c_int32(partition), _FLAGS, _COPY]
    arguments += [_KEY, key, size(len(key)), _VALUE, value, size(len(value))]
    own = ctypes.c_void_p(library.rd_kafka_headers_new(size(len(headers))))
    for name, content in headers:
        sizes = ctypes.c_ssize_t(len(name)), ctypes.c_ssize_t(len(content or b""))
        assert library.rd_kafka_header_add(own, name, sizes[0], content, sizes[1]) == 0
    for _ in range(times):
        copied = ctypes.c_void_p(library.rd_kafka_headers_copy(own))
        assert library.rd_kafka_producev(client, *arguments, _HEADERS, copied, _END) == 0
    library.rd_kafka_headers_destroy(own)
    assert library.rd_kafka_flush(client, 10_000) == 0
    library.rd_kafka_destroy(client)


def as_text(name: bytes) -> str | bytes:
    """Return a name in the form that the simulated broker takes: text if it is UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name
