"""Tokens of programs and people, in a file that holds only their hashes.

A token is 256 random bits, so nobody can guess one, and a plain SHA-256 hides it as well as a slow hash would: slow
hashes protect what people choose. The file is JSON:

    {"v": 1, "tokens": [{"name": "billing", "hash": "<sha256 as hex>", "grants": ["send:orders.*"],
                         "created": "2026-01-01T00:00:00.000Z", "expires": "2026-04-01T00:00:00.000Z"}]}

It is written as a whole, in place of the old one and readable for its owner only, and read again when it changes.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

from tarry.api.access.principal import Principal, parsed_grants
from tarry.api.access.watched import WatchedFile
from tarry.clock import Clock
from tarry.errors import ConfigError, UsageError
from tarry.units import format_instant, parse_instant_ms

PREFIX: Final = "tarry_"
"""Begins each token, so that a scanner for leaked secrets finds it."""

_VERSION: Final = 1
_BYTES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token.

    Attributes:
        name: the name of its principal.
        hash: SHA-256 of the token, as hexadecimal digits.
        grants: as `parsed_grants` reads them.
        created_ms: when it was made.
        expires_ms: when it ends; None: never.
    """

    name: str
    hash: str
    grants: tuple[str, ...]
    created_ms: int
    expires_ms: int | None

    def is_over(self, now_ms: int) -> bool:
        """Return whether it has expired."""
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def principal(self) -> Principal:
        """Return who uses it."""
        return _principal(self.name, self.grants)

    def fields(self) -> dict[str, Any]:
        """Return it as the file holds it."""
        return {
            "name": self.name,
            "hash": self.hash,
            "grants": list(self.grants),
            "created": format_instant(self.created_ms),
            "expires": None if self.expires_ms is None else format_instant(self.expires_ms),
        }


@lru_cache
def _principal(name: str, grants: tuple[str, ...]) -> Principal:
    """Return a principal; each request asks for one."""
    return Principal(name, parsed_grants(grants))


def hash_of(token: str) -> str:
    """Return what the file holds of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenFile:
    """The file, for the commands that change it.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def tokens(self) -> list[Token]:
        """Return the tokens; none if there is no file.

        Raises:
            ConfigError: it cannot be read.
        """
        return parsed(self._path) if self._path.exists() else []

    def create(self, name: str, grants: tuple[str, ...], now_ms: int, expires_ms: int | None) -> str:
        """Add a token, and return it: it cannot be shown again.

        Raises:
            UsageError: the name is none, or is in use; or the grants are none.
            ConfigError: the file cannot be read or written.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(f"not a name of up to 64 letters, digits and . _ @ -: {name[:64]!r}")
        try:
            parsed_grants(grants)
        except ValueError as error:
            raise UsageError(str(error)) from error
        token = PREFIX + secrets.token_urlsafe(_BYTES)
        with self._locked():
            known = self.tokens()
            if any(one.name == name for one in known):
                raise UsageError(f"there is a token {name} already: revoke it first")
            self._write([*known, Token(name, hash_of(token), grants, now_ms, expires_ms)])
        return token

    def revoke(self, name: str) -> None:
        """Remove a token.

        Raises:
            UsageError: there is none of this name.
            ConfigError: the file cannot be read or written.
        """
        with self._locked():
            known = self.tokens()
            left = [one for one in known if one.name != name]
            if len(left) == len(known):
                raise UsageError(f"there is no token {name[:64]} in {self._path}")
            self._write(left)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other command change the file meanwhile: it would bring back a token that was revoked."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory = os.open(self._path.parent, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}") from error
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)

    def _write(self, tokens: list[Token]) -> None:
        text = json.dumps({"v": _VERSION, "tokens": [one.fields() for one in tokens]}, indent=1) + "\n"
        try:
            # mkstemp makes it readable for its owner only.
            number, name = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
            try:
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}") from error


class KnownTokens:
    """The tokens that a server accepts: it reads the file again when that changes.

    Args:
        path: the file; it must exist.
        clock: wall time, for expiry; monotonic time, for how often to look.
        on_event: takes the name and the fields of an event for the log.

    Raises:
        ConfigError: the file cannot be read.
    """

    def __init__(self, path: Path, clock: Clock, on_event: Callable[..., None]) -> None:
        self._file = WatchedFile(path, parsed, clock, on_event)
        self._clock = clock

    def of(self, token: str) -> Token | None:
        """Return what is kept of a token; None if it is not valid.

        Each hash is compared, each in constant time: how long it takes does not tell how near a guess was.
        """
        wanted = hash_of(token)
        found = None
        for one in self._file.content():
            if compare_digest(one.hash, wanted):
                found = one
        return self._valid(found)

    def by_hash(self, hash_: str) -> Token | None:
        """Return the token of a hash, for sessions that began with it; None if it is not valid any more."""
        return self._valid(next((one for one in self._file.content() if compare_digest(one.hash, hash_)), None))

    def _valid(self, found: Token | None) -> Token | None:
        return None if found is None or found.is_over(self._clock.now_ms()) else found


def parsed(path: Path) -> list[Token]:
    """Read a file of tokens.

    Raises:
        ConfigError: it cannot be read; one line says why, without its content.
    """
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file: `tarry api token create` makes it (api.tokens)") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON") from error
    if not isinstance(found, dict) or found.get("v") != _VERSION or not isinstance(found.get("tokens"), list):
        raise ConfigError(f"{path}: not a file of tokens of version {_VERSION}: `tarry api token create` makes one")
    tokens = []
    for number, fields in enumerate(found["tokens"], 1):
        try:
            tokens.append(_token(fields))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{path}: token {number} is damaged: {error}") from error
    if len({one.name for one in tokens}) < len(tokens):
        raise ConfigError(f"{path}: two tokens have the same name")
    return tokens


def _token(fields: dict[str, Any]) -> Token:
    expires = fields["expires"]
    token = Token(
        fields["name"],
        fields["hash"],
        tuple(fields["grants"]),
        parse_instant_ms(fields["created"]),
        None if expires is None else parse_instant_ms(expires),
    )
    if not _NAME.fullmatch(token.name) or not _HASH.fullmatch(token.hash):
        raise ValueError("its name or its hash is none")
    parsed_grants(token.grants)
    return token
