"""A real browser: the Chromium of this machine, driven by Playwright, which brings none itself.

Its headless shell, the same engine without windows, needs two thirds of the processor time, and comes first. `CHROMIUM`
names the browser if it is not on the path. Without one, a test fails and says how to install it.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page, ViewportSize, sync_playwright

from tests.support.lacking import lacks

NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESKTOP: Final = ViewportSize(width=1280, height=800)
PHONE: Final = ViewportSize(width=390, height=844)
ZONE: Final = "Europe/Berlin"

AXE_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


def chromium() -> str | None:
    """The path of the browser; None if there is none."""
    return os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of a file. As long as it is open, its thread has an event loop, and can run no other."""
    path = chromium()
    if path is None:
        lacks("no browser: make browser installs Chromium, or set CHROMIUM to the path of one")
    with sync_playwright() as playwright:
        # As root, Chromium has no sandbox; the tests open only pages of this machine.
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@dataclass(slots=True)
class Watched:
    """A page, and what went wrong on it.

    Attributes:
        page: the page.
        troubles: errors of scripts, of the console, and dialogs, which no page of ours opens.
    """

    page: Page
    troubles: list[str] = field(default_factory=list)

    def width(self) -> int:
        """Return how wide the page is, in pixels.

        A script that asks before the style sheet is there is answered from a layout without it.
        """
        self.page.wait_for_load_state("load")
        return int(self.page.evaluate("document.documentElement.scrollWidth"))

    def axe(self, *, rules: Sequence[str] = ()) -> list[str]:
        """Return what axe finds, one line each.

        Args:
            rules: only these rules; none given, those of `AXE_TAGS`.
        """
        self.page.wait_for_load_state("load")
        only: Any = {"type": "rule", "values": list(rules)} if rules else list(AXE_TAGS)
        found: Any = Axe().run(self.page, options={"runOnly": only, "resultTypes": ["violations"]})
        return [
            f"{one['id']}: {one['help']}: {node['html'][:200]}"
            for one in found.response["violations"]
            for node in one["nodes"]
        ]


@contextmanager
def opened(
    browser: Browser,
    *,
    theme: Any = "light",
    size: ViewportSize = DESKTOP,
    scripts: bool = True,
) -> Iterator[Watched]:
    """Open a page in a context of its own.

    Args:
        browser: the browser.
        theme: `light` or `dark`.
        size: of the window.
        scripts: whether JavaScript runs.
    """
    context = browser.new_context(
        color_scheme=theme,
        viewport=size,
        timezone_id=ZONE,
        locale="en-GB",
        java_script_enabled=scripts,
        reduced_motion="reduce",
        bypass_csp=False,
    )
    page = context.new_page()
    watched = Watched(page)

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            watched.troubles.append(message.text)

    def asked(dialog: Dialog) -> None:
        watched.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", said)
    page.on("pageerror", lambda error: watched.troubles.append(str(error)))
    page.on("dialog", asked)
    try:
        yield watched
    finally:
        context.close()
