import threading

import pytest

from tarry.timer.read_write_lock import ReadWriteLock

PATIENCE_S = 10


def test_readers_share_it() -> None:
    lock = ReadWriteLock()
    both_inside = threading.Barrier(2)

    def read() -> None:
        with lock.reading():
            both_inside.wait(PATIENCE_S)

    reader = threading.Thread(target=read)
    reader.start()
    read()
    reader.join(PATIENCE_S)
    assert not both_inside.broken


def test_a_writer_waits_for_readers_and_goes_before_later_ones() -> None:
    lock = ReadWriteLock()
    order: list[str] = []
    waiting = threading.Event()

    def write() -> None:
        waiting.set()
        with lock.writing():
            order.append("writer")

    def read() -> None:
        with lock.reading():
            order.append("later reader")

    with lock.reading():
        writer = threading.Thread(target=write)
        writer.start()
        waiting.wait(PATIENCE_S)
        while not lock._writers_waiting:
            writer.join(0.001)
        reader = threading.Thread(target=read)
        reader.start()
        order.append("first reader")
    writer.join(PATIENCE_S)
    reader.join(PATIENCE_S)
    assert order == ["first reader", "writer", "later reader"]


def test_it_is_given_back_when_the_work_fails() -> None:
    lock = ReadWriteLock()
    for side in (lock.reading, lock.writing):
        with pytest.raises(ZeroDivisionError), side():
            _ = 1 // 0
    with lock.writing():
        pass
    with lock.reading():
        pass


def test_writers_and_readers_never_meet() -> None:
    lock = ReadWriteLock()
    pair = [0, 0]
    torn: list[tuple[int, int]] = []

    def write() -> None:
        for _ in range(500):
            with lock.writing():
                before = pair[0]
                pair[0] = before + 1
                pair[1] = before + 1

    def read() -> None:
        for _ in range(500):
            with lock.reading():
                seen = (pair[0], pair[1])
                if seen[0] != seen[1]:
                    torn.append(seen)

    threads = [threading.Thread(target=work) for work in (write, write, read, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert torn == []
    assert pair == [1_000, 1_000]
