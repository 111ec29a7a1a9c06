"""The broker's ports, its properties, and the line that says why it did not start."""

import socket
from pathlib import Path

import pytest

from tarry.devbroker import diagnosis
from tarry.devbroker.ports import HOST, free_port, is_free
from tarry.devbroker.properties import properties_text, server_properties


def test_a_drawn_port_is_free_and_below_those_of_outgoing_connections() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    for _ in range(20):
        port = free_port()
        assert is_free(port)
        assert 1024 < port < low


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_every_internal_topic_has_one_replica() -> None:
    properties = server_properties(9092, 9093, Path("/data"), {})
    factors = {name: value for name, value in properties.items() if name.endswith((".factor", ".min.isr"))}
    assert len(factors) >= 6
    assert set(factors.values()) == {"1"}


def test_extra_properties_override_and_listeners_are_added() -> None:
    properties = server_properties(
        9092,
        9093,
        Path("/data"),
        {
            "offsets.topic.num.partitions": "3",
            "message.max.bytes": "99",
            "listeners": "TLS://127.0.0.1:9094",
            "advertised.listeners": "TLS://127.0.0.1:9094",
            "listener.security.protocol.map": "TLS:SSL",
        },
    )
    assert properties["offsets.topic.num.partitions"] == "3"
    assert properties["message.max.bytes"] == "99"
    assert properties["listeners"] == ("PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,TLS://127.0.0.1:9094")
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092,TLS://127.0.0.1:9094"
    assert properties["listener.security.protocol.map"].endswith(",TLS:SSL")


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain=1:2", "a=plain=1:2\n"),
        (" led by a blank", "a=\\ led by a blank\n"),
        ("C:\\data", "a=C:\\\\data\n"),
        ("two\nlines", "a=two\\nlines\n"),
        ("Grüße", "a=Gr\\u00fc\\u00dfe\n"),
        ("𝄞", "a=\\ud834\\udd1e\n"),
    ],
)
def test_values_are_written_as_java_reads_them(value: str, line: str) -> None:
    assert properties_text({"a": value}) == line


@pytest.mark.parametrize(
    ("console", "log", "line"),
    [
        ("", "ERROR Fatal fault (kafka)\nERROR Shut down (kafka)\n", "during its start: ERROR Fatal fault (kafka)"),
        (
            'Exception in thread "main" org.apache.kafka.ConfigException: Invalid value x\n\tat a.b\n',
            "",
            "the broker ended during its start: org.apache.kafka.ConfigException: Invalid value x",
        ),
        (
            "Invalid heap: -Xmx1\nError: Could not create the JVM.\n",
            "",
            "Error: Could not create the JVM.",
        ),
        ("it just\nwent away\n", "", "the broker ended during its start: went away"),
        ("", "", "its logs are empty"),
    ],
)
def test_a_failed_start_says_the_cause_in_one_line(tmp_path: Path, console: str, log: str, line: str) -> None:
    (tmp_path / diagnosis.CONSOLE).write_text(console, encoding="utf-8")
    (tmp_path / diagnosis.LOG).write_text(log, encoding="utf-8")
    error = diagnosis.failed_start(tmp_path, 9.0, still_runs=False)
    assert line in str(error)
    assert "\n" not in str(error)
    assert error.__notes__ == ["\n".join((console + log).splitlines())]


def test_a_broker_that_does_not_answer_is_told_from_one_that_ended(tmp_path: Path) -> None:
    assert "did not answer within 9 s" in str(diagnosis.failed_start(tmp_path, 9.0, still_runs=True))


def test_a_port_lost_to_another_process_is_recognised(tmp_path: Path) -> None:
    assert not diagnosis.lost_a_port(tmp_path)
    (tmp_path / diagnosis.LOG).write_text("java.net.BindException: Address already in use\n", encoding="utf-8")
    assert diagnosis.lost_a_port(tmp_path)
