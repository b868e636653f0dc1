"""The report in a real browser: nothing overflows on a phone or a desktop, nothing is fetched, nothing runs; pictures stay to be seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext, Dialog, Page, Request

from relay.pipeline.report.page import render
from tests.support.browser import OVERFLOWING, chromium
from tests.support.lake import reports

MADE = {made.__name__: made for made in (reports.busy, reports.hostile, reports.quiet, reports.empty, reports.tiny)}
SPOIL = """document.body.insertAdjacentHTML("beforeend",
    "<img src='http://127.0.0.1:9/picture' onerror='alert(1)'><p style='width: 2000px'>wide</p>")"""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """One browser for all tests of this file."""
    yield from chromium(tmp_path_factory)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each made-up report as a file."""
    folder = tmp_path_factory.mktemp("pages")
    for name, made in MADE.items():
        (folder / f"{name}.html").write_text(render(made()), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in MADE}


class Looked:
    """A page in the browser, and what it did: console messages, errors, dialogs, and requests for anything but itself."""

    def __init__(self, context: BrowserContext, path: Path, width: int, scheme: Literal["light", "dark"]) -> None:
        self.noise: list[str] = []
        self._itself = {path.as_uri(), "data:,"}
        self.page: Page = context.new_page()
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme=scheme)
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", self._request)
        self.page.goto(path.as_uri(), wait_until="load")

    def _dismiss(self, dialog: Dialog) -> None:
        self.noise.append("dialog")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        if request.url not in self._itself:
            self.noise.append(request.url)

    def overflowing(self) -> list[str]:
        """What is wider than its place."""
        found: list[str] = self.page.evaluate(OVERFLOWING)
        return found


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (768, "light"), (1280, "dark")])
@pytest.mark.parametrize("name", MADE)
def test_nothing_overflows_and_nothing_is_fetched(
    context: BrowserContext, pages: dict[str, Path], tmp_path: Path, name: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    """On a phone, a tablet and a desktop, whatever the texts are: no overflow, no request, no word on the console."""
    looked = Looked(context, pages[name], width, scheme)

    assert [] == looked.overflowing()
    assert [] == looked.noise
    looked.page.screenshot(path=tmp_path / f"{name}-{width}-{scheme}.png", full_page=True)
    looked.page.close()


def test_the_page_refuses_what_it_does_not_hold_itself(context: BrowserContext, pages: dict[str, Path]) -> None:
    """Were markup to slip in, the page's own policy would neither fetch its picture nor run its script. What is too wide is seen."""
    looked = Looked(context, pages["tiny"], 1280, "light")

    looked.page.evaluate(SPOIL)
    looked.page.evaluate("() => new Promise(requestAnimationFrame)")

    assert any("wide" in line for line in looked.overflowing())
    assert any("Content Security Policy" in line for line in looked.noise)
    assert "dialog" not in looked.noise
    looked.page.close()


def test_light_and_dark_differ(context: BrowserContext, pages: dict[str, Path]) -> None:
    """The page follows the system's choice, its plots too."""
    colours = {}
    for scheme in ("light", "dark"):
        looked = Looked(context, pages["busy"], 1280, scheme)
        paint = "element => getComputedStyle(element).fill + getComputedStyle(document.body).backgroundColor"
        colours[scheme] = looked.page.locator(".wide svg text").first.evaluate(paint)
        looked.page.close()

    assert colours["light"] != colours["dark"]


def test_the_contents_are_reached_by_key(context: BrowserContext, pages: dict[str, Path]) -> None:
    """The first key leads to the first link, which shows that it is chosen, and Enter to its section."""
    looked = Looked(context, pages["busy"], 1280, "light")

    looked.page.keyboard.press("Tab")
    chosen = looked.page.evaluate("[document.activeElement.hash, getComputedStyle(document.activeElement).outlineStyle]")
    looked.page.keyboard.press("Tab")
    looked.page.keyboard.press("Enter")

    assert ["#totals", "solid"] == chosen
    assert looked.page.url.endswith("#time")
    looked.page.close()


def test_it_prints_in_light(context: BrowserContext, pages: dict[str, Path], tmp_path: Path) -> None:
    """On paper the page is light whatever the screen is, and nothing is wider than the sheet."""
    looked = Looked(context, pages["hostile"], 720, "dark")
    looked.page.emulate_media(media="print", color_scheme="dark")

    assert [] == looked.overflowing()
    body = "getComputedStyle(document.body)"
    assert ["rgb(255, 255, 255)", "rgb(23, 33, 43)"] == looked.page.evaluate(f"[{body}.backgroundColor, {body}.color]")
    printed = looked.page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert printed.startswith(b"%PDF")
    looked.page.close()
