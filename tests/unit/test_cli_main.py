"""The `tarry` command itself: its subcommands, and how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from tarry import __version__
from tarry.cli import inspect as looking
from tarry.cli import main as asking
from tarry.cli.commands import NAMES
from tarry.cli.main import _address_hint, main
from tarry.config import Config
from tarry.config.tree import Kafka
from tarry.errors import BrokerError, RetriableError
from tarry.native import core

NOBODY = "127.0.0.1:1"


def _run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, "--version") == (0, f"tarry {__version__} ({core()})\n", "")


def test_a_command_imports_no_other_one() -> None:
    code = (
        "import sys; from tarry.cli.main import main\n"
        "try: main(['topics', '--help'])\n"
        "finally: print(*(name for name in sys.modules if name.startswith('tarry.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.rpartition(".")[2] for name in done.stdout.splitlines()[-1].split()}
    assert imported & set(NAMES) == {"topics"}


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _run(capsys, "--help")
    assert code == 0
    assert all(f"  {command} " in out for command in NAMES)


@pytest.mark.parametrize("command", ["broker", "serve", "send", "check", "demo"])
def test_every_command_explains_itself_by_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = _run(capsys, command, "--help")
    assert code == 0
    assert f"Example: tarry {command}" in out


@pytest.mark.parametrize("arguments", [["nonsense"], ["check", "--nonsense"], ["--log-level", "loud", "check"]])
def test_wrong_usage_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, err = _run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("tarry: ")
    assert err.count("\n") == 1


def test_a_wrong_configuration_is_one_line_that_names_the_field_and_exit_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_WHEEL__SIZE", "1")
    code, out, err = _run(capsys, "serve")
    assert (code, out) == (2, "")
    assert err.startswith("tarry: wheel.size (set by TARRY_WHEEL__SIZE): ")
    assert err.count("\n") == 1


def test_debug_shows_where_an_error_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_WHEEL__SIZE", "1")
    with pytest.raises(Exception, match=r"wheel\.size"):
        main(["--debug", "serve"])


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["nosuch"], "tarry"),
        (["send"], "tarry send"),
        (["pending", "--nosuch"], "tarry pending"),
        (["spark", "audit", "--out", "x", "--grace", "5"], "tarry spark audit"),
    ],
)
def test_a_mistake_of_use_names_the_help_of_its_command(
    words: list[str], asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f" ({asked} --help)\n")


def test_if_no_broker_answers_the_command_says_that_it_used_the_default_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (looking, asking):  # a broker of this machine may have the default address
        monkeypatch.setattr(module, "load", lambda *_: Config(kafka=Kafka(bootstrap_servers=NOBODY)))
    for more, hint in (
        ([], " (this is the default address, because there is no tarry.toml here, and no --bootstrap-servers)"),
        (["--bootstrap-servers", NOBODY], ""),
    ):
        code, _, err = _run(capsys, "send", "orders", "v", "--delay", "5s", *more)
        assert code == 1
        assert err.endswith(f"; nothing was ever connected{hint}\n")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["serve"], False),
        (["--debug", "topics"], False),
        (["check"], False),
        (["pending", "check"], True),
        (["spark", "audit", "--out", "x"], True),
    ],
)
def test_only_an_option_that_the_command_has_is_missed(
    words: list[str],
    named: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = _address_hint(BrokerError("nobody answers"), words)
    assert said.startswith(" (this is the default address, because there is no tarry.toml here")
    assert ("--bootstrap-servers" in said) == named


@pytest.mark.parametrize("code", ["_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"])
def test_a_cluster_that_does_not_answer_is_named(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "there.toml"
    config.write_text('[kafka]\nbootstrap_servers = "there:1"\n[[intake]]\ntopic = "t"\n', encoding="utf-8")
    silent = RetriableError("could not ask for t: timed out", code)
    for words, hint in (
        (["paused", "--bootstrap-servers", "here:1"], " (Kafka at here:1 does not answer)"),
        (["paused", "--bootstrap-servers=here:1"], " (Kafka at here:1 does not answer)"),
        (["topics", "--config", str(config)], " (Kafka at there:1 does not answer)"),
        (["paused", "--config", str(config), "--bootstrap-servers", "here:1"], " (Kafka at here:1 does not answer)"),
        (["topics"], " (Kafka at 127.0.0.1:9092 does not answer; this is the default address, because there is no"),
    ):
        assert _address_hint(silent, words).startswith(hint)
    asked = ["paused", "--bootstrap-servers", "here:1"]
    assert _address_hint(RetriableError("could not reach here:1", code), asked) == ""
    assert _address_hint(RetriableError("a refusal", "TOPIC_AUTHORIZATION_FAILED"), asked) == ""


@pytest.mark.parametrize("words", ["api token create", "api token revoke", "spark forecast"])
def test_a_group_of_commands_has_them(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--help"])
    assert ended.value.code == 0
    assert f"Usage: tarry {words}" in capsys.readouterr().out
