"""Lines between a process and its supervisor."""

import os
import socket
from collections.abc import Iterator

import pytest

from tarry.service.metrics import Snapshot
from tarry.service.supervisor.channel import Beat, Channel, StartRefused, decode_report, put_orders

BEAT = Beat(
    ready=False,
    why="2 partitions are being replayed",
    snapshot=Snapshot({("received", "in"): 3.0}, {("late", "in"): (1.0, 0.0, 0.5)}, {("held",): 7.0}),
)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, Channel]]:
    # In a test the process is its own supervisor's child by name alone: it must not be killed with it.
    monkeypatch.setattr("tarry.service.supervisor.channel._die_with", lambda _supervisor: None)
    ours, theirs = socket.socketpair()
    channel = Channel(os.dup(theirs.fileno()), 0)
    theirs.close()
    yield ours, channel
    ours.close()
    channel.close()


def lines(ours: socket.socket) -> list[bytes]:
    ours.setblocking(False)
    received = b""
    try:
        while chunk := ours.recv(1 << 20):
            received += chunk
    except BlockingIOError:
        pass
    return received.split(b"\n")


def test_a_beat_arrives_as_it_was_said(pair: tuple[socket.socket, Channel]) -> None:
    ours, channel = pair
    channel.beat(BEAT)
    [line, rest] = lines(ours)
    assert (decode_report(line), rest) == (BEAT, b"")


def test_last_words_arrive_behind_what_was_kept(pair: tuple[socket.socket, Channel]) -> None:
    ours, channel = pair
    channel.beat(BEAT)
    channel.refuse(StartRefused("in has 4 partitions, not 5", configuration=True))
    [first, second, _] = lines(ours)
    assert decode_report(first) == BEAT
    assert decode_report(second) == StartRefused("in has 4 partitions, not 5", configuration=True)


def test_a_supervisor_that_does_not_read_blocks_no_worker_and_gets_whole_lines_later(
    pair: tuple[socket.socket, Channel],
) -> None:
    ours, channel = pair
    long = Beat(ready=True, why="x" * 100_000, snapshot=Snapshot())
    for _ in range(50):
        channel.beat(long)
    received = lines(ours)
    for _ in range(5):
        channel.beat(long)
        more = lines(ours)
        received = [*received[:-1], received[-1] + more[0], *more[1:]]
    assert received[-1] == b""
    assert 2 <= len(received[:-1]) < 50, "those that found no room were left out"
    assert {decode_report(line) for line in received[:-1] if decode_report(line) != long} == set()


def test_orders_come_before_anything_else(pair: tuple[socket.socket, Channel]) -> None:
    ours, channel = pair
    put_orders(ours, b"\x00\n all of it")
    assert channel.orders() == b"\x00\n all of it"


def test_a_process_without_a_supervisor_knows_it(pair: tuple[socket.socket, Channel]) -> None:
    ours, channel = pair
    assert not channel.orphaned
    ours.close()
    channel.beat(BEAT)
    assert channel.orphaned


def test_orders_that_never_come_are_an_end(pair: tuple[socket.socket, Channel]) -> None:
    ours, channel = pair
    ours.close()
    with pytest.raises(EOFError):
        channel.orders()


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"7", b"{}", b'{"ready":true,"why":"","counters":[[]]}', b"\xff"])
def test_a_malformed_line_of_the_channel_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_report(line)
