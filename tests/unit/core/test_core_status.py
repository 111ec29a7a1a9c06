"""The status records of partitions."""

import json
from dataclasses import replace

import pytest

from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.status import Status, parsed_status

OWN = Status(3, IntakePolicy("in", ("orders.*",), 60_000, intakes=frozenset({"in"})), "tarry.one", 1_700_000_000_000)
FIXED = IntakePolicy("in", max_delay_ms=5_000, fixed_delay_ms=5_000, fixed_target="out", intakes=frozenset({"in"}))


def test_the_format_is_as_documented() -> None:
    assert OWN.key() == b"3"
    assert json.loads(OWN.value()) == {
        "v": 1,
        "intake": "in",
        "partition": 3,
        "owner": "tarry.one",
        "at_ms": 1_700_000_000_000,
        "targets": ["orders.*"],
        "target": None,
        "delay_ms": None,
        "max_delay_ms": 60_000,
        "tick_ms": 1,
        "dialect": None,
        "same_key": None,
        "intakes": ["in"],
    }


@pytest.mark.parametrize(
    "policy",
    [
        OWN.policy,
        replace(OWN.policy, targets=("a", "b"), dialect="karafka", tick_ms=10),
        replace(OWN.policy, dialect="etf1", same_key="replace"),
    ],
    ids=str,
)
def test_a_written_status_is_parsed_unchanged(policy: IntakePolicy) -> None:
    status = replace(OWN, policy=policy)
    assert parsed_status(status.value()) == status


def test_a_fixed_delay_is_read_back_without_targets() -> None:
    assert parsed_status(replace(OWN, policy=FIXED).value()).policy == replace(FIXED, targets=())


def test_fields_that_a_later_service_adds_are_passed_over() -> None:
    value = json.dumps({**json.loads(OWN.value()), "mood": "good"}).encode()
    assert parsed_status(value) == OWN


def test_the_status_of_a_service_before_names_by_key_is_read() -> None:
    fields = json.loads(OWN.value())
    del fields["same_key"]
    assert parsed_status(json.dumps(fields).encode()) == OWN


@pytest.mark.parametrize(
    "value",
    [b"", b"\xff", b"[]", b"7", b"{}", b'{"v": 2}', b"[" * 100_000]
    + [
        json.dumps({**json.loads(OWN.value()), **changed}).encode()
        for changed in ({"at_ms": 10**18}, {"at_ms": "then"}, {"targets": 7}, {"tick_ms": 0}, {"intakes": None})
    ],
    ids=lambda value: str(value[:20]),
)
def test_a_malformed_status_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"status|version|parse|Expecting|decode|outside|int|tick|digits"):
        parsed_status(value)
