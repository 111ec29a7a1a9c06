"""The gate: it tells from a request's token or cookie who asks, and whether a stream may go on."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, cookie_parser

from tarry.api.access.oidc import Issuer
from tarry.api.access.principal import ANYBODY, Principal, parsed_grants
from tarry.api.access.sessions import Session, Sessions, random_keys, read_keys
from tarry.api.access.tokens import PREFIX, KnownTokens
from tarry.api.access.watched import WatchedFile
from tarry.clock import Clock
from tarry.config import Api
from tarry.config.tree import LOOPBACK_NAMES
from tarry.errors import ConfigError

_COOKIE: Final = "tarry"


@dataclass(frozen=True, slots=True)
class Credential:
    """What somebody has shown.

    Attributes:
        principal: who it is.
        token_hash: the hash of a token of the file; empty: it was none.
        ends_ms: when it ends; None: not by itself.
        session: the session of a browser; None: there is none.
    """

    principal: Principal
    token_hash: str = ""
    ends_ms: int | None = None
    session: Session | None = None


class Gate:
    """Knows the tokens, the sessions and the issuer.

    Args:
        settings: the configuration.
        clock: wall and monotonic time.
        on_event: takes the name and the fields of an event for the log.

    Raises:
        ConfigError: a file cannot be read; or there is neither a file of tokens nor an issuer, and the address is not
            one of the loopback.
    """

    def __init__(self, settings: Api, clock: Clock, on_event: Callable[..., None]) -> None:
        self.is_open = not settings.tokens and settings.oidc is None
        """Whether anybody may do anything, because only this machine can ask."""
        if self.is_open and settings.host not in LOOPBACK_NAMES:
            raise ConfigError(
                f"api.host: {settings.host} is not the loopback, and without api.tokens or api.oidc anybody could send "
                "and cancel: set api.tokens to a file and make a token in it with `tarry api token create`, set "
                "api.oidc, or set api.host to 127.0.0.1"
            )
        self._clock = clock
        self._tokens = KnownTokens(Path(settings.tokens), clock, on_event) if settings.tokens else None
        self.issuer = None
        if settings.oidc is not None:
            try:
                for texts in settings.oidc.grants.values():
                    parsed_grants(texts)
            except ValueError as error:
                raise ConfigError(f"api.oidc.grants: {error}") from error
            self.issuer = Issuer(settings.oidc, clock)
        if settings.session_keys:
            keys = WatchedFile(Path(settings.session_keys), read_keys, clock, on_event).content
        else:
            keys = _always(random_keys())
        self.sessions = Sessions(keys, clock)

    @property
    def takes_tokens(self) -> bool:
        """Whether there is a file of tokens."""
        return self._tokens is not None

    async def of_bearer(self, token: str) -> Credential | None:
        """Return what a bearer token is worth; None: nothing.

        Raises:
            IssuerError: it is for the issuer to say, and the issuer does not answer.
        """
        if token.startswith(PREFIX):
            return self.of_token(token)
        found = None if self.issuer is None else await self.issuer.identity(token)
        return None if found is None else Credential(found.principal, ends_ms=found.ends_ms)

    def of_token(self, token: str) -> Credential | None:
        """Return what a token of the file is worth; None: nothing."""
        found = None if self._tokens is None else self._tokens.of(token)
        return None if found is None else Credential(found.principal(), found.hash, found.expires_ms)

    def of_cookie(self, cookie: str) -> Credential | None:
        """Return what a session is worth; None: nothing."""
        session = self.sessions.read(cookie)
        if session is None:
            return None
        if session.kind == "oidc":
            if self.issuer is None:
                return None
            principal = Principal(session.subject, parsed_grants(session.grants))
            return Credential(principal, ends_ms=session.ends_ms, session=session)
        found = None if self._tokens is None else self._tokens.by_hash(session.subject)
        return None if found is None else Credential(found.principal(), found.hash, session.ends_ms, session)

    def nobody(self) -> Credential | None:
        """Return what it is worth to show nothing."""
        return Credential(ANYBODY) if self.is_open else None

    def holds(self, credential: Credential) -> bool:
        """Return whether a credential is still worth what it was: it has not expired, and was not revoked."""
        if credential.ends_ms is not None and credential.ends_ms <= self._clock.now_ms():
            return False
        if credential.token_hash:
            found = None if self._tokens is None else self._tokens.by_hash(credential.token_hash)
            return found is not None and found.principal() == credential.principal
        return True

    async def close(self) -> None:
        """Close the connections to the issuer."""
        if self.issuer is not None:
            await self.issuer.close()


def cookie_name(scheme: str, purpose: str = "") -> str:
    """Return the name of the cookie: behind TLS one that only this host can have set."""
    name = f"{_COOKIE}-{purpose}" if purpose else _COOKIE
    return f"__Host-{name}" if scheme == "https" else name


def cookie_of(headers: Headers, name: str) -> str | None:
    """Return the value of a cookie of a request.

    Python's own parser gives up at the first cookie that is malformed, which may be another program's on this host.
    """
    return next((found[name] for line in headers.getlist("cookie") if name in (found := cookie_parser(line))), None)


def set_cookie(name: str, value: str, scheme: str, max_age_s: int, same_site: str = "Strict") -> str:
    """Return the content of a `Set-Cookie` header."""
    secure = "; Secure" if scheme == "https" else ""
    return f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite={same_site}{secure}"


def gate_of(connection: HTTPConnection) -> Gate:
    """Return the gate of the application that handles a request; a FastAPI dependency."""
    found: Gate = connection.app.state.gate
    return found


def credential_of(connection: HTTPConnection) -> Credential | None:
    """Return what the request has shown."""
    found: Credential | None = getattr(connection.state, "credential", None)
    return found


def _always(keys: tuple[str, ...]) -> Callable[[], tuple[str, ...]]:
    return lambda: keys
