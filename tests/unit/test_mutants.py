"""The mutations of `make mutants`, and that it leaves out no module."""

import ast
from itertools import chain
from pathlib import Path

import pytest

from tests.mutants.__main__ import some_of
from tests.mutants.mutations import mutants_of
from tests.mutants.nearest import COVERED, SOURCE, chosen, modules, nearest, stages

FUNCTION = """
from x import y

LIMIT = 3  # a comment


class Some:
    __slots__ = ("a",)

    def __init__(self, a: int = 0) -> None:
        self.a = a

    @property
    def is_so(self) -> bool:
        \"\"\"A text.\"\"\"
        if not self.a < y(1) and (
            self.a is not None  # a < b
            or self.b
        ):
            raise ValueError(f"{self.a + 1}")
        self.a -= 1
        y(self.a)
        return min(self.a, 2) in [one for one in y() if one]
"""


def changes(kind: str, source: str = FUNCTION) -> list[tuple[str, str]]:
    return [(one.was, one.becomes) for one in mutants_of(source.encode()) if one.kind == kind]


def test_each_kind_of_mutant_is_made_where_it_can_be() -> None:
    assert ("return min(self.a, 2) in [one for one in y() if one]", "return None") in changes("returns None")
    assert ("self.a is not None  # a < b", "self.a is None  # a < b") in changes("comparison")
    assert ("if not self.a < y(1) and (", "if not self.a <= y(1) and (") in changes("comparison")
    assert ("if not self.a < y(1) and (", "if not self.a < y(1) or (") in changes("and/or")
    assert ("or self.b", "and self.b") in changes("and/or")
    assert ("or self.b", "or False") in changes("operand")
    assert ("if not self.a < y(1) and (", "if  self.a < y(1) and (") in changes("not")
    assert ("LIMIT = 3  # a comment", "LIMIT = 4  # a comment") in changes("constant")
    assert ("self.a -= 1", "self.a += 1") in changes("operator")
    assert {was for was, _ in changes("dropped")} == {'raise ValueError(f"{self.a + 1}")', "self.a -= 1", "y(self.a)"}
    assert {becomes.partition(" in ")[0] for _, becomes in changes("function")} == {"return max(self.a, 2)"}
    conditions = [becomes for _, becomes in changes("condition") if becomes.startswith("return")]
    assert [text[-len("if False]") :].strip() for text in conditions] == ["if False]", "if True]"]


def test_texts_annotations_and_what_only_a_type_checker_runs_are_left_alone() -> None:
    assert not mutants_of(b'"""Text, and 1 < 2."""\nfrom a import b\n\nif TYPE_CHECKING:\n    c = 1\nd: list[1]\n')


def test_every_mutant_of_every_module_is_another_module_that_compiles() -> None:
    for module in modules():
        source = (SOURCE / module).read_bytes()
        tree = ast.dump(ast.parse(source))
        mutants = mutants_of(source)
        assert len({(one.start, one.end, one.text) for one in mutants}) == len(mutants)
        for mutant in mutants[:: len(mutants) // 3 + 1]:
            assert ast.dump(ast.parse(mutant.of(source))) != tree, (module, mutant)


def test_every_module_that_is_to_be_mutated_has_tests_that_are_there() -> None:
    for module in modules():
        tests = nearest(module)
        assert tests
        assert sorted(chain.from_iterable(stages(module, tests))) == sorted(tests)
    for row in COVERED:
        assert chosen(row.replace("*.py", ".py"), modules()), row


def test_a_module_without_a_row_or_of_another_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no row names"):
        nearest("cli/main.py")
    with pytest.raises(LookupError, match=r"there is no tests/unit/core/test_core_delivery.py"):
        nearest("core/delivery.py", tmp_path / "tests")
    with pytest.raises(LookupError, match="none of the modules"):
        chosen("core/none.py", modules())
    assert chosen("service/tarry/core/wire.py", modules()) == chosen("core/wire.py", modules()) == ["core/wire.py"]


def test_a_sample_is_the_same_each_time_in_order_and_another_one_for_another_module() -> None:
    mutants = mutants_of(FUNCTION.encode())
    sample = some_of(mutants, 5, "core/batch.py")
    assert sample == some_of(mutants, 5, "core/batch.py")
    assert len(sample) == 5
    assert [mutants.index(one) for one in sample] == sorted(mutants.index(one) for one in sample)
    assert sample != some_of(mutants, 5, "core/message.py")
    assert some_of(mutants, len(mutants), "core/batch.py") == some_of(mutants, None, "core/batch.py") == mutants
