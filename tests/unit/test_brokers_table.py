"""The table of `make brokers`: what it takes from pytest's report, and what it asks of each version."""

from pathlib import Path

import pytest

from tests.brokers.__main__ import Counts, command, counts_of, protocols

SUITE = """
import pytest

def test_passes(): pass
def test_fails(): assert False
def test_skips(): pytest.skip("not there yet")

@pytest.fixture
def broken(): raise RuntimeError
def test_errs(broken): pass
"""


def test_it_counts_the_tests_of_a_tier(pytester: pytest.Pytester) -> None:
    for tier in ("contracts", "e2e"):
        folder = pytester.mkpydir("tests") if tier == "contracts" else pytester.path / "tests"
        (folder / tier).mkdir()
        (folder / tier / "test_it.py").write_text(SUITE, encoding="utf-8")
    report = pytester.path / "report.xml"
    pytester.runpytest_subprocess("-p", "no:tarry", "--import-mode=importlib", f"--junitxml={report}")
    failed = ("tests.contracts.test_it::test_fails", "tests.contracts.test_it::test_errs")
    counts = counts_of(report, "contracts")
    assert (counts.passed, counts.skipped, sorted(counts.failed)) == (1, 1, sorted(failed))
    assert counts_of(report, "integration") == Counts(0, 0, ())


@pytest.mark.parametrize(
    ("counts", "cell"),
    [
        (Counts(7, 0, ()), "7 passed"),
        (Counts(334, 30, ()), "334 passed, 30 not there yet"),
        (Counts(1, 0, ("a", "b")), "1 passed, 2 **failed**"),
    ],
)
def test_a_cell_names_what_is_not_good(counts: Counts, cell: str) -> None:
    assert str(counts) == cell


def test_only_a_kafka_that_has_the_protocol_is_tried_with_it() -> None:
    assert protocols("3.9.2") == ["classic"]
    assert protocols("4.0.0") == protocols("4.10.1") == ["classic", "consumer"]
    asked = command("3.9.2", Path("report.xml"))
    assert asked[asked.index("--kafka-version") + 1] == "3.9.2"
    assert not any(each.endswith("[consumer]") for each in asked)
    assert any(each.endswith("[consumer]") for each in command("4.1.2", Path("report.xml")))
