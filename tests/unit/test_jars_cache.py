"""The cache of jars, filled by a fetch of a few bytes instead of 43 MB."""

import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest

from tarry.errors import UsageError
from tarry.jars.cache import SUMS, cache_directory, cached_jars
from tests.support.ignoring import ignore

WHAT = "Kafka (43 MB, once)"
CONTENT = {"kafka.jar": b"broker", "log4j.jar": b"logger"}


class CountedFetch:
    """Writes `CONTENT`, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, into: Path) -> None:
        self.calls += 1
        for name, content in CONTENT.items():
            (into / name).write_bytes(content)


def never(into: Path) -> None:
    raise AssertionError(f"fetched into {into} again")


def contents(jars: tuple[Path, ...]) -> dict[str, bytes]:
    return {jar.name: jar.read_bytes() for jar in jars}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "tarry" / "kafka"


@pytest.fixture
def filled(cache: Path) -> Path:
    cached_jars(cache, CountedFetch(), ignore, WHAT)
    return cache


def test_jars_are_fetched_once_and_the_user_is_told(cache: Path) -> None:
    told: list[str] = []
    fetch = CountedFetch()
    first = cached_jars(cache, fetch, told.append, WHAT)
    second = cached_jars(cache, fetch, told.append, WHAT)
    assert contents(first) == contents(second) == CONTENT
    assert fetch.calls == 1
    assert len(told) == 1
    assert "fetching Kafka" in told[0]


def test_only_the_cache_and_its_lock_are_left_behind(filled: Path) -> None:
    assert sorted(path.name for path in filled.parent.iterdir()) == ["kafka", "kafka.lock"]


@pytest.mark.parametrize("damage", [b"brokex", b"", b"broker and more"])
def test_a_damaged_jar_is_repaired(filled: Path, damage: bytes) -> None:
    (filled / "kafka.jar").write_bytes(damage)
    told: list[str] = []
    assert contents(cached_jars(filled, CountedFetch(), told.append, WHAT)) == CONTENT
    assert "repairing Kafka" in told[0]
    assert contents(cached_jars(filled, never, ignore, WHAT)) == CONTENT


@pytest.mark.parametrize("missing", ["kafka.jar", SUMS])
def test_a_missing_file_is_repaired(filled: Path, missing: str) -> None:
    (filled / missing).unlink()
    assert contents(cached_jars(filled, CountedFetch(), ignore, WHAT)) == CONTENT


@pytest.mark.parametrize("sums", [b"", b"\xff\xfe", b"no checksum here\n"])
def test_checksums_that_say_nothing_are_repaired(filled: Path, sums: bytes) -> None:
    (filled / SUMS).write_bytes(sums)
    assert contents(cached_jars(filled, CountedFetch(), ignore, WHAT)) == CONTENT


def test_a_jar_that_no_checksum_names_is_left_out(filled: Path) -> None:
    (filled / "stranger.jar").write_bytes(b"?")
    assert contents(cached_jars(filled, never, ignore, WHAT)) == CONTENT


def test_a_failed_fetch_leaves_nothing_and_the_next_one_succeeds(cache: Path) -> None:
    def half(into: Path) -> None:
        (into / "kafka.jar").write_bytes(b"bro")
        raise UsageError("no network")

    with pytest.raises(UsageError, match="no network"):
        cached_jars(cache, half, ignore, WHAT)
    assert [path.name for path in cache.parent.iterdir()] == ["kafka.lock"]
    assert contents(cached_jars(cache, CountedFetch(), ignore, WHAT)) == CONTENT


def test_a_fetch_that_brings_nothing_is_an_error(cache: Path) -> None:
    with pytest.raises(UsageError, match="no jars"):
        cached_jars(cache, ignore_directory, ignore, WHAT)


def ignore_directory(_into: Path) -> None:
    """Fetch nothing."""


def die_in_mid_fetch(cache: Path) -> None:
    def fetch(into: Path) -> None:
        (into / "kafka.jar").write_bytes(b"bro")
        os.kill(os.getpid(), signal.SIGKILL)

    cached_jars(cache, fetch, ignore, WHAT)


def test_files_that_a_killed_process_left_incomplete_are_removed(cache: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=die_in_mid_fetch, args=(cache,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(list(cache.parent.glob(".kafka.*"))) == 1
    assert contents(cached_jars(cache, CountedFetch(), ignore, WHAT)) == CONTENT
    assert list(cache.parent.glob(".kafka.*")) == []


def test_a_second_caller_waits_for_the_first_and_fetches_nothing(cache: Path) -> None:
    waiting, told = threading.Event(), []
    seen: list[dict[str, bytes]] = []

    def note(line: str) -> None:
        told.append(line)
        waiting.set()

    def second() -> None:
        seen.append(contents(cached_jars(cache, never, note, WHAT)))

    other = threading.Thread(target=second)
    fetch = CountedFetch()

    def fetch_while_the_other_waits(into: Path) -> None:
        other.start()
        assert waiting.wait(20)
        fetch(into)

    cached_jars(cache, fetch_while_the_other_waits, ignore, WHAT)
    other.join()
    assert seen == [CONTENT]
    assert told == ["waiting for another process that fetches Kafka (43 MB, once)"]


def test_a_cache_that_cannot_be_written_is_a_line_that_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(UsageError, match="set XDG_CACHE_HOME") as refused:
        cached_jars(tmp_path / "file" / "kafka", never, ignore, WHAT)
    assert "\n" not in str(refused.value)


def test_the_cache_is_where_the_xdg_specification_says() -> None:
    assert cache_directory("kafka-4.1.0", {"XDG_CACHE_HOME": "/var/cache/me"}) == Path(
        "/var/cache/me/tarry/kafka-4.1.0"
    )
    assert cache_directory("kafka-4.1.0", {}) == Path.home() / ".cache" / "tarry" / "kafka-4.1.0"
    assert cache_directory("kafka-4.1.0", {"XDG_CACHE_HOME": "relative"}) == cache_directory("kafka-4.1.0", {})
