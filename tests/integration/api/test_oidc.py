"""Bearer tokens and logins of an OIDC issuer, on a running server and a real issuer on the loopback."""

import hashlib
import hmac
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tarry.testing import LiveService
from tests.support.api import Api, config_beside
from tests.support.oidc_issuer import CLIENT, Issuer, issuing


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as found:
        yield found


@pytest.fixture(scope="module")
def guarded(service: LiveService, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API that believes the issuer."""
    config = replace(
        config_beside(service, 2),
        oidc={"issuer": issuer.url, "client_id": CLIENT},
        oidc_grants={"oncall": ["act", "look-values"], "senders": ["send:orders.*"]},
    )
    with Api(config, tmp_path_factory.mktemp("guarded")) as api:
        yield api


def status(api: Api, token: str) -> int:
    with api.client(token) as client:
        return client.get("/v1/intakes").status_code


def test_a_token_of_the_issuer_counts_and_its_groups_decide(guarded: Api, issuer: Issuer) -> None:
    assert status(guarded, issuer.token()) == 200
    assert status(guarded, issuer.token(groups=["senders"])) == 403
    assert status(guarded, issuer.token(groups="oncall other")) == 200
    assert status(guarded, issuer.token(groups=None)) == 403
    assert status(guarded, issuer.token(groups=[{"oncall": 1}])) == 403


def _forged(issuer: Issuer, case: str) -> str:
    now_s = int(time.time())
    other: Any = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    claims = {"iss": issuer.url, "aud": CLIENT, "iat": now_s, "exp": now_s + 60, "sub": "eve", "groups": ["oncall"]}
    match case:
        case "none":
            return jwt.encode(claims, "", "none", {"kid": issuer.key_id})
        case "another key":
            return issuer.token(key=other)
        case "its own key by address":
            return issuer.token({"jku": f"{issuer.url}/evil", "x5u": f"{issuer.url}/evil"}, key=other)
        case "its own key inside":
            public = jwt.algorithms.RSAAlgorithm.to_jwk(other.public_key(), as_dict=True)
            return issuer.token({"jwk": public}, key=other)
        case "the public key as a secret":
            # PyJWT refuses to sign so; an attacker does not.
            head = jwt.encode(claims, "x" * 32, "HS256", {"kid": issuer.key_id}).split(".")[0]
            body = issuer.token().split(".")[1]
            signature = hmac.new(issuer.public_pem(), f"{head}.{body}".encode(), hashlib.sha256).digest()
            return f"{head}.{body}.{jwt.utils.base64url_encode(signature).decode()}"
        case "another algorithm":
            return issuer.token(alg="RS512")
    raise AssertionError(case)


@pytest.mark.parametrize(
    "case",
    [
        "none",
        "another key",
        "its own key by address",
        "its own key inside",
        "the public key as a secret",
        "another algorithm",
    ],
)
def test_a_forged_token_is_worth_nothing(guarded: Api, issuer: Issuer, case: str) -> None:
    assert status(guarded, _forged(issuer, case)) == 401


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"},
        {"iss": "https://evil.example"},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"aud": None},
        {"sub": None},
        {"nbf": 4_000_000_000},
    ],
)
def test_a_token_for_others_or_out_of_time_is_worth_nothing(
    guarded: Api, issuer: Issuer, claims: dict[str, Any]
) -> None:
    assert status(guarded, issuer.token(**claims)) == 401


def test_unknown_keys_do_not_let_it_ask_the_issuer_again_and_again(guarded: Api, issuer: Issuer) -> None:
    assert status(guarded, issuer.token()) == 200
    before = issuer.asked_for_keys
    assert [status(guarded, issuer.token({"kid": f"unknown-{n}"})) for n in range(20)] == [401] * 20
    assert issuer.asked_for_keys - before <= 1


def test_a_browser_logs_in_at_the_issuer(guarded: Api, issuer: Issuer) -> None:
    with guarded.client() as client:
        begun = client.get("/oidc/login", params={"next": "/waiting"})
        asked = {name: values[0] for name, values in parse_qs(urlsplit(begun.headers["location"]).query).items()}
        assert (asked["code_challenge_method"], asked["response_type"]) == ("S256", "code")
        back = httpx.get(begun.headers["location"], trust_env=False).headers["location"]
        # Another browser, which did not begin the login, gets no session of the code (login CSRF).
        with guarded.client() as other:
            refused = other.get(back)
            assert (refused.status_code, dict(other.cookies)) == (400, {})
        wrong = client.get(back.replace(asked["state"], "x" * len(asked["state"])))
        assert wrong.status_code == 400
        done = client.get(back)
        assert done.status_code == 200, done.text
        assert 'content="0;url=/waiting"' in done.text
        assert client.get("/v1/intakes").status_code == 200
        # The code is redeemed once.
        assert client.get(back).status_code == 400
    with guarded.client() as client:
        issuer.claims = {"sub": "bob", "groups": []}
        begun = client.get("/oidc/login")
        back = httpx.get(begun.headers["location"], trust_env=False).headers["location"]
        assert client.get(back).status_code == 403
        assert client.get("/v1/intakes").status_code == 401
