"""Ctrl-C that a library loses, or turns into another error."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.cli.interrupts import is_interrupted, noting, stop_if_interrupted
from tarry.cli.main import INTERRUPTED, main
from tarry.client import DelayedProducer
from tests.support.ctrl_c import heeding_ctrl_c


def lose() -> None:
    """As in a call from C that drops the exception."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return
    raise AssertionError("it is raised as ever")


def turn_into_another() -> None:
    """As in a call from C that raises its own error."""
    lose()
    raise TypeError("expected header key to be unicode string")


@pytest.fixture(autouse=True)
def _heeded() -> Iterator[None]:
    with heeding_ctrl_c():
        yield


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "many.jsonl"
    path.write_text(f"{json.dumps({'target': 'out', 'value': 'v', 'delay': '1h'})}\n" * 3)
    return path


@pytest.mark.parametrize("interrupt", [lose, turn_into_another])
def test_sending_a_file_ends_all_the_same(
    interrupt: Callable[[], None], lines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def send_many(_producer: DelayedProducer, messages: Iterator[Any]) -> Iterator[Any]:
        next(messages)
        interrupt()
        yield "a receipt"
        raise AssertionError("it goes on")

    monkeypatch.setattr(DelayedProducer, "send_many", send_many)
    with pytest.raises(SystemExit) as caught:
        main(["send", "--file", str(lines), "--bootstrap-servers", "127.0.0.1:1"])
    assert caught.value.code == INTERRUPTED
    assert capsys.readouterr().err == (
        f"tarry: stopped at {lines}:1: messages up to this line may be sent without a printed receipt\n"
    )


def test_an_earlier_ctrl_c_does_not_count() -> None:
    with noting():
        lose()
    assert is_interrupted()
    with noting():
        assert not is_interrupted()
        stop_if_interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with noting():
            signal.raise_signal(signal.SIGINT)
        assert not is_interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
