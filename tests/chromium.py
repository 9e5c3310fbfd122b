"""A real browser for our pages: headless Chromium that reaches nothing, and what it complains of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

# Kept after a run, to be looked at: build/ is ignored by git.
SCREENSHOTS = Path(__file__).resolve().parents[1] / "build" / "screenshots"
SIZES = {"desk": (1280, 900), "phone": (360, 780)}
Scheme = Literal["light", "dark"]
_CUT_OFF = """[...document.querySelectorAll("h1, h2, h3, p, td, th, dt, dd, li, summary, .badge, .button")]
  .filter(node => node.clientWidth && node.scrollWidth > node.clientWidth + 1).map(node => node.innerText)"""
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A page, and what went on behind it."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def keep(self, name: str) -> None:
        """A screenshot of the whole page, for people."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SCREENSHOTS / f"{name}.png"), full_page=True)

    def cut_off(self) -> list[str]:
        """Texts that are wider than what holds them, and so cut off or written over what stands beside them."""
        found: list[str] = self.page.evaluate(_CUT_OFF)
        return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium with a profile of its own; skips the test where none is installed."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium is installed ({', '.join(_NAMES)})")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_FLAGS))
        yield browser
        browser.close()


@contextmanager
def visit(browser: Browser, url: str, size: str = "desk", scheme: Scheme = "light") -> Iterator[Seen]:
    """A page as a person with this screen and taste sees it."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    seen = Seen(context.new_page())
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.on("console", lambda message: seen.complaints.append(message.text))
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.on("dialog", lambda dialog: seen.complaints.append(f"dialog: {dialog.message}"))
    seen.page.goto(url)
    yield seen
    context.close()
