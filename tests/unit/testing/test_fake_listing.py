"""`tarry schedules` and `tarry status --key --name`, on the fake service."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tarry.cli.pending import pending
from tarry.cli.schedules import schedules
from tarry.cli.status import status
from tarry.config import Config, load
from tarry.errors import UsageError
from tarry.headers import occurrence_id
from tarry.kafka.settings import Cluster
from tarry.testing import FakeService, ManualClock
from tarry.units import parse_instant_ms

MINUTE_MS = 60_000
MINUTE = timedelta(minutes=1)


class Commands:
    """The commands, connected to a fake service."""

    def __init__(self, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fake = fake
        fake.make_topic("reports")
        self._app = typer.Typer()
        for command in (schedules, status, pending):
            self._app.command(command.__name__)(command)
            module = f"tarry.cli.{command.__name__}"
            monkeypatch.setattr(f"{module}.configured", self._configured)
            monkeypatch.setattr(f"{module}.SystemClock", lambda: fake.clock)
        monkeypatch.setattr("tarry.cli.inspect.SystemClock", lambda: fake.clock)

    def __call__(self, *arguments: str) -> str:
        result = CliRunner().invoke(self._app, list(arguments))
        if isinstance(result.exception, UsageError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("schedules", "--json", *arguments).splitlines()]

    def status(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", "--json", *arguments))
        return found

    def _configured(self, _config: Path | None, _servers: str | None) -> tuple[Config, Cluster]:
        return load(None, {}), Cluster("fake", {}, self.fake.broker.clients("command"))


@pytest.fixture
def commands(tarry_fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(tarry_fake, monkeypatch)


def test_without_schedules_it_says_so(commands: Commands) -> None:
    commands.fake.send("reports", b"v", "k", name="single", delay=MINUTE)
    assert commands("schedules") == "tarry.delayed: no schedules\n"
    assert commands.listed() == []


def test_a_schedule_is_listed_with_its_rule_and_its_next_times(commands: Commands, tarry_clock: ManualClock) -> None:
    receipt = commands.fake.repeat("reports", b"v", "k", name="n", cron="0 9 * * MON-FRI", zone="Europe/Berlin")
    commands.fake.repeat("reports", b"v", "k", name="often", every=timedelta(minutes=15))
    assert datetime.fromtimestamp(tarry_clock.now_ms() / 1_000, UTC).isoformat() == "2023-11-14T22:13:20.008000+00:00"
    often, cron = commands.listed()
    assert (often["every"], often["cron"], often["zone"], often["name"]) == ("15m", None, None, "often")
    next_ms = parse_instant_ms("2023-11-15T08:00:00Z")
    occurrence = occurrence_id(receipt.id.encode(), next_ms).decode()
    assert cron == {
        "intake": "tarry.delayed",
        "partition": 0,
        "id": receipt.id,
        "key": "k",
        "name": "n",
        "every": None,
        "cron": "0 9 * * MON-FRI",
        "zone": "Europe/Berlin",
        "target": "reports",
        "state": "waiting",
        "occurrence": 1,
        "handle": f"1.tarry.delayed.0.{next_ms}.{occurrence}",
        "next": "2023-11-15T08:00:00.000Z",
        "next_ms": next_ms,
        "then": ["2023-11-16T08:00:00.000Z", "2023-11-17T08:00:00.000Z"],
        "then_ms": [next_ms + 86_400_000, next_ms + 2 * 86_400_000],
        "level": 0,
    }
    assert commands("schedules") == (
        "tarry.delayed: 2 schedules\n"
        "2023-11-14T22:15:00.000Z  'k'  'often'  every 15m  reports  occurrence 1; "
        "then 2023-11-14T22:30:00.000Z, 2023-11-14T22:45:00.000Z\n"
        "2023-11-15T08:00:00.000Z  'k'  'n'  0 9 * * MON-FRI in Europe/Berlin  reports  occurrence 1; "
        "then 2023-11-16T08:00:00.000Z, 2023-11-17T08:00:00.000Z\n"
    )


def test_an_intake_that_takes_no_schedules_is_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text('[[intake]]\ntopic = "retry"\ndelay = "5s"\ntarget = "orders"\n', encoding="utf-8")
    app = typer.Typer()
    app.command("schedules")(schedules)
    result = CliRunner().invoke(app, ["--config", str(path)])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception).startswith("no configured intake accepts schedules")


def test_key_and_name_select_schedules(commands: Commands) -> None:
    for key, name in (("a", "x"), ("a", "y"), ("b", "x")):
        commands.fake.repeat("reports", b"v", key, name=name, every=MINUTE)

    def found(*arguments: str) -> set[tuple[str, str]]:
        return {(one["key"], one["name"]) for one in commands.listed(*arguments)}

    assert found() == {("a", "x"), ("a", "y"), ("b", "x")}
    assert found("--key", "a") == {("a", "x"), ("a", "y")}
    assert found("--name", "x") == {("a", "x"), ("b", "x")}
    assert found("--key", "b", "--name", "x") == {("b", "x")}
    assert found("--key", "b", "--name", "y") == set()


def test_the_occurrence_that_comes_next_is_listed_while_a_schedule_goes_on(
    commands: Commands, tarry_clock: ManualClock
) -> None:
    receipt = commands.fake.repeat("reports", b"v", "k", name="n", every=MINUTE)
    for number in range(1, 4):
        [one] = commands.listed("--key", "k", "--name", "n")
        assert (one["id"], one["occurrence"], one["next_ms"] % MINUTE_MS) == (receipt.id, number, 0)
        assert 0 < one["next_ms"] - tarry_clock.now_ms() <= MINUTE_MS
        tarry_clock.advance(MINUTE_MS)
    commands.fake.cancel_named("k", "n")
    assert commands.listed() == []


def test_an_occurrence_whose_target_is_away_is_parked_and_one_that_waits_is_overdue(
    commands: Commands, tarry_clock: ManualClock
) -> None:
    commands.fake.repeat("reports", b"v", "k", name="n", every=MINUTE)
    commands.fake.broker.take_away("reports")
    tarry_clock.advance(MINUTE_MS)
    [one] = commands.listed()
    assert (one["state"], one["occurrence"]) == ("overdue", 1)
    assert one["then_ms"][0] > tarry_clock.now_ms()
    tarry_clock.advance(MINUTE_MS)
    [one] = commands.listed("--key", "k", "--name", "n")
    assert (one["state"], one["level"]) == ("parked", -1)
    assert "occurrence 1, parked because its target is paused or cannot be written to; then " in commands("schedules")
    assert "parked, because its target is paused or cannot be written to" in commands(
        "status", "--key", "k", "--name", "n"
    )


def test_status_says_that_a_message_is_repeated(commands: Commands) -> None:
    receipt = commands.fake.repeat("reports", b"v", "k", name="n", every=timedelta(hours=1))
    found = commands.status("--key", "k", "--name", "n")
    next_ms = parse_instant_ms("2023-11-14T23:00:00Z")
    occurrence = occurrence_id(receipt.id.encode(), next_ms).decode()
    assert found == {
        "handle": f"1.tarry.delayed.0.{next_ms}.{occurrence}",
        "state": "waiting",
        "due": "2023-11-14T23:00:00.000Z",
        "due_ms": next_ms,
        "level": 0,
        "schedule": receipt.id,
        "occurrence": 1,
        "every": "1h",
        "cron": None,
        "zone": None,
        "then": ["2023-11-15T00:00:00.000Z", "2023-11-15T01:00:00.000Z"],
        "then_ms": [next_ms + 3_600_000, next_ms + 7_200_000],
        "cancel_waits": False,
        "served": True,
    }
    text = commands("status", found["handle"])
    assert text.startswith("waiting: in memory; due 2023-11-14T23:00:00.000Z, in 46m")
    assert text.endswith(
        "; occurrence 1 of a schedule: every 1h, then 2023-11-15T00:00:00.000Z, 2023-11-15T01:00:00.000Z\n"
    )


def test_a_message_that_is_not_repeated_has_no_schedule(commands: Commands) -> None:
    commands.fake.send("reports", b"v", "k", name="n", delay=MINUTE)
    assert "schedule" not in commands.status("--key", "k", "--name", "n")
    assert "1 wait" in commands("pending", "--exact")
