"""What `tarry parked` prints of the targets that are away."""

import json

import pytest
from typer.testing import CliRunner

from tarry.cli.main import app
from tarry.cli.parked import ParkedTarget, by_target, lines
from tarry.kafka.inspector import ParkedMessages

AT_MS = 1_767_225_600_000
FOUND = [
    ParkedMessages(("in", 0), "late", 5, AT_MS + 7_000),
    ParkedMessages(("in", 0), "gone", 1, None),
    ParkedMessages(("in", 1), "early", 2, AT_MS + 9_000),
    ParkedMessages(("in", 2), "early", 40, AT_MS),
    ParkedMessages(("in", 3), "early", 1, None),
]


def test_the_partitions_of_a_target_are_added_up_and_the_one_that_has_waited_longest_is_first() -> None:
    assert by_target(FOUND) == [
        ParkedTarget("early", 43, AT_MS, (1, 2, 3)),
        ParkedTarget("late", 5, AT_MS + 7_000, (0,)),
        ParkedTarget("gone", 1, None, (0,)),
    ]


def test_each_target_is_a_line_of_text() -> None:
    assert lines("in", by_target(FOUND), as_json=False) == [
        "in: 49 are parked",
        "          43  early, the first one due since 2026-01-01T00:00:00.000Z",
        "           5  late, the first one due since 2026-01-01T00:00:07.000Z",
        "           1  gone",
    ]
    assert lines("in", [], as_json=False) == ["in: nothing is parked"]


def test_each_target_is_an_object_and_nothing_is_no_line() -> None:
    [first, *_] = lines("in", by_target(FOUND), as_json=True)
    assert json.loads(first) == {
        "intake": "in",
        "target": "early",
        "messages": 43,
        "since": "2026-01-01T00:00:00.000Z",
        "since_ms": AT_MS,
        "partitions": [1, 2, 3],
    }
    assert lines("in", [], as_json=True) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--run"], "--run needs --purge TARGET"),
        (["--purge", "no/topic"], "--purge: not a legal topic name: no/topic"),
        (["--purge", "orders", "--run", "--timeout", "0s"], "--timeout: duration must be greater than zero"),
    ],
)
def test_a_purge_that_makes_no_sense_is_refused_before_anything_is_asked(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["parked", *arguments, "--bootstrap-servers", "localhost:1"])
    assert result.exit_code != 0
    assert says in (result.output + str(result.exception))
