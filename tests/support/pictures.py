"""Makes the pictures of `docs/console.md` from a console that runs: `python -m tests.support.pictures URL`.

The intake must hold some messages, a schedule and a dead letter, and have had an operation. Look at each picture before
you commit it.
"""

import io
import re
import sys
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import ViewportSize, sync_playwright

from tests.support.browser import PHONE, ZONE, chromium
from tests.support.console import get_json

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images" / "console"
WIDE: Final = ViewportSize(width=1180, height=860)
COLOURS: Final = 96
SETTLED_MS: Final = 6_000
"""Until charts have some points."""


def paths(url: str) -> dict[str, tuple[str, Any, ViewportSize]]:
    """The path, the theme and the window of each picture."""
    messages = get_json(url, "/v1/pending/messages?limit=500&within_ms=10000")["messages"]
    waits = [one for one in messages if (one["level"] or 0) >= 3]
    letter = get_json(url, "/v1/dead?limit=1")["letters"][0]
    operation = get_json(url, "/v1/operations?limit=1")["operations"][0]
    message = f"/message/{waits[0]['handle']}"
    dead = f"/dead/{letter['intake']}/{letter['partition']}/{letter['offset']}"
    return {
        "overview": ("/", "light", WIDE),
        "overview-dark": ("/", "dark", WIDE),
        "overview-phone": ("/", "light", PHONE),
        "waiting": (f"/waiting?due_from={waits[0]['due']}", "light", WIDE),
        "message": (message, "light", WIDE),
        "message-phone": (message, "dark", PHONE),
        "schedules": ("/schedules", "dark", WIDE),
        "dead": ("/dead", "light", WIDE),
        "letter": (dead, "light", WIDE),
        "targets": ("/targets", "light", WIDE),
        "retries": ("/retries", "light", WIDE),
        "partitions": ("/partitions", "dark", WIDE),
        "operation": (f"/operations/{operation['id']}", "light", WIDE),
        "audit": ("/audit", "light", WIDE),
    }


def small(picture: bytes) -> bytes:
    """Return a picture with few colours, which is enough for text and bars."""
    found = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    out = io.BytesIO()
    found.save(out, "PNG", optimize=True)
    return out.getvalue()


def main(url: str, wanted: str = "") -> None:
    """Make all pictures, or those whose names match."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name, (path, theme, size) in paths(url).items():
            if not re.search(wanted, name):
                continue
            context = browser.new_context(color_scheme=theme, viewport=size, timezone_id=ZONE, locale="en-GB")
            page = context.new_page()
            page.goto(url + path)
            page.wait_for_timeout(SETTLED_MS)
            (IMAGES / f"{name}.png").write_bytes(small(page.screenshot()))
            context.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
