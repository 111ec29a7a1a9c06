"""The output of `tarry redrive` for dead letters, whose content is not trusted."""

import pytest

from tarry.cli.redrive import show
from tarry.client.retry.core.redrive import DeadLetter


def test_terminal_control_sequences_are_escaped_and_other_text_is_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    letters = [
        DeadLetter(0, 0, b"order-17", b"", [("tarry-error", b"out-of-attempts")]),
        DeadLetter(0, 1, b"\x1b]0;owned\x07\x1b[2J", b"", [("tarry-error", b"a\nsent 99 to orders")]),
    ]
    show(letters, "send", "orders", as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "would send 2 to orders",
        "  1 out-of-attempts",
        r"  1 'a\nsent 99 to orders'",
        "  partition 0 offset 0: order-17",
        r"  partition 0 offset 1: '\x1b]0;owned\x07\x1b[2J'",
    ]
