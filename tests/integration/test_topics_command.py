"""`tarry topics`: what a start makes, without a service."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.processes import Serve, ServeConfig
from tests.support.programs import tarry


@pytest.fixture
def config(bootstrap: str, unique_name: Callable[[str], str]) -> ServeConfig:
    return ServeConfig(bootstrap, unique_name("delayed"), 1, unique_name("group"))


def make(directory: Path, config: ServeConfig) -> tuple[int, list[str], str]:
    """Run the command; return its exit code, its lines and what it said on stderr."""
    path = directory / "made.toml"
    path.write_text(config.toml(), encoding="utf-8")
    said = tarry("topics", "--config", str(path), cwd=directory)
    return said.code, said.out.splitlines(), said.err


def test_topics_are_made_once_and_a_service_finds_nothing_to_make(config: ServeConfig, tmp_path: Path) -> None:
    ok = f"ok    {config.intake}: the topics that it needs are as they must be"
    code, lines, _log = make(tmp_path, config)
    assert code == 0
    assert lines[-1] == ok
    made = {line.removeprefix("made  ") for line in lines[:-1]}
    endings = ("", ".results", ".journal", ".dead", ".parked", ".status", ".control", ".operations")
    assert made == {config.intake + ending for ending in endings}
    assert made <= set(AdminClient({"bootstrap.servers": config.bootstrap}).list_topics(timeout=10).topics)
    assert make(tmp_path, config)[:2] == (0, [ok])
    serve = Serve(config, tmp_path)
    try:
        serve.start().wait_serving()
        assert serve.events("topic_made") == []
        assert serve.stop() == 0
    finally:
        serve.close()


def test_a_topic_that_is_not_as_it_must_be_is_one_line_and_exit_1(config: ServeConfig, tmp_path: Path) -> None:
    assert make(tmp_path, config)[0] == 0
    code, lines, errors = make(tmp_path, replace(config, partitions=2))
    assert (code, lines) == (1, [])
    assert errors.splitlines()[-1] == (
        f"tarry: {config.intake}.results has 1 partitions, and 2 are configured"
        ": give the intake that number of partitions, or delete the topic if it is empty"
    )
