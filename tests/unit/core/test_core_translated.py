"""A message in a dialect: as it came to dead letters and buckets, as its scheduler had it to targets."""

import pytest

from tarry.core.message import Headers
from tarry.core.progress.source import Source
from tarry.core.request.dialects import DIALECTS
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import Request
from tarry.core.request.translated import TranslatedMessage
from tarry.core.wheel.filed import FILED, filed_headers, read_filed

BUCKET = Source(1, 4)
NOW_MS = 1_767_225_600_000
DIALECT_HEADERS: dict[str, Headers] = {
    "etf1": [("scheduler-epoch", b"1767225660"), ("scheduler-target-topic", b"a.b"), ("scheduler-target-key", b"t")],
    "karafka": [
        ("schedule_target_epoch", b"1767225660"),
        ("schedule_target_topic", b"a.b"),
        ("schedule_target_key", b"t"),
    ],
    "timebridge": [("X-Timebridge-When", b"2026-01-01T00:01:00Z"), ("X-Timebridge-Where", b"a.b")],
    "rabbitmq": [("x-delay", b"60000"), ("tarry-target", b"a.b")],
}


def came(dialect: str, headers: Headers) -> TranslatedMessage:
    request = RequestReader(IntakePolicy("in", dialect=dialect)).read(0, 42, NOW_MS, headers, NOW_MS)
    assert isinstance(request, Request)
    return TranslatedMessage(DIALECTS[dialect], request, 42, b"s", b"value", headers, NOW_MS, "in")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("more", [[], [("a", b"1"), ("a", None)]])
def test_through_a_bucket_it_stays_what_it_was(dialect: str, more: Headers) -> None:
    first = came(dialect, [*DIALECT_HEADERS[dialect], *more])
    for _ in range(2):
        # As it lies there, it has its original key: a dead letter can be made of it without the service.
        headers: Headers = [(name, value) for name, value in filed_headers(first) if isinstance(value, bytes | None)]
        assert headers[:-1] == first.original_headers
        again = read_filed(BUCKET, 7, first.original_key, first.value, headers)
        assert isinstance(again, TranslatedMessage)
        assert (again.source, again.offset, again.sequence) == (BUCKET, 7, 42)
        for name in (
            "due_ms",
            "key",
            "original_key",
            "headers",
            "original_headers",
            "target",
            "target_partition",
            "id",
        ):
            assert getattr(again, name) == getattr(first, name)
        assert again.size_bytes == first.size_bytes
        first = again


def test_a_dialect_that_is_not_known_here_is_refused() -> None:
    message = came("etf1", DIALECT_HEADERS["etf1"])
    name, packed = filed_headers(message)[-1]
    assert name == FILED
    assert isinstance(packed, bytes)
    strange: Headers = [(FILED, packed.replace(b" etf1 ", b" etf2 "))]
    with pytest.raises(ValueError, match="etf2"):
        read_filed(BUCKET, 7, b"s", b"value", strange)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_estimated_size_is_at_least_the_size_on_the_wire(dialect: str) -> None:
    message = came(dialect, DIALECT_HEADERS[dialect])
    sent = sum(len(name) + len(value or b"") for name, value in message.headers) + len(message.key or b"")
    assert message.size_bytes > sent + len(message.value or b"")
