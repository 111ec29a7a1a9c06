"""Sessions of browsers: a signed cookie, so that any replica knows them and none keeps them.

A session lasts 12 hours at most, and 30 minutes without a request. One that began with a token ends with that token.
The keys come from a file that all replicas share: the newest signs, and all of them verify, so a key is replaced by
putting a new one before it, and taken away half a day later.
"""

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from itsdangerous import BadData, URLSafeSerializer

from tarry.clock import Clock
from tarry.errors import ConfigError

IDLE_MS: Final = 30 * 60_000
LONGEST_MS: Final = 12 * 3_600_000
RENEWED_AFTER_MS: Final = 60_000
"""A cookie is written again if it is older, so that not each answer has one."""

SKEW_MS: Final = 60_000
"""By how much the clocks of two replicas may differ: what one has signed holds for the other."""

_LEAST_KEY: Final = 32
_SALT: Final = "tarry.session"


@dataclass(frozen=True, slots=True)
class Session:
    """What the cookie holds.

    Attributes:
        kind: how the session began.
        subject: the hash of the token; or the name of the principal, from the OIDC issuer.
        grants: from the OIDC issuer; those of a token are in its file.
        began_ms: when it began.
        seen_ms: when the last request came.
        ends_ms: when it ends at the latest.
    """

    kind: Literal["token", "oidc"]
    subject: str
    grants: tuple[str, ...]
    began_ms: int
    seen_ms: int
    ends_ms: int


class Sessions:
    """Writes and reads the cookies.

    Args:
        keys: returns them, the newest first.
        clock: wall time.
    """

    def __init__(self, keys: Callable[[], Sequence[str]], clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    def begin(
        self, kind: Literal["token", "oidc"], subject: str, grants: tuple[str, ...] = (), ends_ms: int | None = None
    ) -> str:
        """Return the cookie of a new session."""
        now_ms = self._clock.now_ms()
        latest_ms = now_ms + LONGEST_MS
        ends_ms = latest_ms if ends_ms is None else min(ends_ms, latest_ms)
        return self._text(Session(kind, subject, grants, now_ms, now_ms, ends_ms))

    def read(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is not ours, or over."""
        try:
            found: Any = self._serializer(_SALT).loads(cookie)
            kind, subject, grants, began_ms, seen_ms, ends_ms = found
            session = Session(kind, str(subject), tuple(map(str, grants)), int(began_ms), int(seen_ms), int(ends_ms))
        except (BadData, ValueError, TypeError):
            return None
        now_ms = self._clock.now_ms()
        is_over = now_ms >= session.ends_ms or not _is_within(session.seen_ms, now_ms, IDLE_MS)
        return None if is_over or session.kind not in {"token", "oidc"} else session

    def renewed(self, session: Session) -> str | None:
        """Return the cookie that says that a request came; None if the old one is fresh enough."""
        now_ms = self._clock.now_ms()
        if now_ms - session.seen_ms < RENEWED_AFTER_MS:
            return None
        return self._text(replace(session, seen_ms=now_ms))

    def seal(self, purpose: str, content: object) -> str:
        """Return something that a browser keeps for a moment, signed for one purpose."""
        return _as_text(self._serializer(f"{_SALT}.{purpose}").dumps([self._clock.now_ms(), content]))

    def unseal(self, purpose: str, text: str, within_ms: int) -> Any:
        """Return what was sealed; None if it is not ours, or older than that.

        Args:
            purpose: what it was sealed for.
            text: the sealed text.
            within_ms: how old it may be, by a clock that agrees with that of whoever sealed it.
        """
        try:
            at_ms, content = self._serializer(f"{_SALT}.{purpose}").loads(text)
        except (BadData, ValueError, TypeError):
            return None
        return content if _is_within(at_ms, self._clock.now_ms(), within_ms) else None

    def _serializer(self, salt: str) -> URLSafeSerializer:
        return URLSafeSerializer(
            list(reversed(self._keys())),  # itsdangerous signs with the last one
            salt,
            signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256},
        )

    def _text(self, session: Session) -> str:
        fields = [session.kind, session.subject, session.grants, session.began_ms, session.seen_ms, session.ends_ms]
        return _as_text(self._serializer(_SALT).dumps(fields))


def random_keys() -> tuple[str, ...]:
    """Return a key for this process alone: its sessions end with it, and other replicas do not know them."""
    return (secrets.token_urlsafe(_LEAST_KEY),)


def read_keys(path: Path) -> tuple[str, ...]:
    """Return the keys in a file, one in each line, the newest first.

    Raises:
        ConfigError: the file cannot be read, or a key is too short.
    """
    try:
        keys = tuple(line.strip() for line in path.read_text(encoding="ascii").splitlines() if line.strip())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or 'not ASCII'}") from error
    if not keys or any(len(key) < _LEAST_KEY for key in keys):
        raise ConfigError(f"{path}: needs a key of {_LEAST_KEY} characters or more in each line")
    return keys


def _is_within(at_ms: int, now_ms: int, within_ms: int) -> bool:
    """Return whether a time, by the clock of any replica, is not longer ago than that."""
    return -SKEW_MS <= now_ms - at_ms < within_ms + SKEW_MS


def _as_text(signed: str | bytes) -> str:
    return signed if isinstance(signed, str) else signed.decode()
