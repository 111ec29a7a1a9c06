"""Finds the metrics and labels in a PromQL expression. It covers the part of the language that our expressions use."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHED = re.compile(r"\{([^}]*)\}")
_RANGE = re.compile(r"\[[^\]]*\]")
_BY = re.compile(r"\bby\s*\(([^)]*)\)\s*\(")
_CLAUSE = re.compile(r"\b(?:by|on|ignoring)\s*\(([^)]*)\)")
_ONLY_MATCHED = re.compile(r"\b(?:and|unless)\s+on\s*\([^)]*\)\s*\w+\s+by\s*\([^)]*\)\s*\($")
"""Before an aggregation of which the result keeps no label: `unless on (…) sum by (…) (`."""
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LABEL_VALUES = re.compile(r"label_values\((.*),\s*(\w+)\)")
_WORDS = frozenset({"by", "and", "or", "unless", "on", "ignoring", "group_left", "group_right", "offset", "bool"})


@dataclass(frozen=True, slots=True)
class Use:
    """One metric in an expression.

    Attributes:
        metric: its name as Prometheus sees it, with `_total`, `_bucket`, `_sum` or `_count`.
        labels: the labels in its selector, and those that an aggregation around it keeps.
    """

    metric: str
    labels: frozenset[str] = field(default_factory=frozenset)


def uses(expression: str) -> list[Use]:
    """Return each metric of an expression, with the labels that it must have."""
    if variable := _LABEL_VALUES.fullmatch(expression):
        return [Use(one.metric, one.labels | {variable[2]}) for one in uses(variable[1])]
    text = _RANGE.sub("", _STRING.sub("''", expression))
    kept = [(begin, end, labels) for begin, end, labels in _aggregations(text)]
    selected = [(match.start(), match.end(), _names(match[1])) for match in _MATCHED.finditer(text)]
    clauses = [match.span(1) for match in _CLAUSE.finditer(text)]
    found = []
    for match in _NAME.finditer(text):
        at, behind = match.span()
        inside = any(begin <= at < end for begin, end in (*clauses, *((b, e) for b, e, _ in selected)))
        is_number = at > 0 and text[at - 1].isdigit()
        if inside or is_number or match[0] in _WORDS or re.match(r"\s*(?:by\s*\(|\()", text[behind:]):
            continue
        by = [labels for begin, end, labels in kept if begin <= at < end]
        matchers = [labels for begin, _, labels in selected if begin == behind]
        found.append(Use(match[0], frozenset().union(*by, *matchers)))
    return found


def kept_labels(expression: str) -> frozenset[str] | None:
    """Return the labels of an expression's result, by its outermost aggregations; None if one has no labels."""
    text = _RANGE.sub("", _STRING.sub("''", expression))
    aggregations = [one for one in _aggregations(text) if not _ONLY_MATCHED.search(text[: one[0]])]
    outermost = [one for one in aggregations if not any(o[0] < one[0] and one[1] < o[1] for o in aggregations)]
    return frozenset.intersection(*(labels for _, _, labels in outermost)) if outermost else None


def _aggregations(text: str) -> Iterator[tuple[int, int, frozenset[str]]]:
    """Each `by (labels) (…)`: where its parenthesis begins and ends, and the labels."""
    for match in _BY.finditer(text):
        depth, at = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        yield match.end(), at, _names(match[1])


def _names(text: str) -> frozenset[str]:
    return frozenset(_NAME.findall(text))
