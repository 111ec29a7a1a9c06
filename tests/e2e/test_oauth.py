"""The service with tokens of an identity provider, as docs/security.md has it; they end soon and are got anew."""

import base64
import json
import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import pytest
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from tarry.client import DelayedProducer
from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.broker import DEFAULT_JVM_OPTIONS
from tests.support.brokers import starting_brokers, wait_until
from tests.support.grants import GUIDE, MAKER, SERVICE, documented
from tests.support.processes import Serve, ServeConfig
from tests.support.secured import SecuredBroker
from tests.support.topics import read_topic

LIFETIME_S: Final = 15
"""A fifth before its end the client gets the next one. A connection of the last moment shows that within what is left,
and brokers refuse it within a second (KIP-368): tokens of 8 s held deliveries up for half a minute."""

SECRET: Final = "the client's"  # noqa: S105 (of a provider that lives for one test)
NAMES: Final = {"<intake>": ["tokens"], "<level>": [], "<target>": ["bills"], "<group>": ["tarry"]}


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """Gives tokens to one who knows the secret.

    Args:
        directory: for the file of its public keys.
    """

    def __init__(self, directory: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self.keys = directory / "jwks.json"
        public = self._key.public_key().public_numbers()
        modulus, exponent = (encoded(n.to_bytes((n.bit_length() + 7) // 8)) for n in (public.n, public.e))
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": modulus, "e": exponent}
        self.keys.write_text(json.dumps({"keys": [key]}), encoding="utf-8")
        self.given = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def token(self) -> str:
        now_s = int(time.time())
        claims = {"sub": "tarry", "aud": "kafka", "iss": "tests", "iat": now_s, "exp": now_s + LIFETIME_S}
        parts = [
            encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, {**claims, "scope": "k"})
        ]
        signature = self._key.sign(".".join(parts).encode(), padding.PKCS1v15(), SHA256())
        return ".".join([*parts, encoded(signature)])

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                basic = base64.b64decode((self.headers["Authorization"] or "").removeprefix("Basic "))
                if basic != f"tarry:{SECRET}".encode() or form["grant_type"] != ["client_credentials"]:
                    self.send_error(401)
                    return
                provider.given += 1
                answer = {"access_token": provider.token(), "token_type": "Bearer", "expires_in": LIFETIME_S}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    made = Provider(tmp_path)
    yield made
    made.close()


def documented_options() -> dict[str, str]:
    """The guide's own `[kafka.options]` for tokens."""
    blocks = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    [block] = [block for block in blocks if "OAUTHBEARER" in block]
    options: dict[str, str] = tomllib.loads(block)["kafka"]["options"]
    return options


@pytest.fixture
def start_embedded_broker() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Also with `--secured`: here the tokens are what secures it."""
    with starting_brokers() as start:
        yield start


@pytest.mark.exhaustive
def test_tokens_let_the_service_in_and_are_renewed_while_it_works(
    start_embedded_broker: Callable[..., EmbeddedBroker], provider: Provider, tmp_path: Path
) -> None:
    keys = provider.keys.as_uri()
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    secured = SecuredBroker(
        start_embedded_broker,
        tmp_path,
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.secured.oauthbearer.sasl.server.callback.handler.class": handler,
            "listener.name.secured.oauthbearer.sasl.jaas.config": module,
            "sasl.oauthbearer.jwks.endpoint.url": keys,
            "sasl.oauthbearer.expected.audience": "kafka",
            # Whoever has not shown a new token by then is cut off.
            "connections.max.reauth.ms": str(LIFETIME_S * 1000),
        },
        jvm_options=(*DEFAULT_JVM_OPTIONS, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"),
    )
    secured.grant("tarry", [*documented(SERVICE, NAMES), *documented(MAKER, NAMES)])
    secured.admin.create_topics([NewTopic("bills", 1, 1)])["bills"].result(30)
    options = {
        **documented_options(),
        "sasl.oauthbearer.token.endpoint.url": provider.url,
        "sasl.oauthbearer.client.secret": SECRET,
        "ssl.ca.location": str(secured.authority.certificate),
    }
    serve = Serve(ServeConfig(secured.address, "tokens", 1, "tarry", options=options), tmp_path)
    plain = secured.broker.bootstrap_servers
    try:
        serve.start().wait_serving()
        began_s, first = time.monotonic(), provider.given
        while provider.given < first * 2 or time.monotonic() < began_s + 2 * LIFETIME_S:
            assert time.monotonic() < began_s + 60, "no new token was asked for"
            sent = len(read_topic(plain, "tokens"))
            with DelayedProducer(plain, "tokens") as producer:
                producer.send("bills", b"%d" % sent, delay=timedelta())
            wait_until(lambda sent=sent: len(read_topic(plain, "bills")) > sent, "it is delivered", 20)  # type: ignore[misc]
        assert serve.stop() == 0
    finally:
        serve.close()
    assert [record.value() for record in read_topic(plain, "bills")] == [
        record.value() for record in read_topic(plain, "tokens")
    ]
