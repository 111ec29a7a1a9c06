"""Translate librdkafka's properties, which the configuration uses, to those of the Java client, which Spark uses."""

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
    """The properties with which the Java client reaches the same cluster.

    Properties that only tune librdkafka are left out. Other properties of the Java client are given to a job with
    `--kafka-option NAME=VALUE`.

    Args:
        options: librdkafka's properties.

    Raises:
        ConfigError: a security setting that this function cannot translate.
    """
    given = {name: str(value) for name, value in options.items()}
    java = {name: given[name] for name in _SAME if name in given}
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism is not None:
        module = _LOGIN_MODULES.get(mechanism)
        if module is None:
            raise ConfigError(
                f"kafka.options: sasl.mechanism {mechanism} cannot be translated for Spark's Java client: give the "
                f"jobs a configuration with {', '.join(_LOGIN_MODULES)}, or a key store"
            )
        user, password = (_quoted(given.get(name, "")) for name in ("sasl.username", "sasl.password"))
        java["sasl.mechanism"] = mechanism
        java["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    for name in given:
        if name.startswith(_OTHER_CERTIFICATES):
            raise ConfigError(
                f"kafka.options: {name} cannot be translated for Spark's Java client: give the jobs a configuration "
                "with ssl.ca.location and, for a client certificate, ssl.keystore.location (PKCS#12)"
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
        cluster: from the configuration.
        more: properties of the Java client; they override those of the cluster.
    """
    java = java_properties(cluster.options) | dict(more)
    return {f"kafka.{name}": value for name, value in java.items()} | {
        "kafka.bootstrap.servers": cluster.bootstrap_servers
    }


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
