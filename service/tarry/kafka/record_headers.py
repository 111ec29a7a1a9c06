"""The headers of a record that was read, also where the client library cannot give them out.

Kafka takes any bytes for a header's name, and confluent-kafka (2.16) only UTF-8. Where a name is something else,
`headers()` raises SystemError, and a second call gives a list whose tuples have a hole in place of such a name: values
and all other names are there, but a touch of the hole ends the process. The garbage collector knows of holes, and says
what a tuple holds beside one. The bytes of the first such name stand in the error; those of further ones are lost.

A plain `record.headers()` is no way to find out: where it has run some times, CPython (3.11 and later) calls the method
without a look at what it left behind. Then it gives the list with its holes, and the error comes up somewhere behind.
"""

from collections.abc import Callable
from gc import get_referents
from operator import methodcaller
from typing import Any

from confluent_kafka import Message

from tarry.core.message import Headers

LOST_NAME = "\N{REPLACEMENT CHARACTER}"
"""Stands for a name whose bytes cannot be had."""

read_headers: Callable[[Message], Headers | None] = methodcaller("headers")
"""`record.headers()`, which raises SystemError each time that a name is not UTF-8: then go on with `saved_headers`."""


def headers_of(record: Message) -> Headers:
    """All headers of a record, those whose names are not UTF-8 under stand-ins, as `saved_headers` gives them."""
    try:
        return list(read_headers(record) or [])
    except SystemError as error:
        return saved_headers(record, error)


def saved_headers(record: Message, error: SystemError) -> Headers:
    r"""What can be had of the headers after `read_headers` has raised an error.

    Args:
        record: whose.
        error: what was raised.

    Returns:
        All of them in their order with their values. The first name that is not UTF-8 is written with `\x` for its bad
        bytes, any further one is `LOST_NAME`.
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
    """The name at which the library failed first: it is the cause of all that followed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UnicodeDecodeError):
            return cause.object
        cause = cause.__cause__
    return b""


def _readable(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace") or LOST_NAME
