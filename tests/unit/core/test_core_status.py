"""The status records of partitions."""

import json
from dataclasses import replace

import pytest

from tarry.core.request.figures import (
    DeliveredFigures,
    Figures,
    ParkedFigures,
    PausedFigures,
    ProcessFigures,
    quantile,
)
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


FIGURES = Figures(
    1_700_000_005_000,
    held=7,
    waiting=9,
    bytes=1_024,
    parked=(ParkedFigures("orders", 2, 1_700_000_001_000),),
    paused=(PausedFigures("orders", 1_700_000_001_000, None), PausedFigures("bills", 1, 2)),
    obeyed=12,
    process=ProcessFigures(
        resident_bytes=1 << 27,
        held_bytes=2_048,
        delivered=100,
        period_ms=5_003,
        targets=(DeliveredFigures("orders", 40, 1, 9, 12),),
        clock_skew_ms=-3,
        takeovers=4,
        quarantined=("in/3",),
        standby=("in/1", "in/2"),
    ),
)


@pytest.mark.parametrize(
    "figures",
    [FIGURES, Figures(5), replace(FIGURES, obeyed=None, process=ProcessFigures())],
    ids=["all", "none", "some"],
)
def test_figures_are_read_back(figures: Figures) -> None:
    status = replace(OWN, figures=figures)
    assert parsed_status(status.value()) == status


def test_a_reader_that_knows_no_figures_and_one_that_gets_none_agree_on_the_rest() -> None:
    fields = json.loads(replace(OWN, figures=FIGURES).value())
    del fields["figures"]
    assert fields == json.loads(OWN.value())


@pytest.mark.parametrize("damaged", [None, 3, [], {}, {"at_ms": "x"}, {**FIGURES.fields(), "process": 3}])
def test_damaged_figures_are_none_and_harm_no_status(damaged: object) -> None:
    value = json.dumps({**json.loads(OWN.value()), "figures": damaged}).encode()
    assert parsed_status(value) == OWN


def test_fields_of_figures_that_a_later_service_adds_are_passed_over() -> None:
    fields = {**FIGURES.fields(), "mood": 1, "process": {**FIGURES.fields()["process"], "mood": 2}}
    value = json.dumps({**json.loads(OWN.value()), "figures": fields}).encode()
    assert parsed_status(value).figures == FIGURES


@pytest.mark.parametrize(
    ("ordered", "share", "value"),
    [([5], 0.5, 5), ([1, 2], 0.5, 1), ([1, 2, 3], 0.5, 2), (list(range(1, 101)), 0.99, 99), ([1, 2], 0.99, 2)],
)
def test_a_quantile_is_a_value_that_a_share_does_not_exceed(ordered: list[int], share: float, value: int) -> None:
    assert quantile(ordered, share) == value


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
