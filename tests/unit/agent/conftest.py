"""What tests of pages share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, of each module's own."""
    from tests.chromium import open_browser  # playwright is heavy, and most tests here have no page

    with open_browser() as opened:
        yield opened
