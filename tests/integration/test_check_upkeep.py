"""`tarry check` on what a start would not mind: an intake that was left behind, and copies that are missing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import typer
from typer.testing import CliRunner

from tarry.cli.check import check
from tarry.client import DelayedProducer
from tarry.kafka.topics import CONTROL, DEAD, JOURNAL, OPERATIONS, PARKED, RESULTS, STATUS
from tests.support.processes import Serve, ServeConfig


def notes(path: Path, config: ServeConfig) -> list[str]:
    """The lines of the command that are about intakes; it must not fail."""
    path.write_text(config.toml(), encoding="utf-8")
    app = typer.Typer()
    app.command("check")(check)
    result = CliRunner().invoke(app, ["--config", str(path)])
    assert result.exit_code == 0, result.output
    return [line for line in result.output.splitlines() if line.startswith("note  intake ")]


def test_an_intake_that_is_configured_no_more_is_noted_with_what_waits_in_it(
    bootstrap: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    old = ServeConfig(bootstrap, unique_name("old"), partitions=2, group=unique_name("group"))
    serve = Serve(old, tmp_path)
    try:
        serve.start().wait_serving()
        assert serve.stop() == 0
        new = replace(old, intake=unique_name("new"))
        path = tmp_path / "checked.toml"
        begin = f"note  intake {old.intake}: group {old.group} has served it before, but it is not configured; "
        assert notes(path, new) == [begin + "waiting messages: none"]
        with DelayedProducer(bootstrap, intake=old.intake) as producer:
            producer.send("somewhere", b"v", key=b"k", delay=timedelta(seconds=50))
        assert notes(path, new) == [begin + "waiting messages: at most 1, which are not delivered"]
        assert notes(path, old) == []
        stranger = replace(new, group=unique_name("group"))
        assert notes(path, stranger) == []
        demanding = replace(old, intake_settings={"replication": 3})
        [line] = notes(path, demanding)
        assert line.startswith(f"note  intake {old.intake}: replication = 3, but these topics have fewer replicas: ")
        beside = (RESULTS, DEAD, STATUS, CONTROL, OPERATIONS, JOURNAL, PARKED)
        assert all(f"{old.intake}{suffix} (1)" in line for suffix in ("", *beside))
    finally:
        serve.close()
