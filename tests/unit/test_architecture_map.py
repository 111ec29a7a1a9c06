"""The map of modules in `docs/architecture.md` names each module there is, and no page names a file that is gone."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "service" / "tarry"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_MODULES = {
    "cli/spark/": {"shift", "cancel"},
    "service/supervisor/": {"serve"},
}
"""Names in a row of a folder that are something else there: commands, mostly."""


def named() -> dict[str, set[str]]:
    """The names in the rows of each folder."""
    _, table = PAGE.split("\n## Modules\n", 1)
    found: dict[str, set[str]] = {}
    for line in table.split("\n## ", 1)[0].splitlines():
        if not line.startswith("| `"):
            continue
        _, place, modules, _ = line.split("|")
        for one in re.findall(r"`([\w/.]+)`", place):
            if one.endswith(".py"):
                folder, _, name = one.removesuffix(".py").rpartition("/")
                found.setdefault(f"{folder}/" if folder else "", set()).add(name)
            else:
                found.setdefault(one, set()).update(re.findall(r"`([a-z][a-z0-9_]*)`", modules))
    return found


def modules() -> dict[str, set[str]]:
    """The modules of each folder."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if not path.name.startswith("__"):
            folder = path.parent.relative_to(SOURCE).as_posix()
            found.setdefault("" if folder == "." else f"{folder}/", set()).add(path.stem)
    return found


@pytest.mark.parametrize("folder", sorted(modules()))
def test_each_module_is_on_the_map(folder: str) -> None:
    assert modules()[folder] - named().get(folder, set()) == set()


@pytest.mark.parametrize("folder", sorted(named()))
def test_each_name_on_the_map_is_a_module(folder: str) -> None:
    assert named()[folder] - modules().get(folder, set()) - NOT_MODULES.get(folder, set()) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_python_file_that_a_page_names_exists(page: Path) -> None:
    files = re.findall(r"`([\w./-]+/\w+\.py)`", page.read_text(encoding="utf-8"))
    roots = (ROOT, ROOT / "service", SOURCE, ROOT / "tests", page.parent)
    assert [file for file in files if not any((root / file).is_file() for root in roots)] == []


def test_what_may_happen_is_listed_with_its_tests_and_each_planted_bug_that_is_named_there_exists() -> None:
    page = ROOT / "tests" / "README.md"
    _, table = page.read_text(encoding="utf-8").split("\n## What may happen, and where it is tested\n", 1)
    rows = [line for line in table.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 100
    assert [row for row in rows if not re.search(r"`[\w/]+/\w+\.py`|`simulation/`", row)] == []
    patches = set(re.findall(r"`(?:simulation/planted|…)/([\w-]+)\.patch`", table))
    assert len(patches) > 50
    assert [name for name in patches if not (ROOT / "tests/simulation/planted" / f"{name}.patch").is_file()] == []
