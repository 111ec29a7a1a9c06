"""One operation: settled once, and asked by one thread at a time with no question lost."""

import threading
from collections.abc import Callable

import pytest

from tarry.timer import SystemTimer
from tests.unit.timer.operations import Request
from tests.unit.timer.threads import PATIENCE_S, in_thread, overtaken_at


class Scripted(Request):
    """Does one step of a script each time it is asked, between its look at `answered` and what follows from it."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.steps = list(steps)
        self.asked = 0

    def try_complete(self) -> bool:
        self.asked += 1
        answered = self.answered
        if self.steps:
            self.steps.pop(0)()
        return answered and self.force_complete()


class Alone(Request):
    """Notices when two threads are at its question."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = 0
        self.crowded = False

    def try_complete(self) -> bool:
        self.inside += 1
        self.crowded |= self.inside > 1
        completed = super().try_complete()
        self.inside -= 1
        return completed


class Held:
    """A step that lasts until it is released."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.release = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.release.wait(PATIENCE_S)


def test_it_is_completed_once_however_often_it_is_forced() -> None:
    operation = Request()
    assert (operation.is_completed, operation.is_settled) == (False, False)
    assert operation.force_complete()
    assert not operation.force_complete()
    assert not operation.withdraw()
    operation.answered = True
    assert not operation.maybe_try_complete()
    operation.run()
    assert (operation.is_completed, operation.is_settled) == (True, True)
    assert operation.calls == ["completed"]


def test_it_is_completed_when_asked_once_it_can_be() -> None:
    operation = Request()
    assert not operation.maybe_try_complete()
    operation.answered = True
    assert operation.maybe_try_complete()
    assert not operation.maybe_try_complete()
    assert operation.calls == ["completed"]


def test_when_its_delay_is_over_it_is_completed_and_then_expires() -> None:
    operation = Request()
    operation.run()
    operation.run()
    assert operation.calls == ["completed", "expired"]


def test_nothing_becomes_of_one_that_was_withdrawn() -> None:
    operation = Request()
    operation.answered = True
    assert operation.withdraw()
    assert not operation.withdraw()
    assert not operation.maybe_try_complete()
    assert not operation.force_complete()
    operation.run()
    assert (operation.is_completed, operation.is_settled) == (False, True)
    assert operation.calls == []


@pytest.mark.parametrize("settle", [Request.force_complete, Request.withdraw])
def test_a_settled_operation_leaves_its_timer(timer: SystemTimer, settle: Callable[[Request], bool]) -> None:
    operation = Request()
    timer.add(operation)
    assert settle(operation)
    assert timer.size() == 0


def test_the_timer_is_left_before_the_completion_begins(timer: SystemTimer) -> None:
    sizes: list[tuple[int, bool]] = []

    class Looks(Request):
        def on_complete(self) -> None:
            sizes.append((timer.size(), self.is_completed))

    operation = Looks()
    timer.add(operation)
    operation.force_complete()
    assert sizes == [(0, True)]


def test_the_worked_trace_b_leaves_word_while_a_is_asking_and_a_completes_it() -> None:
    # The trace of the seeds for `maybeTryComplete`: A has the lock and has seen that it is not complete; B makes it
    # complete and gets no lock. Were that all, neither would complete it.
    a_has_looked = Held()
    operation = Scripted(a_has_looked)
    completed_by_a: list[bool] = []
    a = in_thread(lambda: completed_by_a.append(operation.maybe_try_complete()))
    assert a_has_looked.reached.wait(PATIENCE_S)

    operation.answered = True
    assert not operation.maybe_try_complete(), "B comes back while A is still asking"
    assert (operation.calls, operation.asked) == ([], 1)

    a_has_looked.release.set()
    a.join(PATIENCE_S)
    assert (completed_by_a, operation.calls, operation.asked) == ([True], ["completed"], 2)


def test_word_that_is_left_while_an_earlier_word_is_followed_is_not_lost_either() -> None:
    # What the review of KAFKA-6653 feared of a single flag: it is taken back when the second question begins, so
    # what is said after that must raise it again.
    first, second = Held(), Held()
    operation = Scripted(first, second)
    a = in_thread(operation.maybe_try_complete)
    assert first.reached.wait(PATIENCE_S)
    assert not operation.maybe_try_complete()
    first.release.set()
    assert second.reached.wait(PATIENCE_S)
    operation.answered = True
    assert not operation.maybe_try_complete()
    second.release.set()
    a.join(PATIENCE_S)
    assert (operation.calls, operation.asked) == (["completed"], 3)


def test_without_word_it_is_asked_once() -> None:
    operation = Scripted()
    operation.maybe_try_complete()
    operation.maybe_try_complete()
    assert operation.asked == 2


def test_a_question_from_within_a_question_is_asked_after_it() -> None:
    operation = Scripted(lambda: answered.append(operation.maybe_try_complete()))
    answered: list[bool] = []
    assert not operation.maybe_try_complete()
    assert (answered, operation.asked) == ([False], 2)


def test_an_operation_whose_check_fails_can_be_checked_again() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    operation = Scripted(fail)
    with pytest.raises(ZeroDivisionError):
        operation.maybe_try_complete()
    operation.answered = True
    assert operation.maybe_try_complete()


def test_word_left_with_a_thread_that_fails_is_followed_and_the_error_is_raised() -> None:
    held = Held()

    def fail() -> None:
        held()
        raise ZeroDivisionError

    operation = Scripted(fail)
    raised: list[type[BaseException]] = []

    def ask() -> None:
        try:
            operation.maybe_try_complete()
        except ZeroDivisionError as error:
            raised.append(type(error))

    a = in_thread(ask)
    assert held.reached.wait(PATIENCE_S)
    operation.answered = True
    assert not operation.maybe_try_complete()
    held.release.set()
    a.join(PATIENCE_S)
    assert (raised, operation.calls) == ([ZeroDivisionError], ["completed"])


def test_it_expires_without_waiting_for_a_thread_that_is_asking() -> None:
    held = Held()
    operation = Scripted(held)
    completed_by_a: list[bool] = []
    a = in_thread(lambda: completed_by_a.append(operation.maybe_try_complete()))
    assert held.reached.wait(PATIENCE_S)
    operation.run()
    assert operation.calls == ["completed", "expired"]
    held.release.set()
    a.join(PATIENCE_S)
    assert (completed_by_a, operation.calls) == ([False], ["completed", "expired"])


@pytest.mark.usefixtures("hesitant_threads")
def test_of_many_threads_that_complete_expire_and_withdraw_exactly_one_does() -> None:
    def complete(operation: Request) -> bool:
        return operation.force_complete()

    def ask(operation: Request) -> bool:
        return operation.maybe_try_complete()

    def withdraw(operation: Request) -> bool:
        return operation.withdraw()

    def expire(operation: Request) -> bool:
        operation.run()
        return False  # it does not say whether it was the one; the calls do

    operations = [Request() for _ in range(400)]
    for operation in operations:
        operation.answered = True
    won: dict[int, list[str]] = {id(operation): [] for operation in operations}
    start = threading.Barrier(8)

    def work(settle: Callable[[Request], bool]) -> None:
        start.wait(PATIENCE_S)
        for operation in operations:
            if settle(operation):
                won[id(operation)].append(settle.__name__)

    threads = [in_thread(lambda settle=settle: work(settle)) for settle in (complete, ask, withdraw, expire) * 2]  # type: ignore[misc]  # mypy has no type for a lambda's default
    for thread in threads:
        thread.join(PATIENCE_S)
    for operation in operations:
        match won[id(operation)]:
            case ["complete" | "ask"]:
                assert operation.calls == ["completed"]
            case ["withdraw"]:
                assert operation.calls == []
            case []:
                assert operation.calls == ["completed", "expired"]
            case several:
                pytest.fail(f"settled by {several}")


@pytest.mark.usefixtures("hesitant_threads")
def test_the_answer_of_the_last_of_many_checking_threads_is_found() -> None:
    # Completable with the last of so many votes. Each thread votes and then asks: a lost word would leave the
    # operation waiting.
    voters = 4

    class Vote(Alone):
        def __init__(self) -> None:
            super().__init__()
            self.votes: list[int] = []

    operations = [Vote() for _ in range(800)]
    start = threading.Barrier(voters)

    def vote(voter: int) -> None:
        for operation in operations:
            start.wait(PATIENCE_S)
            operation.votes.append(voter)
            if len(operation.votes) == voters:
                operation.answered = True
            operation.maybe_try_complete()

    threads = [in_thread(lambda voter=voter: vote(voter)) for voter in range(voters)]  # type: ignore[misc]  # mypy has no type for a lambda's default
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [operation.calls for operation in operations] == [["completed"]] * len(operations)
    assert not any(operation.crowded for operation in operations)


def test_a_question_that_overtakes_another_at_any_line_is_answered_and_by_one_thread_at_a_time() -> None:
    lines, more = 0, True
    while more:
        operation = Alone()

        def answer_and_ask(operation: Alone = operation) -> None:
            operation.answered = True
            operation.maybe_try_complete()

        lines += 1
        more = overtaken_at(lines, operation.maybe_try_complete, answer_and_ask)
        assert (operation.calls, operation.crowded) == (["completed"], False), f"at line {lines}"
    assert lines > 10


@pytest.mark.parametrize("overtake", [Request.force_complete, Request.withdraw, Request.run])
def test_a_thread_that_overtakes_a_completion_at_any_line_settles_it_or_does_not(
    overtake: Callable[[Request], bool | None],
) -> None:
    lines, more = 0, True
    while more:
        operation = Request()
        first: list[bool] = []
        second: list[bool | None] = []

        def complete(operation: Request = operation, first: list[bool] = first) -> None:
            first.append(operation.force_complete())

        def settle(operation: Request = operation, second: list[bool | None] = second) -> None:
            second.append(overtake(operation))

        lines += 1
        more = overtaken_at(lines, complete, settle)
        if first == [True]:
            assert (operation.calls, bool(second[0])) == (["completed"], False)
        else:
            assert (operation.calls, second) in (
                (["completed"], [True]),  # force_complete
                ([], [True]),  # withdraw
                (["completed", "expired"], [None]),  # run, which does not say
            )
    assert lines > 5
