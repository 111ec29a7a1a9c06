"""A real broker with TLS, SCRAM and ACLs. The tests themselves use its plain listener, and may do everything.

A client of the secured listener is a user with exactly the rights that were granted. The certificates are created here.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tarry.devbroker import EmbeddedBroker
from tarry.devbroker.ports import HOST, free_port
from tarry.testing.serve import ServeConfig
from tests.support.grants import Grant, give

MECHANISM: Final = "SCRAM-SHA-512"
DOORS: Final = pytest.StashKey[dict[str, "SecuredBroker"]]()
"""With `--secured`: the brokers of this run, by the addresses of their plain listeners."""

_PROTOCOLS: Final = "listener.security.protocol.map"
_ADDED: Final = ("listeners", "advertised.listeners", _PROTOCOLS)
_WITHIN_S: Final = 30
NAMES: Final = {"<intake>": ["rights"], "<level>": ["1"], "<target>": ["bills"], "<group>": ["tarry"]}
"""The names for the placeholders in the guide's tables of rights, for the service of `config_of`."""

PASSWORD: Final = "a \"hard\" word; to 'quote': Paßwört"  # noqa: S105 (of a broker that lives for one test)


def config_of(broker: "SecuredBroker", user: "User", **settings: Any) -> ServeConfig:
    """Return a user's configuration for an intake with one level and one target."""
    intake: dict[str, Any] = {
        "intake_settings": {"max_delay": "3s", "targets": ["bills"]},
        "overflow": {"from": "2s", "width": "2s"},
    }
    return ServeConfig(broker.address, "rights", 1, "tarry", options=user.options, **{**intake, **settings})


class Authority:
    """The certificate authority of the broker.

    Args:
        directory: for the certificate files.
        name: the host name in the broker's certificate.
    """

    def __init__(self, directory: Path, name: str = HOST) -> None:
        authority = trustme.CA()
        broker = authority.issue_cert(name)
        self.certificate = directory / "authority.pem"
        """The file of the CA certificate, for clients."""
        authority.cert_pem.write_to_path(self.certificate)
        self.keystore = directory / "broker.pem"
        """The file of the broker's key and certificate, in the form that Kafka reads."""
        key = load_pem_private_key(broker.private_key_pem.bytes(), None)
        parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())]
        self.keystore.write_bytes(b"".join(parts + [part.bytes() for part in broker.cert_chain_pems]))


class User(NamedTuple):
    """A user of the broker.

    Args:
        name: the name; Kafka's principal is `User:` and this.
        password: the password.
        authority: the broker's certificate authority.
    """

    name: str
    password: str
    authority: Path

    @property
    def options(self) -> dict[str, str]:
        """The user's librdkafka properties."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.name,
            "sasl.password": self.password,
            "ssl.ca.location": str(self.authority),
        }

    @property
    def options_in_the_clear(self) -> dict[str, str]:
        """The same without TLS, for a proxy that must read the requests."""
        tls = {"security.protocol", "ssl.ca.location"}
        kept = {name: value for name, value in self.options.items() if name not in tls}
        return kept | {"security.protocol": "SASL_PLAINTEXT"}


class SecuredBroker:
    """A broker with a secured listener.

    Args:
        start: starts an embedded broker, given its properties.
        directory: for the certificates.
        properties: further broker properties; clients of a listener among them must authenticate as well, but without
            TLS, because a proxy must be able to read the requests.
        name: the host name in its certificate.
    """

    def __init__(
        self,
        start: Callable[..., EmbeddedBroker],
        directory: Path,
        properties: Mapping[str, str] | None = None,
        name: str = HOST,
        **arguments: object,
    ) -> None:
        self.authority = Authority(directory, name)
        self.address = f"{HOST}:{free_port()}"
        """The address of the secured listener."""
        self.broker = start(properties=self._properties(properties or {}), **arguments)
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})

    def user(self, name: str, grants: Iterable[Grant] = (), password: str = PASSWORD) -> User:
        """Create a user with grants."""
        upsertion = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        for future in self.admin.alter_user_scram_credentials([upsertion]).values():
            future.result(_WITHIN_S)
        self.grant(name, grants)
        return User(name, password, self.authority.certificate)

    def grant(self, name: str, grants: Iterable[Grant]) -> None:
        """Grant further rights to a user, however the user authenticates."""
        give(self.admin, name, grants)

    def _properties(self, more: Mapping[str, str]) -> dict[str, str]:
        ours = {
            "listeners": f"SECURED://{self.address}",
            "advertised.listeners": f"SECURED://{self.address}",
            "listener.security.protocol.map": "SECURED:SASL_SSL",
            "listener.name.secured.ssl.keystore.type": "PEM",
            "listener.name.secured.ssl.keystore.location": str(self.authority.keystore),
            "sasl.enabled.mechanisms": MECHANISM,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The tests and the broker itself use the plain listeners.
            "super.users": "User:ANONYMOUS",
        }
        protocols = more.get(_PROTOCOLS, "").replace(":PLAINTEXT", ":SASL_PLAINTEXT")
        names = ["secured", *(pair.partition(":")[0].lower() for pair in protocols.split(",") if pair)]
        ours |= {
            f"listener.name.{name}.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
            for name in names
        }
        theirs = {**more, _PROTOCOLS: protocols} if protocols else dict(more)
        both = {name: f"{ours[name]},{theirs[name]}" for name in _ADDED if name in theirs}
        return ours | theirs | both
