"""Chromium for tests that look at a page: Debian's, installed where a test may, with nothing of its own on the network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, sync_playwright

from relay.devservers import apt
from relay.errors import LocalServerError

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip

OVERFLOWING = """scrolling => {
  const wide = document.documentElement.clientWidth, found = [];
  const seen = element => element.getBoundingClientRect().width > 1;
  for (const element of [document.documentElement, ...document.querySelectorAll("body, body *:not(svg):not(svg *)")].filter(seen)) {
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    if (/auto|scroll/.test(style.overflowX) || (scrolling && element.parentElement?.closest(scrolling))) continue;
    if (style.display !== "inline" && element.scrollWidth > element.clientWidth + 1)
      found.push(`${element.tagName} is ${element.scrollWidth} wide in ${element.clientWidth}: ${element.textContent.trim().slice(0, 40)}`);
    if (box.right > wide + 1 || box.left < -1) found.push(`${element.tagName} ends at ${box.right} of ${wide}`);
  }
  for (const plot of [...document.querySelectorAll("svg")].filter(seen)) {
    const frame = plot.getBoundingClientRect();
    for (const text of plot.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.push(`label ${text.textContent} leaves its plot`);
    }
  }
  return found;
}"""
"""What is wider than its place: elements, unless they scroll or are within one that a selector names, and labels of plots."""


def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """A browser with a profile of its own; without one the test is skipped with a sentence, or fails with REQUIRE_BROWSER=1."""
    program = shutil.which("chromium") or _installed()
    with sync_playwright() as driver:
        profile: Path = tmp_path_factory.mktemp("profile")
        context = driver.chromium.launch_persistent_context(profile, executable_path=program, headless=True, args=list(FLAGS))
        yield context
        context.close()


def _installed() -> str:
    """Install Debian's as root."""
    reason = "chromium is not here, and only root may install it: apt-get install chromium (REQUIRE_BROWSER=1 makes this a failure)"
    if os.getuid() == 0:
        try:
            apt.install("chromium", say=print)
        except LocalServerError as error:
            reason = f"{error} (REQUIRE_BROWSER=1 makes this a failure)"
    if found := shutil.which("chromium"):
        return found
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
