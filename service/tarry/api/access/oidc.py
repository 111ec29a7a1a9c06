"""An OIDC issuer: it vouches for bearer tokens of programs, and lets people log in (code flow with PKCE).

What a token says counts only after its signature is checked with a key of the configured issuer, by a configured
algorithm, for the configured audience. Keys and addresses that a token names itself (`jku`, `x5u`, `jwk`) are never
used. An unknown key id makes it ask the issuer for its keys again, once a minute at most: a stranger could send any
number of such tokens. It is asked once at a time: all who need its keys wait for the same answer. One that does not
answer is given up soon, and not asked again for some seconds.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import httpx
import jwt

from tarry.api.access.principal import Principal, parsed_grants
from tarry.api.problems import RETRY_AFTER_S, Code, ProblemError
from tarry.clock import Clock
from tarry.config import Oidc

ASK_EVERY_MS: Final = 60_000
"""How often the issuer is asked for its keys at most."""

AGAIN_AFTER_MS: Final = 5_000
"""How long it is not asked after it has not answered."""

FORGET_AFTER_MS: Final = 3_600_000
"""How long its keys and addresses are known at most."""

WITHIN_S: Final = 5.0
"""How long an answer of the issuer may take, however it comes."""

MOST_WAITING: Final = 64
"""How many requests wait for the issuer at the same time; it may not answer, and they hold what others need."""

_LEEWAY_S: Final = 30
_LONGEST_TOKEN: Final = 16_384
_REQUIRED: Final = ["exp", "iat", "iss", "aud", "sub"]


class IssuerError(ProblemError):
    """The issuer does not answer as it must.

    Args:
        detail: one line.
    """

    def __init__(self, detail: str) -> None:
        headers = {"Retry-After": str(RETRY_AFTER_S)}
        super().__init__(HTTPStatus.SERVICE_UNAVAILABLE, detail, Code.ISSUER_AWAY, headers=headers)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom the issuer vouches for.

    Attributes:
        principal: who it is.
        grants: those of the principal, as text.
        ends_ms: when the token ends.
    """

    principal: Principal
    grants: tuple[str, ...]
    ends_ms: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """A login that was begun; the browser keeps it, sealed.

    Attributes:
        state: comes back with the code.
        nonce: comes back in the ID token.
        verifier: proves that whoever redeems the code has asked for it.
    """

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> "Attempt":
        """Return one of random values."""
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48))


