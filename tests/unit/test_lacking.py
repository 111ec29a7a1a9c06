"""A test that lacks what it needs fails: a run in which half of the tests were skipped looks like one that passed."""

import pytest

from tests.support import postgres
from tests.support.brokers import no_broker
from tests.support.lacking import ALLOW_SKIP


@pytest.mark.parametrize("allowed", [None, "", "0"])
def test_without_a_broker_a_test_fails_and_says_how_to_do_without(
    monkeypatch: pytest.MonkeyPatch, allowed: str | None
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv(ALLOW_SKIP, raising=False)
    if allowed is not None:
        monkeypatch.setenv(ALLOW_SKIP, allowed)
    with pytest.raises(pytest.fail.Exception, match=r"no Kafka broker: one; two \(ALLOW_SKIP=1 skips the tests"):
        no_broker(["one", "two"])


def test_without_postgresql_a_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOW_SKIP, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(postgres, "_DEBIAN", "/nowhere")
    with pytest.raises(pytest.fail.Exception, match="no PostgreSQL"):
        postgres.programs()


def test_where_it_is_allowed_a_test_without_a_broker_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOW_SKIP, "1")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="no Kafka broker"):
        no_broker(["none"])
