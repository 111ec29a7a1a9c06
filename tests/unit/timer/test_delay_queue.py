from tarry.timer.delay_queue import DelayQueue
from tarry.timer.task_list import UNQUEUED, TimerTaskEntry, TimerTaskList


def bucket_at(expiration_ms: int, held: int = 1) -> TimerTaskList:
    bucket = TimerTaskList()
    bucket.set_expiration(expiration_ms)
    for sequence in range(held):
        bucket.append(TimerTaskEntry(expiration_ms, sequence))
    return bucket


def queue_of(*buckets: TimerTaskList) -> DelayQueue:
    queue = DelayQueue()
    for bucket in buckets:
        queue.offer(bucket)
    return queue


def test_buckets_come_by_expiration() -> None:
    late, early = bucket_at(840), bucket_at(200)
    queue = queue_of(late, early)
    assert list(queue) == [early, late]
    assert queue.peek() is early
    assert queue.poll(1_000) is early
    assert queue.poll(1_000) is late
    assert queue.poll(1_000) is None


def test_buckets_of_the_same_expiration_come_as_they_were_offered() -> None:
    buckets = [bucket_at(21), bucket_at(21), bucket_at(21)]
    queue = queue_of(*buckets)
    assert list(queue) == buckets
    assert [queue.poll(21), queue.poll(21), queue.poll(21)] == buckets


def test_a_bucket_is_taken_at_its_expiration_and_not_a_millisecond_before() -> None:
    bucket = bucket_at(200)
    queue = queue_of(bucket)
    assert queue.poll(199) is None
    assert queue.poll(200) is bucket


def test_a_look_at_the_head_takes_nothing() -> None:
    bucket = bucket_at(200)
    queue = queue_of(bucket)
    assert queue.peek() is queue.peek() is bucket


def test_an_empty_queue_has_no_head() -> None:
    queue = DelayQueue()
    assert queue.peek() is None
    assert queue.poll(1) is None
    assert list(queue) == []


def test_a_bucket_emptied_by_cancels_is_passed_over_and_can_be_queued_again() -> None:
    emptied, full = bucket_at(10, held=0), bucket_at(20)
    queue = queue_of(emptied, full)
    assert list(queue) == [full]
    assert queue.poll(15) is None
    assert emptied.expiration_ms == UNQUEUED
    assert queue.peek() is full

    assert emptied.set_expiration(10)
    emptied.append(TimerTaskEntry(10))
    queue.offer(emptied)
    assert list(queue) == [emptied, full]


def test_a_bucket_emptied_and_filled_again_while_queued_is_still_queued_once() -> None:
    bucket = bucket_at(10)
    queue = queue_of(bucket)
    (entry,) = bucket
    bucket.remove(entry)
    bucket.append(entry)
    assert not bucket.set_expiration(10)
    assert queue.poll(10) is bucket
    assert queue.poll(10) is None