class Issuer:
    """The issuer of the configuration.

    Args:
        settings: the configuration.
        clock: monotonic time.
    """

    def __init__(self, settings: Oidc, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._http = httpx.AsyncClient(timeout=WITHIN_S, follow_redirects=False)
        self._addresses: Mapping[str, str] = {}
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._asked_ms: int | None = None
        self._fault = ""
        self._failed_ms = 0
        self._asking: asyncio.Task[None] | None = None
        self._waiting = 0

    async def close(self) -> None:
        """Close the connections to the issuer."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        await self._http.aclose()

    async def identity(self, token: str, *, audience: str | None = None, nonce: str | None = None) -> Identity | None:
        """Return whom a token is of; None if it is not valid.

        Args:
            token: the JWT.
            audience: whom it must be for; None: the configured one.
            nonce: what its `nonce` must be, for an ID token.

        Raises:
            IssuerError: the issuer does not tell its keys.
        """
        if len(token) > _LONGEST_TOKEN or token.count(".") != 2:
            return None
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in self._settings.algorithms or not isinstance(key_id, str) or "crit" in header:
                return None
            key = await self._key(key_id)
            if key is None or key.algorithm_name != algorithm:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=audience or self._settings.audience or self._settings.client_id,
                issuer=self._settings.issuer,
                leeway=_LEEWAY_S,
                options={"require": _REQUIRED},
            )
        except (jwt.PyJWTError, ValueError, TypeError):
            return None
        if nonce is not None and not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            return None
        return self._identity(claims)

    def _identity(self, claims: Mapping[str, Any]) -> Identity | None:
        name = claims.get(self._settings.name_claim) or claims["sub"]
        if not isinstance(name, str) or not name or len(name) > 256:
            return None
        found = claims.get(self._settings.grants_claim, ())
        # An issuer writes a list, or words with spaces between them, as in `scope`.
        values = [found, *found.split()] if isinstance(found, str) else found if isinstance(found, list) else []
        words = {one for one in values if isinstance(one, str)}
        texts = tuple(dict.fromkeys(text for word in sorted(words) for text in self._settings.grants.get(word, ())))
        # Apart from the names of tokens, so that a person and a token never share what they sent.
        return Identity(Principal(f"oidc:{name}", parsed_grants(texts)), texts, int(claims["exp"]) * 1_000)

    async def login_url(self, attempt: Attempt, redirect_uri: str) -> str:
        """Return where a browser is sent to log in.

        Raises:
            IssuerError: the issuer does not answer.
        """
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = (await self._known())["authorization_endpoint"]
        return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(query)}"

    async def redeemed(self, attempt: Attempt, code: str, redirect_uri: str) -> Identity | None:
        """Redeem the code of a login; None if the issuer refuses it, or its ID token is not valid.

        Raises:
            IssuerError: the issuer does not answer.
        """
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._settings.client_id,
            "code_verifier": attempt.verifier,
        }
        secret = self._settings.client_secret.get_secret_value()
        address = (await self._known())["token_endpoint"]
        auth = httpx.BasicAuth(self._settings.client_id, secret) if secret else httpx.Auth()
        try:
            with self._one_more_waiting():
                async with asyncio.timeout(WITHIN_S):
                    answer = await self._http.post(address, data=fields, auth=auth)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise _silent(error) from error
        if answer.status_code != HTTPStatus.OK:
            return None
        token = _object(answer).get("id_token")
        if not isinstance(token, str):
            return None
        return await self.identity(token, audience=self._settings.client_id, nonce=attempt.nonce)

    async def _key(self, key_id: str) -> jwt.PyJWK | None:
        if (key_id not in self._keys and self._may_ask()) or self._is_stale():
            await self._ask()
        return self._keys.get(key_id)

    async def _known(self) -> Mapping[str, str]:
        if not self._addresses or self._is_stale():
            await self._ask()
        return self._addresses

    def _may_ask(self) -> bool:
        return self._asked_ms is None or self._clock.monotonic_ms() - self._asked_ms >= ASK_EVERY_MS

    def _is_stale(self) -> bool:
        return self._asked_ms is None or self._clock.monotonic_ms() - self._asked_ms >= FORGET_AFTER_MS

    async def _ask(self) -> None:
        """Ask the issuer for its addresses and its keys, or wait for the answer to whoever asks already.

        Raises:
            IssuerError: it does not answer, or has not a moment ago; or too many wait for it.
        """
        has_failed = self._fault and self._clock.monotonic_ms() - self._failed_ms < AGAIN_AFTER_MS
        if self._asking is not None or not has_failed:
            with self._one_more_waiting():
                if self._asking is None:
                    self._asking = asyncio.create_task(self._renew())
                # Shielded: whoever goes away must not end the wait of the others.
                await asyncio.shield(self._asking)
        if self._fault:
            raise IssuerError(self._fault)

    async def _renew(self) -> None:
        """Ask the issuer, and note its answer, or that there is none."""
        try:
            async with asyncio.timeout(WITHIN_S):
                self._addresses, self._keys = await self._published()
            self._asked_ms, self._fault = self._clock.monotonic_ms(), ""
        except (IssuerError, TimeoutError) as error:
            fault = error if isinstance(error, IssuerError) else _silent(error)
            self._failed_ms, self._fault = self._clock.monotonic_ms(), fault.detail
        finally:
            self._asking = None

    @contextmanager
    def _one_more_waiting(self) -> Iterator[None]:
        if self._waiting >= MOST_WAITING:
            raise IssuerError("too many requests wait for the OIDC issuer")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def _published(self) -> tuple[Mapping[str, str], Mapping[str, jwt.PyJWK]]:
        """Return the issuer's addresses and its keys."""
        issuer = self._settings.issuer
        found = await self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise IssuerError("the OIDC issuer gives another name than api.oidc.issuer: copy its name exactly")
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        addresses = {name: str(found.get(name, "")) for name in names}
        for name, address in addresses.items():
            if urlsplit(address).scheme not in ("https", urlsplit(issuer).scheme):
                raise IssuerError(f"the OIDC issuer's {name} is not an https URL")
        keys = {}
        listed = (await self._get(addresses["jwks_uri"])).get("keys")
        for one in listed if isinstance(listed, Sequence) else ():
            if isinstance(one, dict) and isinstance(one.get("kid"), str) and one.get("use", "sig") == "sig":
                try:
                    keys[one["kid"]] = jwt.PyJWK(one)
                except jwt.PyJWTError:  # of a kind that this library does not know, and so no token needs it
                    continue
        return addresses, keys

    async def _get(self, address: str) -> dict[str, Any]:
        try:
            answer = await self._http.get(address)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _silent(error) from error
        if answer.status_code != HTTPStatus.OK:
            raise IssuerError(f"the OIDC issuer answers {answer.status_code}")
        return _object(answer)


def _silent(error: Exception) -> IssuerError:
    return IssuerError(f"the OIDC issuer does not answer: {type(error).__name__}")


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError as error:
        raise IssuerError("the OIDC issuer's answer is not JSON") from error
    if not isinstance(found, dict):
        raise IssuerError("the OIDC issuer's answer is not an object")
    return found
