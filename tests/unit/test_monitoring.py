"""The dashboard and the alerts: of nothing but what the service shows, and each with a way to mend it."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarry.service.metrics.families import FAMILIES
from tests.support.promql import Use, kept_labels, uses

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "tarry-dashboard.json").read_text(encoding="utf-8"))
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "tarry.rules.yml").read_text(encoding="utf-8"))
TESTS: dict[str, Any] = yaml.safe_load((MONITORING / "tarry.rules.test.yml").read_text(encoding="utf-8"))
OPERATIONS = (ROOT / "docs/operations.md").read_text(encoding="utf-8")

ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
OF_THE_SCRAPE = frozenset({"namespace", "job", "instance"})
"""Labels that Prometheus puts there itself."""


def shown() -> dict[str, frozenset[str]]:
    """All that a scrape of the service has, with its labels; `test_metrics` holds the documentation to the same."""
    found = {"tarry_build_info": frozenset({"version"})}
    for family in FAMILIES:
        labels = frozenset(family.labels)
        if family.kind == "histogram":
            found[f"{family.name}_bucket"] = labels | {"le"}
            found[f"{family.name}_sum"] = found[f"{family.name}_count"] = labels
        else:
            found[family.name + "_total" * (family.kind == "counter")] = labels
    return {name: labels | OF_THE_SCRAPE for name, labels in found.items()}


def of_the_dashboard() -> Iterator[str]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]
            assert variable["query"]["query"] == variable["definition"]


def of_the_documentation() -> Iterator[str]:
    _, table = (ROOT / "docs/metrics.md").read_text(encoding="utf-8").split("## What to watch\n")
    for line in table.splitlines():
        if line.startswith("| ") and "`" in line:
            yield from re.findall(r"`([^`]+)`", line)


@pytest.mark.parametrize(
    "expression",
    [*of_the_dashboard(), *(rule["expr"] for rule in ALERTS.values()), *of_the_documentation()],
)
def test_only_metrics_of_the_service_are_asked_for_and_by_labels_that_they_have(expression: str) -> None:
    metrics = shown()
    found = uses(expression)
    assert found
    for use in found:
        assert use.metric in metrics
        assert use.labels <= metrics[use.metric]


def test_the_reading_of_expressions_sees_metrics_matchers_and_aggregations() -> None:
    assert uses('sum by (a, b) (rate(x_total{c="by (d)", e=~"f|{g}"}[5m])) / on (a) 10 * y') == [
        Use("x_total", frozenset("abce")),
        Use("y"),
    ]
    assert uses("count by (a) (count by (a, b) (x)) > 1e3 unless y") == [Use("x", frozenset("ab")), Use("y")]
    assert uses('label_values(x{a="b"}, c)') == [Use("x", frozenset("ac"))]
    assert kept_labels("count by (a) (count by (a, b) (x))") == frozenset("a")
    assert kept_labels("sum by (a, b) (x) > sum by (b) (y)") == frozenset("b")
    assert kept_labels("sum by (a, b) (x) unless on (a) sum by (a) (y) == 0") == frozenset("ab")
    assert kept_labels("x / y") is None


# -- the dashboard ----------------------------------------------------------------------------------------------------


def test_every_metric_is_on_the_dashboard() -> None:
    asked = {use.metric for expression in of_the_dashboard() for use in uses(expression)}
    for family in FAMILIES:
        assert any(name.startswith(family.name) for name in asked), family.name


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_is_named_explained_and_labelled_by_what_its_expressions_keep(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        kept = kept_labels(target["expr"])
        for use in uses(target["expr"]):
            assert named <= (shown()[use.metric] if kept is None else kept)


def test_panels_have_a_place_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]


def test_every_panel_heeds_what_is_chosen() -> None:
    for panel in PANELS:
        for target in panel["targets"]:
            for use in uses(target["expr"]):
                chosen = {"namespace", "job"} | ({"intake"} & shown()[use.metric])
                assert chosen <= use.labels, (panel["title"], use)


# -- the alerts -------------------------------------------------------------------------------------------------------


def sections() -> dict[str, str]:
    """The runbook of each alert by its anchor: what stands below its heading."""
    _, chapter = OPERATIONS.split("\n## Alerts\n")
    chapter = re.split(r"\n## ", chapter)[0]
    _, *parts = re.split(r"\n### ", chapter)
    return {title.lower(): text for title, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_severity_a_summary_and_a_runbook_that_is_there(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "runbook_url"}
    path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert (ROOT / path).read_text(encoding="utf-8") == OPERATIONS
    assert anchor == name.lower()
    for part in ("**Means.**", "**Check.**", "**Fix.**"):
        assert sections()[anchor].count(part) == 1


@pytest.mark.parametrize("name", ALERTS)
def test_a_summary_names_only_labels_that_the_alert_has(name: str) -> None:
    rule = ALERTS[name]
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    kept = kept_labels(rule["expr"])
    for use in uses(rule["expr"]):
        assert named <= (shown()[use.metric] if kept is None else kept)


def test_there_is_no_runbook_without_an_alert() -> None:
    assert set(sections()) == {name.lower() for name in ALERTS}


def test_each_alert_is_tried_as_it_fires() -> None:
    tried = {
        one["alertname"] for test in TESTS["tests"] for one in test.get("alert_rule_test", ()) if one["exp_alerts"]
    }
    assert tried == set(ALERTS)
    assert TESTS["rule_files"] == ["tarry.rules.yml"]


# -- links ------------------------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as they are shown on the web."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", ["operations.md", "metrics.md"])
def test_every_link_of_what_an_operator_reads_leads_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        where = (ROOT / "docs" / path).resolve() if path else ROOT / "docs" / page
        assert where.exists(), link
        assert not anchor or anchor in anchors(where), link
