"""Messages that can never be delivered: one kind for each error code that can occur with Apache Kafka.

`rejected-by-broker` cannot: it is for refusals by brokers of other vendors. `beyond-horizon` cannot either, because an
intake holds every message that its longest delay allows. Those of names that depend on more than one record are in
`tests/integration/test_names.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tarry.core.request.intake_policy import IntakePolicy
from tarry.headers import ErrorCode
from tests.support.stage import Stage

Headers = list[tuple[str, bytes | None]]
Message = tuple[bytes | None, bytes | None, Headers]
"""Key, value, headers."""

TARGETS: Final = ("*.out", "*.in*", "*.small", "*.compact", "*.both", "*.missing*", "__*")
"""The allowed targets of an intake for all kinds: every topic except `no.target.of.ours`."""

SMALL_MAX_BYTES: Final = 2_000
MAX_DELAY_MS: Final = 3_600_000
HORIZON_MS: Final = MAX_DELAY_MS
"""The horizon of an intake without an overflow wheel: how far ahead memory must reach."""


EXPIRED: Final = ("tarry-expires-at", b"2020-01-01T00:00:01Z")
"""Of a message that is due before, this is noticed when it fires; of others, when they are read."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of undeliverable message.

    Attributes:
        code: the error code of its dead letter.
        make: makes the message with a number and a due time.
    """

    code: ErrorCode
    make: Callable[[int, int], Message]


def policy(intake: str) -> IntakePolicy:
    """Return the policy of an intake that refuses all kinds."""
    return IntakePolicy(topic=intake, targets=TARGETS, max_delay_ms=MAX_DELAY_MS)


def make_targets(stage: Stage) -> None:
    """Create the further targets that some kinds need; good messages go to them, too."""
    name = stage.target.removesuffix(".out")
    stage.make_topic(f"{name}.small", 2, max_message_bytes=str(SMALL_MAX_BYTES))
    stage.make_topic(f"{name}.compact", 2, cleanup_policy="compact")
    stage.make_topic(f"{name}.both", 2, cleanup_policy="compact,delete")


def good_targets(stage: Stage) -> list[str]:
    """Return the targets of good messages, which take turns; all messages of a key have the same target."""
    name = stage.target.removesuffix(".out")
    return [stage.target, f"{name}.small", f"{name}.compact", f"{name}.both"]


def good(target: str, number: int, due_ms: int) -> Message:
    """Make a message that can be delivered; those of one key are numbered in order."""
    return b"key-%02d" % (number % 20), b"%d" % number, request(target, due_ms)


def request(target: str, due_ms: int, *others: tuple[str, bytes | None]) -> Headers:
    """Return the headers of a request; the last one is delivered."""
    return [("tarry-target", target.encode()), ("tarry-deliver-at", b"%d" % due_ms), *others, ("trace", b"\x00\xff")]


def by_headers(target: str) -> list[Kind]:
    """Kinds that are undeliverable because of their headers alone."""

    def kind(code: ErrorCode, *headers: tuple[str, bytes | None]) -> Kind:
        return Kind(code, lambda number, _due_ms: (b"bad-%d" % number, b"%d" % number, [*headers, ("trace", b"1")]))

    to = ("tarry-target", target.encode())
    intake = target.removesuffix(".out") + ".in"
    at_once = ("tarry-delay-ms", b"0")
    return [
        kind(ErrorCode.NO_DELAY, to),
        kind(ErrorCode.TWO_DELAYS, to, at_once, ("tarry-deliver-at", b"2030-01-01T00:00:00Z")),
        kind(ErrorCode.BAD_DELAY, to, ("tarry-delay-ms", b"soon")),
        kind(ErrorCode.NEGATIVE_DELAY, to, ("tarry-delay-ms", b"-1")),
        kind(ErrorCode.LOOKS_LIKE_SECONDS, to, ("tarry-deliver-at", b"1700000000")),
        kind(ErrorCode.BAD_TIME, to, ("tarry-deliver-at", b"tomorrow")),
        kind(ErrorCode.BAD_ID, to, at_once, ("tarry-id", b"no uuid")),
        kind(ErrorCode.NO_TARGET, at_once),
        kind(ErrorCode.BAD_TARGET, ("tarry-target", b"no topic's name"), at_once),
        kind(ErrorCode.TARGET_NOT_ALLOWED, ("tarry-target", b"no.target.of.ours"), at_once),
        kind(ErrorCode.INTERNAL_TARGET, ("tarry-target", f"{intake}.results".encode()), at_once),
        kind(ErrorCode.BAD_PARTITION, to, at_once, ("tarry-partition", b"first")),
        kind(ErrorCode.BEYOND_MAX_DELAY, to, ("tarry-delay-ms", b"%d" % (MAX_DELAY_MS + 1))),
        kind(ErrorCode.REPEATED_HEADER, to, to, at_once),
        kind(ErrorCode.BAD_HANDLE, to, ("tarry-cancel", b"no handle")),
        kind(ErrorCode.BAD_NAME, to, at_once, ("tarry-name", b"")),
        kind(ErrorCode.EXPIRED, to, ("tarry-deliver-at", b"2020-01-01T00:00:00Z"), EXPIRED),
        kind(ErrorCode.EXPIRED, to, at_once, EXPIRED),
        kind(ErrorCode.BAD_SCHEDULE, to, ("tarry-name", b"n"), ("tarry-cron", b"0 9 * *")),
        kind(ErrorCode.BAD_SCHEDULE, to, ("tarry-name", b"n"), ("tarry-cron", b"0 9 * * *"), ("tarry-zone", b"Mars")),
        kind(ErrorCode.BAD_SCHEDULE, to, ("tarry-name", b"n"), ("tarry-every", b"1ms")),
    ]


def by_target(target: str) -> list[Kind]:
    """Kinds that are undeliverable because the target or its partition does not exist."""
    missing = target.removesuffix(".out") + ".missing"

    def no_such_topic(number: int, due_ms: int) -> Message:
        return b"bad-%d" % number, b"%d" % number, request(f"{missing}-{number % 50}", due_ms)

    def no_such_partition(number: int, due_ms: int) -> Message:
        return b"bad-%d" % number, b"%d" % number, request(target, due_ms, ("tarry-partition", b"1000"))

    return [Kind(ErrorCode.UNKNOWN_TARGET, no_such_topic), Kind(ErrorCode.BAD_PARTITION, no_such_partition)]


def by_limits(target: str) -> list[Kind]:
    """Kinds that are undeliverable because of the target's settings; they need `make_targets`."""
    name = target.removesuffix(".out")

    def too_large(number: int, due_ms: int) -> Message:
        value = b"%d" % number
        return b"bad-%d" % number, value.ljust(SMALL_MAX_BYTES, b"."), request(f"{name}.small", due_ms)

    def null_key(number: int, due_ms: int) -> Message:
        compacted = f"{name}.compact" if number % 2 else f"{name}.both"
        return None, b"%d" % number, request(compacted, due_ms)

    return [Kind(ErrorCode.TOO_LARGE, too_large), Kind(ErrorCode.NULL_KEY, null_key)]


def every_kind(target: str) -> list[Kind]:
    """All of them."""
    return [*by_headers(target), *by_target(target), *by_limits(target)]
