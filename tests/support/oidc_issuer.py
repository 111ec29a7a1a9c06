"""An OpenID Connect issuer on the loopback: real keys, real tokens, and the checks of the code flow with PKCE."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT = "tarry-tests"


class Issuer:
    """The issuer. It lets everybody in as `claims` says."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.claims: dict[str, Any] = {"sub": "ann", "groups": ["oncall"]}
        self.asked_for_keys = 0
        self.asked = 0
        self.is_away = False
        """Whether it answers with an error."""
        self.goes_on = threading.Event()
        """While it is not set, the issuer sends blanks, and no answer."""
        self.goes_on.set()
        self._codes: dict[str, dict[str, str]] = {}
        self._keys: dict[str, rsa.RSAPrivateKey] = {}
        self.rotate("first")

    def rotate(self, key_id: str) -> None:
        """Sign with a new key."""
        self._keys = {key_id: rsa.generate_private_key(public_exponent=65_537, key_size=2_048)}

    @property
    def key_id(self) -> str:
        return next(iter(self._keys))

    def public_pem(self) -> bytes:
        """The public key as text, which an attacker knows."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

        return self._keys[self.key_id].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def token(self, headers: dict[str, Any] | None = None, key: Any = None, alg: str = "RS256", **claims: Any) -> str:
        """Return a token; claims that are None are left out."""
        now_s = int(time.time())
        whole = {"iss": self.url, "aud": CLIENT, "iat": now_s, "exp": now_s + 600, **self.claims, **claims}
        left = {name: value for name, value in whole.items() if value is not None}
        chosen = self._keys[self.key_id] if key is None else key
        return jwt.encode(left, chosen, alg, {"kid": self.key_id, **(headers or {})})

    def authorize(self, query: dict[str, str]) -> str:
        """Return where the browser is sent back to."""
        code = secrets.token_urlsafe(8)
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def redeem(self, fields: dict[str, str]) -> dict[str, str] | None:
        """Return the tokens of a code; None if something does not fit."""
        asked = self._codes.pop(fields["code"], None)
        if asked is None or asked["redirect_uri"] != fields["redirect_uri"]:
            return None
        digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return None
        return {"id_token": self.token(nonce=asked["nonce"]), "access_token": "x", "token_type": "Bearer"}

    def discovery(self) -> dict[str, str]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def jwks(self) -> dict[str, Any]:
        self.asked_for_keys += 1
        keys = [
            {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": name, "use": "sig", "alg": "RS256"}
            for name, key in self._keys.items()
        ]
        return {"keys": keys}


@contextmanager
def issuing() -> Iterator[Issuer]:
    """Run an issuer."""
    found: list[Issuer] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url, issuer = urlsplit(self.path), found[0]
            issuer.asked += 1
            if url.path == "/authorize":
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                self.send_response(303)
                self.send_header("Location", issuer.authorize(query))
                self.end_headers()
            else:
                self._answer(issuer.jwks() if url.path == "/keys" else issuer.discovery())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(found[0].redeem({name: values[0] for name, values in parse_qs(body).items()}))

        def _answer(self, fields: dict[str, Any] | None) -> None:
            issuer, body = found[0], json.dumps(fields or {"error": "invalid_grant"}).encode()
            self.send_response(503 if issuer.is_away else 200 if fields is not None else 400)
            # The end of the connection ends the answer.
            self.end_headers()
            try:
                while not issuer.goes_on.wait(0.01):
                    self.wfile.write(b" ")
                self.wfile.write(body)
            except OSError:  # whoever has asked waits no longer
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.append(Issuer(f"http://127.0.0.1:{server.server_address[1]}"))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found[0]
        finally:
            server.shutdown()
            thread.join()
