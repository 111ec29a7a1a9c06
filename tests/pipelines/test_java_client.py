"""Security as the configuration has it, in the words of Java's client."""

import pytest

from tarry.errors import ConfigError
from tarry.kafka.settings import Cluster
from tarry.pipelines.java_client import connector_options, java_properties

SCRAM: dict[str, str | int | float | bool] = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "tarry",
    "sasl.password": 'a "quoted\\" one;',
    "ssl.ca.location": "/etc/ca.pem",
    "queue.buffering.max.kbytes": 1024,
}


def test_scram_over_tls_is_said_in_javas_words_and_what_tunes_librdkafka_is_left_out() -> None:
    assert java_properties(SCRAM) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        r' username="tarry" password="a \"quoted\\\" one;";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
    }


def test_a_mechanism_that_java_needs_more_for_is_one_line() -> None:
    with pytest.raises(
        ConfigError, match=r"sasl\.mechanism OAUTHBEARER cannot be translated for Spark's .* with PLAIN, SCRAM"
    ):
        java_properties({"sasl.mechanism": "OAUTHBEARER"})


def test_a_certificate_in_a_form_that_is_not_translated_is_one_line_and_not_left_out() -> None:
    for name in ("ssl.certificate.location", "ssl.key.pem", "ssl.ca.pem"):
        with pytest.raises(ConfigError, match=rf"{name} cannot be translated for Spark's .*ssl\.keystore\.location"):
            java_properties({"security.protocol": "SSL", name: "/etc/one.pem"})


def test_properties_given_for_java_win() -> None:
    options = connector_options(Cluster("broker:9092", SCRAM), {"ssl.truststore.type": "JKS"})
    assert options["kafka.ssl.truststore.type"] == "JKS"
    assert options["kafka.bootstrap.servers"] == "broker:9092"
