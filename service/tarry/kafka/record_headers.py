"""The headers of a record, even if the client library cannot return them.

Kafka accepts any bytes as a header's name, but confluent-kafka (2.16) only UTF-8. If a name is not UTF-8, `headers()`
raises SystemError. A second call returns a list whose tuples have a hole (a null pointer) in place of such a name. The
values and all other names are there, but touching a hole crashes the process. The garbage collector knows of holes, and
tells what else a tuple holds. The error contains the bytes of the first such name; those of further ones are lost.

A plain `record.headers()` does not detect this reliably: after some calls, CPython (3.11 and later) calls the method
without checking for a pending error. Then it returns the list with its holes, and the error is raised somewhere later.
"""

from collections.abc import Callable
from gc import get_referents
from operator import methodcaller
from typing import Any

from confluent_kafka import Message

from tarry.core.message import Headers

LOST_NAME = "\N{REPLACEMENT CHARACTER}"
"""Stands for a name whose bytes are lost."""

read_headers: Callable[[Message], Headers | None] = methodcaller("headers")
"""`record.headers()`, which raises SystemError each time that a name is not UTF-8: then go on with `saved_headers`."""


def headers_of(record: Message) -> Headers:
    """Return all headers of a record; names that are not UTF-8 are replaced as `saved_headers` does."""
    try:
        return list(read_headers(record) or [])
    except SystemError as error:
        return saved_headers(record, error)


def saved_headers(record: Message, error: SystemError) -> Headers:
    r"""Return the headers of a record after `read_headers` has raised an error.

    Args:
        record: the record.
        error: the error.

    Returns:
        All headers in their order, with their values. The first name that is not UTF-8 is written with `\x` for its bad
        bytes; any further one is `LOST_NAME`.
    """
    first: str | None = _readable(_undecodable(error))
    headers: Headers = []
    holes: list[Any] = list(read_headers(record) or [])
    for pair in holes:
        parts = get_referents(pair)
        named = len(parts) > 1
        value = next((part for part in parts if not isinstance(part, str)), None)
        name = next((part for part in parts if isinstance(part, str)), None) if named else first
        if not named:
            first = LOST_NAME
        headers.append((LOST_NAME if name is None else name, value))
    return headers


def _undecodable(error: BaseException) -> bytes:
    """Return the first name that the client library could not decode, from the chain of errors."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnicodeDecodeError):
            return cause.object
        cause = cause.__cause__
    return b""


def _readable(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace") or LOST_NAME
