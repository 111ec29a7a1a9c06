"""The header convention: names, error codes, outcomes and ids, as documented in `docs/headers.md`.

Any Kafka client can use the service through these names alone. Changing one is a breaking change.
"""

import hashlib
import re
import uuid
from enum import StrEnum

# A request: on a record in an intake.
TARGET = "tarry-target"
DELAY_MS = "tarry-delay-ms"
DELIVER_AT = "tarry-deliver-at"
ID = "tarry-id"
PARTITION = "tarry-partition"
CANCEL = "tarry-cancel"
PURGE = "tarry-purge"
NAME = "tarry-name"
IF = "tarry-if"
CANCEL_NAME = "tarry-cancel-name"
EXPIRES_AT = "tarry-expires-at"
WINDOW_MS = "tarry-window-ms"
EVERY = "tarry-every"
CRON = "tarry-cron"
ZONE = "tarry-zone"

# On the next record of a schedule, which the service writes to the intake: `<offset followed> <due_ms> <number>`.
NEXT = "tarry-next"

# A delivery: on the record at its target. `ID` is there too.
DUE_MS = "tarry-due-ms"
SOURCE = "tarry-source"

# On an occurrence of a schedule: the schedule's id, and how many occurrences there were, this one included.
SCHEDULE = "tarry-schedule"
OCCURRENCE = "tarry-occurrence"

# A dead letter: beside the original headers.
ERROR = "tarry-error"
ERROR_DETAIL = "tarry-error-detail"

# A stub, in place of a dead letter that is too large: the place of the whole record. `ID` and `SOURCE` are there too.
STUB = "tarry-stub"

#: The id of a message in CloudEvents' Kafka binding; the service delivers it unchanged.
CLOUDEVENTS_ID = "ce_id"

#: The headers of a request: the service removes them at delivery. A record with one of them twice is a dead letter.
REQUEST_HEADERS = frozenset(
    {
        TARGET,
        DELAY_MS,
        DELIVER_AT,
        ID,
        PARTITION,
        CANCEL,
        PURGE,
        NAME,
        IF,
        CANCEL_NAME,
        EXPIRES_AT,
        WINDOW_MS,
        EVERY,
        CRON,
        ZONE,
        NEXT,
    }
)

#: The headers that the service writes at delivery: it removes old ones from a message that was forwarded to an intake.
REPLACED_HEADERS = frozenset({DUE_MS, SOURCE, SCHEDULE, OCCURRENCE})

#: The headers of an intake record that are not copied to the delivery.
TAKEN_OFF = REQUEST_HEADERS | REPLACED_HEADERS

#: The namespace of the ids that the service derives.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "tarry")

_UUID_TEXT = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NAMESPACE_BYTES = NAMESPACE.bytes
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

#: Kafka's limit on a topic's name, in characters.
MAX_TOPIC_LENGTH = 249

_INTERNAL_TOPIC = re.compile(r"(.+)\.(?:results|journal|dead|parked|status|control|operations|wheel-[0-9]+)")


class ErrorCode(StrEnum):
    """Why a record can never be delivered: the value of `tarry-error`, and the `reason` of a result.

    Journals number them in this order, so new ones come last.
    """

    NO_DELAY = "no-delay"
    TWO_DELAYS = "two-delays"
    BAD_DELAY = "bad-delay"
    NEGATIVE_DELAY = "negative-delay"
    LOOKS_LIKE_SECONDS = "looks-like-seconds"
    BAD_TIME = "bad-time"
    BAD_ID = "bad-id"
    NO_TARGET = "no-target"
    BAD_TARGET = "bad-target"
    TARGET_NOT_ALLOWED = "target-not-allowed"
    UNKNOWN_TARGET = "unknown-target"
    INTERNAL_TARGET = "internal-target"
    BAD_PARTITION = "bad-partition"
    BEYOND_MAX_DELAY = "beyond-max-delay"
    BEYOND_HORIZON = "beyond-horizon"
    TOO_LARGE = "too-large"
    NULL_KEY = "null-key"
    REPEATED_HEADER = "repeated-header"
    BAD_HANDLE = "bad-handle"
    REJECTED_BY_BROKER = "rejected-by-broker"
    UNREADABLE_HEADERS = "unreadable-headers"
    PURGED = "purged"
    BAD_NAME = "bad-name"
    NAMES_NOT_ACCEPTED = "names-not-accepted"
    WRONG_PARTITION = "wrong-partition"
    TOO_MANY_NAMES = "too-many-names"
    EXPIRED = "expired"
    BAD_SCHEDULE = "bad-schedule"
    SCHEDULES_NOT_ACCEPTED = "schedules-not-accepted"


