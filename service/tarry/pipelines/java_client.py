"""Java's names for librdkafka's properties: the configuration speaks librdkafka, Spark's connector speaks Java."""

from collections.abc import Mapping

from tarry.errors import ConfigError
from tarry.kafka.settings import Cluster

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OTHER_CERTIFICATES = ("ssl.certificate.", "ssl.key.", "ssl.ca.pem", "ssl.ca.certificate.stores")
_SAME = ("security.protocol", "client.id", "client.rack")


def java_properties(options: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """What Java's client needs to reach the same cluster.

    Properties that only tune librdkafka are left out. What Java needs otherwise, or more of, is given to a job as
    `--kafka-option NAME=VALUE`.

    Args:
        options: librdkafka's properties.

    Raises:
        ConfigError: security of a kind that has no form for Java here.
    """
    given = {name: str(value) for name, value in options.items()}
    java = {name: given[name] for name in _SAME if name in given}
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism is not None:
        module = _LOGIN_MODULES.get(mechanism)
        if module is None:
            raise ConfigError(
                f"kafka.options: sasl.mechanism {mechanism} has no form for Spark's Java client here: give the jobs a "
                f"configuration with {', '.join(_LOGIN_MODULES)}, or a key store"
            )
        user, password = (_quoted(given.get(name, "")) for name in ("sasl.username", "sasl.password"))
        java["sasl.mechanism"] = mechanism
        java["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    for name in given:
        if name.startswith(_OTHER_CERTIFICATES):
            raise ConfigError(
                f"kafka.options: {name} has no form for Spark's Java client here: give the jobs a configuration with "
                "ssl.ca.location and, for a certificate of their own, ssl.keystore.location (PKCS#12)"
            )
    if "ssl.ca.location" in given:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.location"] = given["ssl.ca.location"]
    if "ssl.keystore.location" in given:
        java["ssl.keystore.type"] = "PKCS12"
        java["ssl.keystore.location"] = given["ssl.keystore.location"]
        java["ssl.keystore.password"] = given.get("ssl.keystore.password", "")
    if given.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    return java


def connector_options(cluster: Cluster, more: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's connector for a cluster.

    Args:
        cluster: as the configuration has it.
        more: Java's properties, which win.
    """
    java = java_properties(cluster.options) | dict(more)
    return {f"kafka.{name}": value for name, value in java.items()} | {
        "kafka.bootstrap.servers": cluster.bootstrap_servers
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
