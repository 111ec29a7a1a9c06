"""The `send` command, as far as it gets without a broker, and its files."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tarry.cli.send import send
from tarry.cli.send_file import MessageFile
from tarry.client import DelayedMessage, DelayedProducer, Receipt, RepeatedMessage
from tarry.errors import ConfigError, TarryError, UsageError
from tarry.testing import ManualClock

_CLOCK = ManualClock()


def _run(*arguments: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    app.command("send")(send)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output, result.exception


def _read(tmp_path: Path, text: str) -> list[DelayedMessage | RepeatedMessage]:
    path = tmp_path / "messages.jsonl"
    path.write_text(text, encoding="utf-8", newline="")
    return list(MessageFile(path, lambda _read_bytes: None, _CLOCK))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give TARGET, or --file F"),
        (["orders"], "give either --delay or --at"),
        (["orders", "v", "--delay", "5s", "--at", "2030-01-01T00:00:00Z"], "give either --delay or --at"),
        (["orders", "v", "--delay", "5"], "needs a unit"),
        (["orders", "v", "--delay", "-5s"], "not be negative"),
        (["orders", "v", "--at", "2030-01-01T00:00:00"], "needs its offset"),
        (["orders", "v", "--delay", "5s", "-H", "novalue"], "--header must be NAME=VALUE"),
        (["orders", "v", "--delay", "5s", "--window", "5"], "needs a unit"),
        (["orders", "v", "--delay", "5s", "--expires-at", "soon"], "--expires-at: not an RFC 3339 time"),
        (["orders", "v", "--delay", "5s", "--expires-in", "5"], "--expires-in: a duration needs a unit"),
        (["orders", "v", "--delay", "5s", "--expires-in", "9999999d"], "--expires-in: a time beyond"),
        (
            ["orders", "v", "--delay", "5s", "--expires-in", "5s", "--expires-at", "2030-01-01T00:00:00Z"],
            "--expires-at excludes --expires-in",
        ),
        (["orders", "v", "--delay", "5s", "--key", "k", "--if", "absent"], "--if needs --name"),
        (["--file", "f", "--window", "5s"], "--file excludes"),
        (["orders", "v", "--file", "f"], "--file excludes"),
        (["--file", "f", "--wait"], "--file excludes"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], says: str) -> None:
    code, output, _ = _run(*arguments)
    assert code == 2
    assert says in " ".join(output.replace("│", " ").split())


def test_the_configuration_chooses_the_intake_and_a_fixed_delay_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text('[[intake]]\ntopic = "retry"\ndelay = "5s"\ntarget = "orders"\n', encoding="utf-8")
    _, _, no_intake = _run("orders", "v", "--delay", "5s", "--config", str(path))
    assert isinstance(no_intake, UsageError)
    _, _, fixed = _run("orders", "v", "--delay", "5s", "--config", str(path), "--intake", "retry")
    assert isinstance(fixed, UsageError)
    assert "retry has a fixed delay" in str(fixed)


def test_an_intake_with_a_dialect_is_passed_over_and_refused_because_its_headers_are_others(tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text('[[intake]]\ntopic = "schedules"\ndialect = "etf1"\n', encoding="utf-8")
    _, _, no_intake = _run("orders", "v", "--delay", "5s", "--config", str(path))
    assert isinstance(no_intake, UsageError)
    assert "dialect" in str(no_intake)
    _, _, foreign = _run("orders", "v", "--delay", "5s", "--config", str(path), "--intake", "schedules")
    assert isinstance(foreign, UsageError)
    assert str(foreign).startswith("intake schedules has the dialect etf1, ")


def test_a_missing_configuration_is_one_line(tmp_path: Path) -> None:
    _, _, missing = _run("orders", "v", "--delay", "5s", "--config", str(tmp_path / "none.toml"))
    assert isinstance(missing, ConfigError)
    assert str(missing).endswith("none.toml: no such file")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    _, _, missing = _run("--file", str(tmp_path / "none.jsonl"), "--bootstrap-servers", "127.0.0.1:1")
    assert isinstance(missing, UsageError)
    assert "No such file" in str(missing)


def test_a_line_with_what_no_target_can_be_names_its_number(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text('\n{"target": "a b", "delay": "5s"}\n', encoding="utf-8")
    _, _, wrong = _run("--file", str(path), "--bootstrap-servers", "127.0.0.1:1")
    assert isinstance(wrong, TarryError)
    assert "messages.jsonl:2: target: not a legal topic name" in str(wrong)


def _asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> DelayedMessage:
    """Return the message that the command would send to `orders`."""
    asked: list[DelayedMessage] = []

    def take(_producer: DelayedProducer, message: DelayedMessage) -> Receipt:
        asked.append(message)
        raise UsageError("taken")

    monkeypatch.setattr("tarry.cli.send._send_one", take)
    _, _, error = _run("orders", "v", *arguments, "--bootstrap-servers", "127.0.0.1:1")
    assert str(error) == "taken"
    (message,) = asked
    return message


def test_the_command_asks_for_a_partition_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _asked(monkeypatch, "--delay", "5s", "--partition", "3").partition == 3


def test_the_command_gives_an_expiry_and_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    message = _asked(monkeypatch, "--delay", "5s", "--window", "5m", "--expires-at", "2030-01-01T00:00:00.5Z")
    expires_at = datetime(2030, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert (message.window, message.expires_at) == (timedelta(minutes=5), expires_at)
    begun = datetime.now(UTC) - timedelta(milliseconds=1)
    expires_at = _asked(monkeypatch, "--delay", "5s", "--expires-in", "1h").expires_at or begun
    assert begun <= expires_at - timedelta(hours=1) <= datetime.now(UTC)


def test_a_line_holds_the_fields_of_the_command(tmp_path: Path) -> None:
    lines = [
        {"target": "a", "value": "ä", "key": "k", "delay": "1m", "id": "i", "headers": {"h": "1", "n": None}},
        {"target": "b", "value": None, "at": "2030-01-01T00:00:00.001Z", "partition": 3},
        {"target": "c", "delay": "0ms"},
        {"target": "d", "delay": "1s", "window": "1m", "expires_at": "2030-01-01T00:00:00Z"},
        {"target": "e", "delay": "1s", "expires_in": "1h"},
    ]
    text = "\r\n\n".join(json.dumps(line) for line in lines)
    assert _read(tmp_path, text) == [
        DelayedMessage("a", "ä", "k", delay=timedelta(minutes=1), id="i", headers={"h": "1", "n": None}),
        DelayedMessage("b", None, at=datetime(2030, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC), partition=3),
        DelayedMessage("c", "", delay=timedelta(0)),
        DelayedMessage(
            "d",
            "",
            delay=timedelta(seconds=1),
            window=timedelta(minutes=1),
            expires_at=datetime(2030, 1, 1, tzinfo=UTC),
        ),
        DelayedMessage(
            "e",
            "",
            delay=timedelta(seconds=1),
            expires_at=datetime.fromtimestamp(_CLOCK.now_ms() / 1_000, UTC) + timedelta(hours=1),
        ),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not JSON: Expecting property name"),
        ("[]", "not a JSON object"),
        ('{"delay": "5s"}', "target: missing"),
        ('{"target": 5, "delay": "5s"}', "target: should be a string"),
        ('{"target": "a"}', "needs either delay or at"),
        ('{"target": "a", "delay": "5s", "at": "2030-01-01T00:00:00Z"}', "needs either delay or at"),
        ('{"target": "a", "delay": 5}', "delay: should be a string"),
        ('{"target": "a", "delay": "5"}', "delay: a duration needs a unit"),
        ('{"target": "a", "delay": "999999999999d"}', "delay: a delay beyond"),
        ('{"target": "a", "at": "soon"}', "at: not an RFC 3339 time"),
        ('{"target": "a", "at": "0001-01-01T00:00:00+23:00"}', "at: a time outside"),
        ('{"target": "a", "delay": "5s", "window": 5}', "window: should be a string"),
        ('{"target": "a", "delay": "5s", "window": "5"}', "window: a duration needs a unit"),
        ('{"target": "a", "delay": "5s", "expires_at": "soon"}', "expires_at: not an RFC 3339 time"),
        ('{"target": "a", "delay": "5s", "expires_in": "-5s"}', "expires_in: a duration must not be negative"),
        ('{"target": "a", "delay": "5s", "expires_at": "", "expires_in": ""}', "give either expires_at or expires_in"),
        ('{"target": "a", "delay": "5s", "if": "maybe"}', "if: must be absent or present: 'maybe'"),
        ('{"target": "a", "delay": "5s", "if": "absent"}', "if: needs name"),
        ('{"target": "a", "cron": "0 9 * * *", "at": "2030-01-01T00:00:00Z"}', "at: excludes cron"),
        ('{"target": "a", "delay": "5s", "value": {}}', "value: should be a string"),
        ('{"target": "a", "delay": "5s", "headers": []}', "headers: should be an object"),
        ('{"target": "a", "delay": "5s", "headers": {"h": 1}}', "h: should be a string"),
        ('{"target": "a", "delay": "5s", "dealy": "5s"}', "unknown field 'dealy' (known: target, value, "),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(UsageError) as refusal:
        _read(tmp_path, f'{{"target": "a", "delay": "5s"}}\n\n{line}\n')
    text = str(refusal.value)
    assert "messages.jsonl:3: " in text
    assert says in text
    assert "\n" not in text


def test_a_line_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_bytes(b'{"target": "\xff\xfe"}\n')
    with pytest.raises(UsageError, match=r"messages\.jsonl:1: "):
        list(MessageFile(path, lambda _read_bytes: None))


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_text('{"target": "a", "delay": "5s"}\n\n' * 3, encoding="utf-8")
    seen: list[int] = []
    assert len(list(MessageFile(path, seen.append))) == 3
    assert sum(seen) == path.stat().st_size
