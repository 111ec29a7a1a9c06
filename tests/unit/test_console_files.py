"""The files of others in the console are those of the list, unchanged; and no page brings anything from elsewhere."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

CONSOLE = Path(__file__).parents[2] / "service" / "tarry" / "api" / "console"
VENDORED = CONSOLE / "static" / "vendored"
LISTED = {one["name"]: one for one in tomllib.loads((VENDORED / "vendored.toml").read_text(encoding="utf-8"))["file"]}
OURS = [*sorted((CONSOLE / "templates").iterdir()), *(one for one in (CONSOLE / "static").iterdir() if one.is_file())]


def test_each_file_is_listed() -> None:
    assert {one.name for one in VENDORED.iterdir() if one.suffix in {".js", ".css"}} == set(LISTED)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_a_file_has_its_sum_and_its_licence(name: str) -> None:
    one = LISTED[name]
    assert hashlib.sha256((VENDORED / name).read_bytes()).hexdigest() == one["sha256"]
    assert (VENDORED / f"{name.split('.', maxsplit=1)[0]}.LICENSE.txt").is_file()
    assert re.fullmatch(r"\d+\.\d+\.\d+", one["version"])
    assert one["licence"] in {"0BSD", "MIT"}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_no_page_has_inline_scripts_or_styles_or_addresses_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"\sstyle=|<style|\son[a-z]+=|<script(?![^>]*\ssrc=)|javascript:", text)
    assert not re.search(r"https?://", text)
    assert "|safe" not in text.replace(" ", "")


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_what_stands_in_an_address_is_encoded_whichever_it_is(path: Path) -> None:
    # In `a or b | urlencode` only `b` is encoded: an `&` in a target would be another filter.
    assert not re.search(r"\{\{[^(}]* or [^(}]*\| urlencode", path.read_text(encoding="utf-8"))
