"""The errors when Kafka's jars cannot be downloaded, with scripts in place of Java that fail as Ivy does."""

from pathlib import Path

import pytest

from tarry.devbroker.broker import KAFKA
from tarry.errors import UsageError
from tarry.jars.ivy import fetch_jars, proxy_options
from tarry.jars.java import Java


def a_java_that(tmp_path: Path, script: str) -> Java:
    path = tmp_path / "java"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return Java(path, 17)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    directory = tmp_path / "jars"
    directory.mkdir()
    return directory


def test_ivy_is_asked_for_kafka_and_a_logger_and_its_scratch_is_removed(tmp_path: Path, into: Path) -> None:
    keep = tmp_path / "asked"
    java = a_java_that(tmp_path, f'for a; do case "$a" in */ivy.xml) cat "$a" > {keep};; esac; done')
    fetch_jars(java, into, KAFKA.artefacts, "Kafka")
    asked = keep.read_text(encoding="utf-8")
    assert 'name="kafka_2.13" rev="4.1.2"' in asked
    assert "log4j-slf4j-impl" in asked
    assert sorted(path.name for path in tmp_path.iterdir()) == ["asked", "jars", "java"]


@pytest.mark.parametrize(
    ("ivy_says", "we_say"),
    [
        (
            "PKIX path building failed: unable to find valid certification path",
            "set JAVA_HOME to a Java that trusts it",
        ),
        ("Server access error: java.net.UnknownHostException: repo", "no connection: check the network"),
        ("java.net.ConnectException: Connection refused", "no connection: check the network"),
        (":: disk full\n::::", "disk full"),
        ("", "gave no reason"),
    ],
)
def test_a_failed_fetch_is_one_line_with_ivys_own_words_as_a_note(
    tmp_path: Path, into: Path, ivy_says: str, we_say: str
) -> None:
    with pytest.raises(UsageError) as refused:
        fetch_jars(a_java_that(tmp_path, f"echo '{ivy_says}'; exit 1"), into, KAFKA.artefacts, "Kafka")
    assert we_say in str(refused.value)
    assert "\n" not in str(refused.value)
    assert ivy_says in refused.value.__notes__[0]


def test_javas_proxy_is_the_one_of_the_environment() -> None:
    environ = {"HTTPS_PROXY": "http://proxy.example:3128", "no_proxy": "localhost, .example.org"}
    assert list(proxy_options(environ)) == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.example.org",
    ]


def test_a_proxy_may_be_named_without_a_scheme() -> None:
    assert "-Dhttp.proxyHost=10.0.0.1" in list(proxy_options({"http_proxy": "10.0.0.1:8080"}))


def test_without_a_proxy_java_gets_no_option() -> None:
    assert list(proxy_options({})) == []
