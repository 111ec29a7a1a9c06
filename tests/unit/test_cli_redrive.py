"""What `tarry redrive` prints of dead letters, which anybody may have written."""

import pytest

from tarry.cli.redrive import _show
from tarry.client.retry.core.redrive import DeadLetter


def test_what_a_terminal_would_obey_is_escaped_and_all_else_is_as_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    letters = [
        DeadLetter(0, 0, b"order-17", b"", [("tarry-error", b"out-of-attempts")]),
        DeadLetter(0, 1, b"\x1b]0;owned\x07\x1b[2J", b"", [("tarry-error", b"a\nsent 99 to orders")]),
    ]
    _show(letters, "orders", as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "would send 2 to orders",
        "  1 out-of-attempts",
        r"  1 'a\nsent 99 to orders'",
        "  partition 0 offset 0: order-17",
        r"  partition 0 offset 1: '\x1b]0;owned\x07\x1b[2J'",
    ]
