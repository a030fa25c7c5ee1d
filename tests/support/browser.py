"""Headless Chromium for the tests of the web page: that of the system, since none is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")
    expect.set_options(timeout=120_000)  # on a machine that has much else to do a page is drawn late
    with sync_playwright() as playwright:
        # A sandbox of its own can't be made as root or in a container, and the page comes from this process.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
