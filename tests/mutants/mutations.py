"""The mutations of a module, one place at a time: each mutant is a bug that a developer might have written.

A mutant replaces one piece of the source and leaves all other text unchanged, so that a survivor can be printed as a
diff. Annotations, decorators, texts, and code for the type checker only are not mutated.
"""

import ast
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

_OTHER_COMPARISON: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_OTHER_OPERATOR: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.BitOr: (r"\|", "&"),
    ast.BitAnd: ("&", "|"),
}
_OTHER_FUNCTION: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_NOT_RUN: Final = ("__all__", "__slots__")

_Positioned = ast.expr | ast.stmt


@dataclass(frozen=True, slots=True)
class Mutant:
    """A piece of a module that is replaced.

    Attributes:
        kind: the kind of mutation, in a word or two.
        start: the begin of the piece, as a byte offset in the source.
        end: the end of the piece.
        text: the replacement.
        line: the number of the piece's first line.
        was: the lines that contain the piece, without their indentation.
        becomes: the same lines in the mutant.
    """

    kind: str
    start: int
    end: int
    text: str
    line: int
    was: str
    becomes: str

    def of(self, source: bytes) -> bytes:
        """Return the source of the module with the piece replaced."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(source: bytes) -> list[Mutant]:
    """Return all mutants of a module that compile, in the order of the source."""
    pieces = _Pieces(source)
    pieces.visit(ast.parse(source))
    return sorted(
        (pieces.mutant(*piece) for piece in set(pieces.found)), key=lambda one: (one.start, one.end, one.text)
    )


class _Pieces(ast.NodeVisitor):
    """Finds the pieces of a module that can be replaced."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._line_starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
        self._is_init = False
        self.found: list[tuple[str, int, int, str]] = []

    def mutant(self, kind: str, start: int, end: int, text: str) -> Mutant:
        line = bisect_right(self._line_starts, start)
        begin = self._line_starts[line - 1]
        if self._source[start:end] in (b"continue", b"break"):
            begin = self._line_starts[line - 2]  # otherwise two mutants could look the same
        after = self._source.find(b"\n", end)
        was = self._source[begin:after].decode()
        becomes = (self._source[begin:start] + text.encode() + self._source[end:after]).decode()
        return Mutant(kind, start, end, text, line, _flat(was), _flat(becomes))

    # -- where ------------------------------------------------------------------------------------------------------

    def _span(self, node: _Positioned) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._line_starts[node.lineno - 1] + node.col_offset,
            self._line_starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _replace(self, kind: str, node: _Positioned, text: str) -> None:
        self.found.append((kind, *self._span(node), text))

    def _replace_between(self, kind: str, left: ast.expr, right: ast.expr, pattern: str, text: str) -> None:
        """Replace an operator: the first thing between two operands that is neither space, bracket nor comment."""
        begin, end = self._span(left)[1], self._span(right)[0]
        match = re.search(rf"(?:[\s()\\]|#[^\n]*)*({pattern})", self._source[begin:end].decode())
        assert match is not None, (begin, pattern)
        start = begin + len(match[0][: match.start(1)].encode())
        self.found.append((kind, start, start + len(match[1].encode()), text))

    # -- not mutated ------ -----------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before, self._is_init = self._is_init, node.name == "__init__"
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._is_init = before

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._drop_assignment(node, [node.target])
            self.visit(node.value)

    def visit_TypeAlias(self, node: ast.AST) -> None:
        """Only a type checker runs it."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text."""

    # -- statements -------------------------------------------------------------------------------------------------

    def _drop(self, node: ast.stmt) -> None:
        self._replace("dropped", node, "pass")

    def _drop_assignment(self, node: ast.stmt, targets: Sequence[ast.expr]) -> None:
        # In __init__ the attribute would not exist at all.
        if not self._is_init and all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            self._drop(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._drop(node)
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(target, ast.Name) and target.id in _NOT_RUN for target in node.targets):
            self._drop_assignment(node, node.targets)
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._drop(node)
        if type(node.op) in _OTHER_OPERATOR:
            pattern, text = _OTHER_OPERATOR[type(node.op)]
            self._replace_between("operator", node.target, node.value, f"{pattern}=", f"{text}=")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._drop(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._drop(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._drop(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._drop(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            # Instead of False this would change nothing.
            if not isinstance(node.value, ast.Constant) or node.value.value not in (None, False):
                self._replace("returns None", node.value, "None")
            self.generic_visit(node)

    # -- conditions -------------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._decide(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._decide(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._replace("condition", node.test, "False")
        if not isinstance(node.test, ast.Constant):
            self.generic_visit(node)
        else:
            for statement in node.body:
                self.visit(statement)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._decide(test)
        self.generic_visit(node)

    def _decide(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Constant):
            self._replace("condition", test, "True")
            self._replace("condition", test, "False")

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        is_and = isinstance(node.op, ast.And)
        for left, right in pairwise(node.values):
            pattern, text = ("and", "or") if is_and else ("or", "and")
            self._replace_between("and/or", left, right, pattern, text)
        for operand in node.values:
            if not isinstance(operand, ast.Constant):
                self._replace("operand", operand, "True" if is_and else "False")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start = self._span(node)[0]
        if isinstance(node.op, ast.Not):
            self.found.append(("not", start, start + len("not"), ""))
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self.found.append(("operator", start, start + 1, ""))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for (left, right), operator in zip(pairwise([node.left, *node.comparators]), node.ops, strict=True):
            self._replace_between("comparison", left, right, *_OTHER_COMPARISON[type(operator)])
        self.generic_visit(node)

    # -- values -----------------------------------------------------------------------------------------------------

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _OTHER_OPERATOR:
            self._replace_between("operator", node.left, node.right, *_OTHER_OPERATOR[type(node.op)])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name):
            if node.func.id in ("cast", "TypeVar"):
                return
            if node.func.id in _OTHER_FUNCTION:
                self._replace("function", node.func, _OTHER_FUNCTION[node.func.id])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._replace("constant", node, str(node.value + 1))


def _flat(lines: str) -> str:
    """Return the lines without their indentation."""
    return "\n".join(line.strip() for line in lines.splitlines())
