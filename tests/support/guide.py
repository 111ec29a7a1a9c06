"""Extracts the examples of a page of `docs/`, so that tests can run them unchanged."""

import re
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"


def examples(page: str, language: str = "python") -> list[str]:
    """The blocks of one language, in order.

    Args:
        page: its file's name.
        language: as the fence says it.
    """
    text = (_DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
