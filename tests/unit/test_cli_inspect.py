"""`pending`, `status` and `cancel`, as far as they get without a broker, and on a fake one."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tarry.cli.cancel import cancel
from tarry.cli.main import main
from tarry.cli.pending import pending
from tarry.cli.pending_rows import at_most, by_due_time, listed
from tarry.cli.status import status
from tarry.client.outcome.result import cancel_result_of
from tarry.config import Config
from tarry.core.progress.checkpoint import Checkpoint, Geometry
from tarry.core.progress.journal_state import JournalState
from tarry.core.progress.source import INTAKE, Source
from tarry.errors import HeaderError, TarryError, UsageError
from tarry.handle import Handle
from tarry.kafka.backlog import Backlog
from tarry.kafka.inspector import EntryKind, Waiting
from tarry.kafka.settings import Cluster
from tarry.testing import FakeBroker, ManualClock

NOW_MS = 1_767_225_600_000
ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
HANDLE = f"1.in.0.{NOW_MS}.{ID}"


def _run(*arguments: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    for command in (cancel, pending, status):
        app.command(command.__name__)(command)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output, result.exception


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pending", "--exact", "--bucket", HANDLE], "--exact, --by-bucket and --bucket exclude each other"),
        (["pending", "--exact", "--by-bucket"], "--exact, --by-bucket and --bucket exclude each other"),
        (["pending", "--bucket", "soon"], "not an RFC 3339 time"),
        (["pending", "--bucket", "2030-01-01T00:00:00"], "needs its offset"),
        (["pending", "--bucket", "1767225600"], "a number must be milliseconds since the epoch"),
        (["pending", "--bucket", "9" * 30], "a number must be milliseconds since the epoch"),
        (["cancel", HANDLE, "--wait", "--timeout", "30"], "needs a unit"),
        (["cancel"], "needs either HANDLE, or --key and --name"),
        (["status"], "needs either HANDLE, or --key and --name"),
        (["status", HANDLE, "--key", "k", "--name", "n"], "needs either HANDLE, or --key and --name"),
        (["cancel", "--name", "n"], "needs either HANDLE, or --key and --name"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], says: str) -> None:
    code, output, _ = _run(*arguments)
    assert code == 2
    assert says in " ".join(output.replace("│", " ").split())


@pytest.mark.parametrize("command", ["status", "cancel"])
def test_a_malformed_handle_is_refused_before_any_request(command: str) -> None:
    _, _, refusal = _run(command, "1.in.0.12.nonsense")
    assert isinstance(refusal, HeaderError)  # main exits with 2
    assert "not a handle" in str(refusal)


@pytest.mark.parametrize("command", ["status", "cancel"])
def test_the_handle_of_a_schedule_is_refused_before_any_request(command: str) -> None:
    _, _, refusal = _run(command, f"1.in.0.0.{ID}")
    assert isinstance(refusal, HeaderError)  # main exits with 2
    assert str(refusal) == "the handle of a schedule has no due time: give --key and --name instead"


@pytest.mark.parametrize("command", ["status", "cancel"])
@pytest.mark.parametrize(
    ("handle", "intake"), [(HANDLE, []), ("1.orders.0.12." + ID, []), (HANDLE, ["--intake", "on"])]
)
def test_a_handle_of_another_topic_is_refused_before_anything_is_asked(
    command: str, handle: str, intake: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text('[[intake]]\ntopic = "on"\n', encoding="utf-8")
    topic = handle.split(".")[1]
    _, _, refusal = _run(command, handle, *intake, "--config", str(path), "--bootstrap-servers", "127.0.0.1:1")
    assert isinstance(refusal, UsageError)
    assert str(refusal) == f"the handle belongs to topic {topic}, not to on: give its intake with --intake"


def test_a_cancel_in_an_intake_with_a_fixed_delay_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text('[[intake]]\ntopic = "in"\ndelay = "5s"\ntarget = "orders"\n', encoding="utf-8")
    _, _, refusal = _run("cancel", HANDLE, "--config", str(path))
    assert isinstance(refusal, UsageError)
    assert "its messages cannot be cancelled" in str(refusal)


# -- rows ------------------------------------------------------------------------------------------------------------


def test_at_most_has_a_row_for_memory_and_one_for_each_level_over_all_partitions() -> None:
    geometry = Geometry(1_000, 3, 2)
    closed_ms = (NOW_MS + 2_000, NOW_MS + 3_000)
    checkpoint = Checkpoint((), True, geometry, closed_ms, (NOW_MS, NOW_MS + 3_000), (5, 4))
    plain = Checkpoint((), True, geometry, closed_ms)
    backlogs = [
        Backlog(("in", 0), 3, 10, checkpoint, 0, {1: (0, 9), 2: (0, 4)}),
        Backlog(("in", 1), 5, 5, plain, 0, {1: (2, 5), 2: (0, 1)}),
    ]
    rows = list(at_most(backlogs, {backlog.place: JournalState() for backlog in backlogs}))
    assert [(row.size, row.text) for row in rows] == [
        (7, "in memory, or not read yet"),
        (7, "level 1, due from 2026-01-01T00:00:00.000Z on"),
        (1, "level 2, due from 2026-01-01T00:00:03.000Z on"),
    ]
    assert rows[1].fields == {"at_most": 7, "level": 1, "from": "2026-01-01T00:00:00.000Z", "from_ms": NOW_MS}


def test_a_level_that_holds_only_the_last_marker_has_no_row() -> None:
    checkpoint = Checkpoint((), True, Geometry(1_000, 3, 2), (NOW_MS, NOW_MS), (NOW_MS, NOW_MS), (8, 3))
    idle = Backlog(("in", 0), 3, 3, checkpoint, 0, {1: (0, 9), 2: (0, 6)}, {1, 2})
    assert [(row.size, row.fields["level"]) for row in at_most([idle], {idle.place: JournalState()})] == [(2, 2)]


def waiting(due_ms: int | None, kind: EntryKind = "message", level: int = 0) -> Waiting:
    return Waiting(("in", 0), Source(level, 0) if level else INTAKE, kind, due_ms, ID, b"k", "orders")


def test_an_exact_count_goes_by_how_long_it_still_waits() -> None:
    day = 86_400_000
    ahead = [-5, 0, 1, 10_000, 10_001, 59_000, 7 * day, 7 * day + 1, 31 * day]
    found = [*(waiting(NOW_MS + ms) for ms in ahead), waiting(NOW_MS, "cancel"), waiting(None, "dead")]
    rows = list(by_due_time(found, NOW_MS))
    assert [(row.size, row.text) for row in rows] == [
        (2, "overdue"),
        (2, "due in up to 10s"),
        (2, "due in 10s to 1m"),
        (1, "due in 1d to 7d"),
        (1, "due in 7d to 30d"),
        (1, "due in more than 30d"),
        (1, "cancels"),
        (1, "to be dead letters"),
    ]
    assert rows[0].fields["from"] is None
    assert rows[1].fields["from_ms"] == NOW_MS
    assert rows[5].fields["until_ms"] is None


def test_a_listed_message_has_its_handle_and_no_control_characters() -> None:
    line, fields = listed(waiting(NOW_MS, level=2)._replace(key=b"a\x1b[2J\xff"))
    assert line == f"2026-01-01T00:00:00.000Z  {ID}  orders  'a\\x1b[2J\\\\xff'"
    assert fields["handle"] == str(Handle("in", 0, NOW_MS, ID))
    assert json.loads(json.dumps(fields))["level"] == 2
    line, fields = listed(waiting(None, "dead")._replace(key=None))
    assert line == f"no due time  {ID}  (dead)  null"
    assert (fields["handle"], fields["due"]) == (None, None)


# -- results of cancels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "is_ours"),
    [
        ({"outcome": "cancelled", "source": "in/0/3", "cancel_source": "in/0/7"}, True),
        ({"outcome": "cancel-filed", "source": None, "cancel_source": "in/0/7"}, True),
        ({"outcome": "dead", "source": "in/0/7", "reason": "bad-handle"}, True),
        ({"outcome": "cancelled", "source": "in/0/7", "cancel_source": "in/0/8"}, False),
        ({"outcome": "cancelled", "source": "in/0/3", "cancel_source": "in/0/71"}, False),
        ({"outcome": "fired", "source": "in/0/7"}, False),
    ],
)
def test_a_cancel_knows_its_results_by_its_own_place(result: dict[str, str], is_ours: bool) -> None:
    assert cancel_result_of(json.dumps(result).encode(), "in/0/7") == (result if is_ours else None)


@pytest.mark.parametrize("value", [None, b"", b"in/0/7", b'["in/0/7"]'])
def test_a_record_that_is_no_result_is_ignored(value: bytes | None) -> None:
    assert cancel_result_of(value, "in/0/7") is None


# -- on a fake cluster ------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    """Holds an intake with its results, which nobody has served; the commands speak to it."""
    broker = FakeBroker(ManualClock(NOW_MS))
    for topic in ("in", "in.results"):
        broker.make_topic(topic, 1)
    settings = Config(intake=({"topic": "in", "partitions": 1},))
    found = settings, Cluster("fake", {}, broker.clients("command"))
    for name in ("pending", "status"):
        monkeypatch.setattr(f"tarry.cli.{name}.configured", lambda _config, _servers: found)
    return broker


def _send(broker: FakeBroker) -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("tarry-target", b"orders"),
        ("tarry-id", ID.encode()),
        ("tarry-deliver-at", b"%d" % NOW_MS),
    ]
    broker.append("in", b"17", b"v", headers)


def _result(broker: FakeBroker, **fields: object) -> None:
    result = {"v": 1, "id": ID, "source": "in/0/0", "due_ms": NOW_MS, "at_ms": NOW_MS + 4, "target": "orders"}
    broker.append("in.results", ID.encode(), json.dumps(result | fields).encode(), None)


def test_pending_counts_the_records_of_a_partition_that_was_never_served_and_says_so(broker: FakeBroker) -> None:
    code, output, _ = _run("pending")
    assert code == 0
    assert "in: nothing waits" in output
    assert "in: group tarry has no checkpoint: `tarry serve` has not served it yet" in output
    _send(broker)
    assert "at most            1  in memory, or not read yet" in _run("pending")[1]
    assert "           1  overdue" in _run("pending", "--exact")[1]
    rows = [json.loads(line) for line in _run("pending", "--json")[1].splitlines() if line.startswith("{")]
    assert rows == [{"intake": "in", "at_most": 1, "level": 0}]


def test_pending_lists_what_is_due_at_a_time(broker: FakeBroker) -> None:
    _send(broker)
    for time in ("2026-01-01T00:00:00Z", "2026-01-01T01:00:19+01:00", str(NOW_MS)):
        assert f"2026-01-01T00:00:00.000Z  {ID}  orders  '17'" in _run("pending", "--bucket", time)[1]
    assert ID not in _run("pending", "--bucket", "2026-01-01T00:00:20Z")[1]


def test_a_missing_intake_is_one_line(broker: FakeBroker) -> None:
    _, _, refusal = _run("pending", "--intake", "nowhere")
    assert isinstance(refusal, TarryError)
    assert (
        str(refusal)
        == "there is no topic nowhere: check the name of the intake, or create its topics with `tarry topics`"
    )


@pytest.mark.parametrize(
    ("result", "code", "says"),
    [
        ({"outcome": "fired"}, 0, "fired: at 2026-01-01T00:00:00.004Z, 4ms after it was due, to orders"),
        ({"outcome": "cancelled"}, 0, "cancelled: at 2026-01-01T00:00:00.004Z; due 2026-01-01T00:00:00.000Z"),
        (
            {"outcome": "dead", "reason": "too-large"},
            0,
            "dead: too-large, at 2026-01-01T00:00:00.004Z; it is in in.dead",
        ),
        ({"outcome": "dead", "reason": "bad-delay", "due_ms": None}, 0, "dead: bad-delay, at "),
        ({"outcome": "duplicate"}, 0, "duplicate: the service had another message with this id and due time, "),
        ({"outcome": "fired", "due_ms": NOW_MS + 1}, 1, "unknown: the message is not waiting and has no result"),
        ({"outcome": "cancel-too-late"}, 1, "unknown: "),
    ],
)
def test_status_says_what_became_of_a_message(
    broker: FakeBroker, result: dict[str, object], code: int, says: str
) -> None:
    _result(broker, **result)
    ended, output, _ = _run("status", HANDLE)
    assert ended == code
    assert says in output


def test_status_of_one_that_waits_says_whether_a_cancel_does(broker: FakeBroker) -> None:
    _send(broker)
    assert (
        "waiting: `tarry serve` has not served its partition yet; due 2026-01-01T00:00:00.000Z"
        in _run("status", HANDLE)[1]
    )
    broker.append("in", None, None, [("tarry-cancel", HANDLE.encode())])
    assert _run("status", HANDLE)[1].endswith("; a cancel for it is pending\n")
    fields = json.loads(_run("status", HANDLE, "--json")[1])
    assert (fields["state"], fields["level"], fields["cancel_waits"], fields["served"]) == ("waiting", 0, True, False)


def test_a_duplicate_of_one_that_waits_waits_and_of_several_results_the_best_counts(broker: FakeBroker) -> None:
    _result(broker, outcome="duplicate", source="in/0/1")
    _send(broker)
    assert _run("status", HANDLE)[1].startswith("waiting: ")
    _result(broker, outcome="cancelled")
    _result(broker, outcome="fired", cancel_source="in/0/9")
    fields = json.loads(_run("status", HANDLE, "--json")[1])
    assert (fields["state"], fields["at_ms"], fields["target"]) == ("fired", NOW_MS + 4, "orders")


@pytest.mark.parametrize("command", ["pending", "status", "cancel"])
def test_the_help_of_a_command_has_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    for arguments in (["--help"], [command, "--help"]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
    out = capsys.readouterr().out
    assert f"  {command} " in out
    assert f"Example: tarry {command}" in out


def test_a_bad_handle_ends_the_command_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["cancel", "nonsense", "--wait"])
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "")
    assert said.err == "tarry: not a handle (1.<intake>.<partition>.<due_ms>.<id>): 'nonsense'\n"
