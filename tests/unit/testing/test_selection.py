"""The choice of tests for a run: see `tests.support.selection`."""

import re
from pathlib import Path

import pytest

from tests.support.selection import order

CHOICES = """
import pytest

@pytest.mark.some_of("letter", 2)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("letter", "more"), [("a", 0), ("b", 0), ("c", 0), pytest.param("d", 0, marks=pytest.mark.exhaustive)]
)
def test_of_letters(letter, number, more):
    print(f"chosen {letter}{number}")

@pytest.fixture(params=["x", "y"])
def side(request):
    return request.param

@pytest.mark.some_of("side")
def test_of_sides(side, seed):
    print(f"chosen {side}")
    print(f"seed {seed}")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    pytester.makepyfile(CHOICES)
    pytester.makeini("[pytest]\nmarkers =\n  some_of\n  exhaustive\n")
    return pytester


def chosen(run: pytest.Pytester, *options: str) -> list[str]:
    plugins = ("-p", "no:tarry", "-p", "tests.support.options", "-p", "tests.support.selection")
    done = run.runpytest_inprocess(*plugins, "-rP", *options)
    assert done.ret == 0
    return re.findall(r"^(?:chosen|seed) (\w+)", done.stdout.str(), re.MULTILINE)


def test_the_suite_has_the_given_number_of_values_each_with_all_values_of_other_arguments(run: pytest.Pytester) -> None:
    taken = set()
    for seed in range(6):
        *letters, side, said = chosen(run, "-m", "not exhaustive", "--seed", str(seed))
        assert said == str(seed)
        assert side in ("x", "y")
        values = {letter[0] for letter in letters}
        assert len(values) == 2
        assert sorted(letters) == sorted(f"{value}{number}" for value in values for number in (1, 2))
        taken |= {*values, side}
    assert taken == {"a", "b", "c", "x", "y"}


def test_without_the_marker_all_are_run(run: pytest.Pytester) -> None:
    assert {word for word in chosen(run, "--seed", "1") if word != "1"} == {
        *(f"{letter}{number}" for letter in "abcd" for number in (1, 2)),
        "x",
        "y",
    }


def test_all_processes_of_a_run_have_one_seed(run: pytest.Pytester) -> None:
    words = chosen(run, "-n", "2", "-k", "sides")
    assert sorted(words[::2]) == ["x", "y"]
    assert words[1] == words[3]


def test_files_of_tests_that_wait_and_of_those_that_compute_are_mixed_and_pipelines_come_first() -> None:
    waiting = {"p": "pipelines", "e1": "e2e", "e2": "e2e", "i": "integration"}
    computing = {"s1": "simulation", "s2": "simulation", **{f"u{number}": "unit" for number in range(20)}}
    places = order({**computing, **waiting, "d": "deploy"})
    files = sorted(places, key=lambda file: places[file])
    assert files[-1] == "d"
    assert [file for file in files if file in waiting] == ["p", "e1", "e2", "i"]
    assert files.index("p") < 2
    assert files.index("s1") < files.index("e1") < files.index("s2") < files.index("e2") < files.index("u0")
    assert files.index("i") < files.index("u19")
