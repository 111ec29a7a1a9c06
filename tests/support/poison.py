"""Messages that can never be delivered: one kind for each error code that a plain Kafka has a cause for.

`rejected-by-broker` has none there: it stands for what brokers of other makers refuse. Nor has `beyond-horizon`, for an
intake holds whatever its longest delay allows.
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
"""What an intake with all kinds allows: everything but `no.target.of.ours`."""

SMALL_MAX_BYTES: Final = 2_000
MAX_DELAY_MS: Final = 3_600_000
HORIZON_MS: Final = MAX_DELAY_MS
"""How far ahead memory reaches, for a service that is to need no overflow wheel."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way of being poisonous.

    Attributes:
        code: what the dead letter says.
        make: the message of a number, due at a time.
    """

    code: ErrorCode
    make: Callable[[int, int], Message]


def policy(intake: str) -> IntakePolicy:
    """What an intake accepts that is to refuse all kinds."""
    return IntakePolicy(topic=intake, targets=TARGETS, max_delay_ms=MAX_DELAY_MS)


def make_targets(stage: Stage) -> None:
    """The topics beside the stage's own target that kinds go to, and good messages too."""
    name = stage.target.removesuffix(".out")
    stage.make_topic(f"{name}.small", 2, max_message_bytes=str(SMALL_MAX_BYTES))
    stage.make_topic(f"{name}.compact", 2, cleanup_policy="compact")
    stage.make_topic(f"{name}.both", 2, cleanup_policy="compact,delete")


def good_targets(stage: Stage) -> list[str]:
    """Where good messages go; those of one key all to the same, where they take turns."""
    name = stage.target.removesuffix(".out")
    return [stage.target, f"{name}.small", f"{name}.compact", f"{name}.both"]


def good(target: str, number: int, due_ms: int) -> Message:
    """A message that can be delivered; those of one key are numbered in order."""
    return b"key-%02d" % (number % 20), b"%d" % number, request(target, due_ms)


def request(target: str, due_ms: int, *others: tuple[str, bytes | None]) -> Headers:
    """The headers of a request; the last travels on."""
    return [("tarry-target", target.encode()), ("tarry-deliver-at", b"%d" % due_ms), *others, ("trace", b"\x00\xff")]


def by_headers(target: str) -> list[Kind]:
    """What its headers alone condemn."""

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
    ]


def by_target(target: str) -> list[Kind]:
    """What the target's existence and its number of partitions condemn."""
    missing = target.removesuffix(".out") + ".missing"

    def no_such_topic(number: int, due_ms: int) -> Message:
        return b"bad-%d" % number, b"%d" % number, request(f"{missing}-{number % 50}", due_ms)

    def no_such_partition(number: int, due_ms: int) -> Message:
        return b"bad-%d" % number, b"%d" % number, request(target, due_ms, ("tarry-partition", b"1000"))

    return [Kind(ErrorCode.UNKNOWN_TARGET, no_such_topic), Kind(ErrorCode.BAD_PARTITION, no_such_partition)]


def by_limits(target: str) -> list[Kind]:
    """What only the settings of the target condemn; they need `make_targets`."""
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
