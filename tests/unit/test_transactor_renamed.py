"""A transactor that is renewed beside the loop, and renamed by the loop: whichever comes first, at every line.

Where it is renamed, what its old id may have open is ended by a registration of that id, which fences every other one.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tarry.errors import BrokerError, FatalError, RetriableError
from tarry.kafka import transaction
from tarry.kafka.settings import Cluster
from tarry.kafka.transaction import Transactor
from tarry.service.worker.side_producer import SideProducer
from tarry.testing.manual_clock import ManualClock
from tests.unit.timer.threads import overtaken_at

FILES = ("kafka/transaction.py",)


class Registered:
    """A producer that was registered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_gone = False

    def purge(self, **_how: bool) -> None:
        self.is_gone = True

    def begin_transaction(self) -> None: ...

    def abort_transaction(self, _within_s: float) -> None: ...


class Brokers:
    """Registers ids, and fences who registers one that has been ended; takes the place of the clients too."""

    def __init__(self, *, is_away: bool = False) -> None:
        self.is_away = is_away
        self.tried: list[str] = []
        self.ended: list[str] = []
        self.producers: list[Registered] = []
        self.transactor = Transactor(Cluster("nowhere", {}, self), "id")  # type: ignore[arg-type]  # all that is needed

    def in_background(self, _end: Callable[[], None]) -> None:
        self.ended.append("id" if self.transactor.transactional_id == "id-2" else "another")

    def register(self, _cluster: Cluster, name: str, _properties: object) -> Registered:
        self.tried.append(name)
        if self.is_away:
            raise RetriableError("no coordinator answers")
        producer = Registered(name)
        self.producers.append(producer)
        if name in self.ended:
            producer.is_gone = True
            raise FatalError(f"{name} is fenced")
        return producer


class Attempt:
    """A call in a thread, and whatever came of it."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.error: BaseException | None = None

    def __call__(self) -> None:
        try:
            self.call()
        except BaseException as error:  # noqa: BLE001  # the loop would be told of it
            self.error = error


class Renewal:
    """A renewal, and what came of it."""

    def __init__(self, transactor: Transactor) -> None:
        self.transactor = transactor
        self.error: BrokerError | None = None

    def __call__(self) -> None:
        try:
            self.transactor.renew()
        except BrokerError as error:
            self.error = error


@pytest.fixture(params=[False, True], ids=["new", "registered before"])
def was_registered(request: pytest.FixtureRequest) -> Any:
    return request.param


def races(monkeypatch: pytest.MonkeyPatch, was_registered: bool, **how: bool) -> Any:
    """A renewal that was overtaken by a renaming, for each line of it."""
    line, more = 0, True
    while more:
        line += 1
        brokers = Brokers(**how)
        monkeypatch.setattr(transaction, "_registered", brokers.register)
        if was_registered:
            Renewal(brokers.transactor)()
        renewal = Renewal(brokers.transactor)
        more = overtaken_at(line, renewal, brokers.transactor.rename, FILES)
        assert brokers.transactor.transactional_id == "id-2"
        yield line, brokers, renewal
    assert line > 15


def test_a_renewal_that_is_renamed_is_to_be_tried_again_and_leaves_nothing_of_the_old_id(
    monkeypatch: pytest.MonkeyPatch, was_registered: bool
) -> None:
    outcomes = set()
    for line, brokers, renewal in races(monkeypatch, was_registered):
        transactor = brokers.transactor
        assert renewal.error is None or isinstance(renewal.error, RetriableError), f"at line {line}: {renewal.error}"
        live = [one.name for one in brokers.producers if not one.is_gone]
        assert live == (["id-2"] if transactor.started else []), f"at line {line}"
        assert not transactor.is_stuck, f"at line {line}"
        assert set(brokers.ended) == transactor.former, f"at line {line}"
        assert "id" in brokers.ended or "id" not in brokers.tried, f"at line {line}: nobody ends what it has open"
        outcomes.add((renewal.error is None, transactor.started))
    assert outcomes == {(True, True), (False, False), (True, False)}


def test_only_the_id_that_was_tried_is_stuck(monkeypatch: pytest.MonkeyPatch, was_registered: bool) -> None:
    for line, brokers, renewal in races(monkeypatch, was_registered, is_away=True):
        assert isinstance(renewal.error, RetriableError)
        assert brokers.transactor.is_stuck == (brokers.tried[-1] == "id-2"), f"at line {line}"


def test_a_producer_that_is_fenced_and_not_renamed_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    brokers.ended.append("id")
    monkeypatch.setattr(transaction, "_registered", brokers.register)
    with pytest.raises(FatalError):
        brokers.transactor.renew()
    assert not brokers.transactor.is_stuck


def test_an_abort_that_is_overtaken_by_a_renaming_is_only_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line, more = 0, True
    while more:
        line += 1
        brokers = Brokers()
        monkeypatch.setattr(transaction, "_registered", brokers.register)
        brokers.transactor.renew()
        side = SideProducer(brokers.transactor, brokers, ManualClock())  # type: ignore[arg-type]  # all that is needed
        side.begin()
        abort = Attempt(side._abort_and_renew)
        more = overtaken_at(line, abort, brokers.transactor.rename, (*FILES, "worker/side_producer.py"))
        assert abort.error is None or isinstance(abort.error, RetriableError), f"at line {line}: {abort.error!r}"
    assert line > 20