class Outcome(StrEnum):
    """The outcome of a message, a cancel or a purge: the `outcome` of a result."""

    FIRED = "fired"
    CANCELLED = "cancelled"
    CANCEL_FILED = "cancel-filed"
    CANCEL_TOO_LATE = "cancel-too-late"
    DUPLICATE = "duplicate"
    REPLACED = "replaced"
    SCHEDULED = "scheduled"
    SKIPPED = "skipped"
    DEAD = "dead"
    PURGED = "purged"


def parse_id(value: bytes | None) -> bytes | None:
    """Normalise the value of `tarry-id`.

    Args:
        value: a UUID as 36 characters in either case, or as 16 bytes.

    Returns:
        36 ASCII characters in lower case; None if the value is not a UUID.
    """
    if value is None:
        return None
    if len(value) == 36:
        return value.lower() if _UUID_TEXT.fullmatch(value) else None
    return _hyphenated(value.hex()) if len(value) == 16 else None


def parse_cloudevents_id(value: bytes | None) -> bytes | None:
    """Normalise `ce_id` if it is a UUID as text; otherwise return None.

    Sixteen bytes are not a UUID here: CloudEvents ids are text, such as `order-1234567890`.
    """
    return parse_id(value) if value is not None and len(value) == 36 else None


#: The longest name, in bytes of UTF-8.
MAX_NAME_BYTES = 255


def name_fault(name: bytes | None) -> str | None:
    """Return why a header's value is no name; None if it is one."""
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_BYTES:
        return f"has {len(name)} bytes, and at most {MAX_NAME_BYTES} are allowed"
    try:
        name.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None


def id_bytes(text: bytes) -> bytes:
    """Return the 16 bytes of an id of 36 characters."""
    return bytes.fromhex(text.replace(b"-", b"").decode())


def id_text(raw: bytes) -> bytes:
    """Return the 36 characters of an id of 16 bytes."""
    return _hyphenated(raw.hex())


def derived_id(topic: str, partition: int, offset: int) -> bytes:
    """Return the id of a message that has none: UUIDv5(`NAMESPACE`, "topic/partition/offset").

    It is the same each time the record is read. The result equals `uuid.uuid5`, in a third of the time.

    Returns:
        36 ASCII characters.
    """
    return _uuid5(_NAMESPACE_BYTES, f"{topic}/{partition}/{offset}".encode())


def occurrence_id(schedule: bytes, due_ms: int) -> bytes:
    """Return the id of an occurrence: UUIDv5 of the due time, as decimal digits, in the namespace of the schedule's id.

    Args:
        schedule: 36 ASCII characters.
        due_ms: when it is due.

    Returns:
        36 ASCII characters.
    """
    return _uuid5(id_bytes(schedule), b"%d" % due_ms)


def _uuid5(namespace: bytes, name: bytes) -> bytes:
    digest = hashlib.sha1(namespace + name, usedforsecurity=False).digest()
    number = int.from_bytes(digest[:16], "big")
    # RFC 9562: version 5 in bits 48-51, variant 0b10 in bits 64-65.
    number = (number & ~(0xF << 76) & ~(0x3 << 62)) | (5 << 76) | (0x2 << 62)
    return _hyphenated(f"{number:032x}")


def is_legal_topic(name: str) -> bool:
    """Return whether Kafka accepts this as a topic name."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in {".", ".."}


def owner_of_internal_topic(name: str) -> str | None:
    """Return the intake to which a topic belongs by its name: `I` for `I.results` and `I.wheel-3`; otherwise None."""
    match = _INTERNAL_TOPIC.fullmatch(name)
    return match[1] if match else None


def _hyphenated(digits: str) -> bytes:
    """Format 32 hexadecimal digits as a UUID."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}".encode()
