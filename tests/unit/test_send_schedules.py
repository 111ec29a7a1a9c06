"""`tarry send --every` and `--cron`, as far as they get without a broker, and schedules in files."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tarry.cli.send import send
from tarry.cli.send_file import MessageFile
from tarry.client import DelayedMessage, DelayedProducer, RepeatedMessage, ScheduleReceipt
from tarry.client.record import to_schedule
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import RequestReader
from tarry.core.request.request import Request
from tarry.core.request.schedule_times import next_times, rule_fields, rule_text, times_after
from tarry.errors import HeaderError, UsageError
from tarry.service.repeating import begun
from tarry.testing import ManualClock
from tarry.units import parse_instant_ms

NOW_MS = 1_767_225_600_000  # 2026-01-01, a Thursday
ID = "8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
NAMED = ("--key", "k", "--name", "n")


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    app = typer.Typer()
    app.command("send")(send)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output, result.exception


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--every", "15m", "--cron", "0 9 * * *", *NAMED], "--every excludes --cron"),
        (["--every", "15m", "--delay", "5s", *NAMED], "--delay excludes --every and --cron"),
        (["--cron", "0 9 * * *", "--at", "2030-01-01T00:00:00Z", *NAMED], "--at excludes --cron"),
        (["--every", "15m", "--zone", "UTC", *NAMED], "--zone needs --cron"),
        (["--delay", "5s", "--zone", "UTC"], "--zone needs --cron"),
        (["--every", "15m"], "--every and --cron need --key and --name"),
        (["--every", "15m", "--key", "k"], "--every and --cron need --key and --name"),
        (["--every", "15", *NAMED], "--every: a duration needs a unit"),
        (["--every", "15m", "--at", "soon", *NAMED], "--at: not an RFC 3339 time"),
        (["--file", "f", "--every", "15m"], "--file excludes"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], says: str) -> None:
    code, output, _ = run(*([] if "--file" in arguments else ["orders", "v"]), *arguments)
    assert code == 2
    assert says in " ".join(output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--every", "10ms"], "every: must be a second or longer"),
        (["--cron", "0 9 * *"], "cron: needs five fields"),
        (["--cron", "0 25 * * *"], "cron: bad hour"),
        (["--cron", "0 9 31 2 *"], "cron: "),
        (["--cron", "0 9 * * *", "--zone", "Europe/Nowhere"], "zone: not a zone such as Europe/Berlin"),
        (["--every", "1h", "--expires-at", "2020-01-01T00:00:00Z"], "expires_at: "),
        (["--cron", "0 0 29 2 *", "--expires-in", "1s"], "expires_at: "),
    ],
)
def test_a_wrong_rule_is_refused_before_anything_is_sent(arguments: list[str], says: str) -> None:
    _, _, refusal = run("orders", "v", *NAMED, *arguments, "--bootstrap-servers", "127.0.0.1:1")
    assert isinstance(refusal, HeaderError)  # main exits with 2
    assert str(refusal).startswith(says)
    assert "\n" not in str(refusal)


def test_the_command_asks_for_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RepeatedMessage] = []

    def take(_producer: DelayedProducer, message: RepeatedMessage) -> ScheduleReceipt:
        asked.append(message)
        raise UsageError("taken")

    monkeypatch.setattr("tarry.cli.send._repeat_one", take)
    options = ["--if", "absent", "--id", ID, "-H", "a=b", "--partition", "3", "--window", "1m"]
    options += ["--expires-at", "2040-01-01T00:00:00Z", "--bootstrap-servers", "127.0.0.1:1"]
    at = ("--every", "15m", "--at", "2030-01-01T00:00:00Z")
    for rule in (at, ("--cron", "0 9 * * *", "--zone", "Asia/Tokyo")):
        _, _, error = run("orders", "v", *NAMED, *rule, *options)
        assert str(error) == "taken"
    shared = {"only_if": "absent", "id": ID, "headers": [("a", b"b")], "partition": 3}
    ends = {"expires_at": datetime(2040, 1, 1, tzinfo=UTC), "window": timedelta(minutes=1)}
    first = datetime(2030, 1, 1, tzinfo=UTC)
    assert asked == [
        RepeatedMessage("orders", b"v", b"k", b"n", timedelta(minutes=15), first=first, **shared, **ends),  # type: ignore[arg-type]
        RepeatedMessage("orders", b"v", b"k", b"n", cron="0 9 * * *", zone="Asia/Tokyo", **shared, **ends),  # type: ignore[arg-type]
    ]


# -- times -----------------------------------------------------------------------------------------------------------


@given(
    every=st.timedeltas(timedelta(seconds=1), timedelta(days=40)),
    window=st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(hours=1)),
    tick_ms=st.sampled_from([1, 7, 1_000]),
    number=st.integers(0, 2**128 - 1),
)
def test_the_first_time_is_that_of_the_service(
    every: timedelta, window: timedelta | None, tick_ms: int, number: int
) -> None:
    every -= every % timedelta(milliseconds=1)
    asked = RepeatedMessage("orders", b"v", b"k", b"n", every, id=UUID(int=number), window=window)
    message, next_ms = begun(asked, NOW_MS, tick_ms)
    record = to_schedule(message, NOW_MS)
    reader = RequestReader(IntakePolicy("in", tick_ms=tick_ms))
    request = reader.read(0, 0, NOW_MS, record.headers, NOW_MS, key=b"k", value=b"v")
    assert isinstance(request, Request)
    assert request.due_ms == next_ms


def test_a_schedule_without_an_id_gets_one_so_that_its_times_are_known() -> None:
    message, _ = begun(RepeatedMessage("orders", b"v", b"k", b"n", timedelta(hours=1)), NOW_MS, 1)
    assert isinstance(message.id, UUID)


def test_a_schedule_that_expires_before_its_first_occurrence_is_refused() -> None:
    hour_ms = 3_600_000
    for expires_ms, says in ((NOW_MS + hour_ms - 1, "before the first occurrence"), (NOW_MS + hour_ms, "")):
        end = datetime.fromtimestamp(expires_ms / 1_000, UTC)
        asked = RepeatedMessage("orders", b"v", b"k", b"n", timedelta(hours=1), expires_at=end)
        if says:
            with pytest.raises(HeaderError, match=says):
                begun(asked, NOW_MS, 1)
        else:
            assert begun(asked, NOW_MS, 1)[1] == expires_ms


def test_times_follow_the_rule() -> None:
    found = {"tarry-cron": b"0 9 * *  MON-FRI", "tarry-zone": b"Europe/Berlin"}
    times = next_times(found, ID.encode(), NOW_MS, 1, 3)
    assert times == tuple(parse_instant_ms(f"2026-01-0{day}T08:00:00Z") for day in (1, 2, 5))
    assert rule_text(found) == "0 9 * * MON-FRI in Europe/Berlin"
    assert rule_fields(found) == {"every": None, "cron": "0 9 * * MON-FRI", "zone": "Europe/Berlin"}
    assert rule_text({"tarry-cron": b"0 9 * * *"}) == "0 9 * * * in UTC"
    every = {"tarry-every": b"15m"}
    assert next_times(every, ID.encode(), NOW_MS, 1, 2) == (NOW_MS + 900_000, NOW_MS + 1_800_000)
    assert rule_text(every) == "every 15m"
    assert rule_fields(every) == {"every": "15m", "cron": None, "zone": None}


def test_a_rule_that_cannot_be_read_has_no_times() -> None:
    assert next_times({"tarry-every": b"a fortnight"}, ID.encode(), NOW_MS, 1, 2) == ()
    with pytest.raises(HeaderError, match="every: "):
        next(times_after({"tarry-every": b"a fortnight"}, ID.encode(), NOW_MS, 1))


# -- files -----------------------------------------------------------------------------------------------------------


def read(tmp_path: Path, *lines: object) -> list[DelayedMessage | RepeatedMessage]:
    path = tmp_path / "messages.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return list(MessageFile(path, lambda _read_bytes: None, ManualClock()))


def test_a_line_may_be_a_schedule(tmp_path: Path) -> None:
    named = {"target": "a", "key": "k", "name": "n"}
    found = read(
        tmp_path,
        named | {"value": "v", "every": "1h", "at": "2030-01-01T00:00:00Z", "window": "1m", "if": "absent"},
        named | {"cron": "0 9 * * *", "zone": "Asia/Tokyo", "expires_at": "2040-01-01T00:00:00Z", "id": ID},
    )
    assert found == [
        RepeatedMessage(
            *("a", "v", "k", "n"),
            every=timedelta(hours=1),
            first=datetime(2030, 1, 1, tzinfo=UTC),
            window=timedelta(minutes=1),
            only_if="absent",
        ),
        RepeatedMessage(
            *("a", "", "k", "n"),
            cron="0 9 * * *",
            zone="Asia/Tokyo",
            expires_at=datetime(2040, 1, 1, tzinfo=UTC),
            id=ID,
        ),
    ]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"every": "1h"}, "every and cron need key and name"),
        ({"every": "1h", "delay": "5s", "key": "k", "name": "n"}, "delay: excludes every and cron"),
        ({"every": "1", "key": "k", "name": "n"}, "every: a duration needs a unit"),
        ({"every": 5, "key": "k", "name": "n"}, "every: should be a string"),
        ({"cron": [], "key": "k", "name": "n"}, "cron: should be a string"),
        ({"delay": "5s", "zone": "UTC"}, "zone: needs cron"),
        ({}, "needs either delay or at; or every or cron"),
    ],
)
def test_a_line_that_is_no_schedule_is_named_by_its_number(
    tmp_path: Path, fields: dict[str, object], says: str
) -> None:
    with pytest.raises(UsageError, match=r"messages\.jsonl:1: ") as refusal:
        read(tmp_path, {"target": "a", **fields})
    assert says in str(refusal.value)


def test_a_line_with_a_wrong_rule_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    line = {"target": "a", "key": "k", "name": "n", "cron": "0 25 * * *"}
    path.write_text("\n" + json.dumps(line), encoding="utf-8")
    _, _, wrong = run("--file", str(path), "--bootstrap-servers", "127.0.0.1:1")
    assert isinstance(wrong, UsageError)
    assert "messages.jsonl:2: cron: bad hour" in str(wrong)
