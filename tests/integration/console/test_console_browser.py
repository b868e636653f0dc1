"""The console in a real browser: it updates by itself, overflows nowhere, and the browser refuses nothing that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import OVERFLOWING, chromium
from tests.support.relays.cli import Cli, Seeded

pytestmark = pytest.mark.timeout(180)
Link = Callable[..., tuple[str, str]]
HOSTILE = "<img src=x onerror=alert(1)>\u202e" + "w" * 120


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """One browser for all tests of this file."""
    yield from chromium(tmp_path_factory)


class Opened:
    """A page that has opened the link, with a clock that only the test moves.

    Args:
        page: the page.
        address: the console's.
    """

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.noise: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.noise.append(message.text))
        page.on("pageerror", lambda error: self.noise.append(str(error)))
        page.on("dialog", lambda dialog: self.noise.append(dialog.message))
        page.on("request", lambda request: self.asked.append(request.url))
        page.clock.install()

    def elsewhere(self) -> list[str]:
        """What it asked of others."""
        return [url for url in self.asked if not url.startswith(f"{self.address}/")]


@pytest.fixture
def opened(context: BrowserContext, link: Link) -> Iterator[Opened]:
    """It asks nobody else, and the browser has nothing to complain about."""
    address, path = link()
    made = Opened(context.new_page(), address)
    made.page.goto(f"{address}{path}")
    yield made
    made.page.close()
    assert [] == made.elsewhere()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_names_overflow_nowhere(opened: Opened, seeded: Seeded, scheme: Literal["light", "dark"]) -> None:
    """On a phone and a desktop, on each page; wide tables scroll."""
    waiting = seeded.insert(exchange=HOSTILE, routing_key=HOSTILE, ordering_key=HOSTILE)
    seeded.archive("failed", "unroutable", HOSTILE, exchange=HOSTILE, routing_key=HOSTILE)
    seeded.run("SELECT queue_message_pause(%s, %s, %s)", HOSTILE, HOSTILE, HOSTILE)
    opened.page.emulate_media(color_scheme=scheme)
    for width in (360, 1280):
        opened.page.set_viewport_size({"width": width, "height": 800})
        for path in ("/", "/waiting", "/dead", f"/message/{waiting}"):
            opened.page.goto(f"{opened.address}{path}")
            assert [] == opened.page.evaluate(OVERFLOWING, ".wide"), (path, width)
    assert [] == opened.noise


def test_the_overview_updates_until_it_is_paused(opened: Opened, seeded: Seeded) -> None:
    """A reader who has paused keeps what is there."""
    ready = opened.page.locator(".tiles a").first
    expect(ready).to_have_text("0")
    seeded.insert()
    while ready.text_content() == "0":  # the console keeps its figures for four seconds of its own clock
        with opened.page.expect_response(f"{opened.address}/"):
            opened.page.clock.run_for(5_000)
    expect(ready).to_have_text("1")

    opened.page.get_by_role("button", name="Pause updates").click()
    asked = len(opened.asked)
    opened.page.clock.run_for(60_000)
    assert asked == len(opened.asked)
    expect(opened.page.get_by_role("button", name="Updates are paused")).to_be_visible()
    assert [] == opened.noise


def test_a_console_that_has_ended_is_said_so(opened: Opened, cli: Cli) -> None:
    """The page keeps what it showed last."""
    stale = opened.page.locator("#stale")
    expect(stale).to_be_hidden()
    cli.close()
    opened.page.clock.run_for(5_000)
    expect(stale).to_be_visible()
    expect(opened.page.locator("h1")).to_have_text("Overview")


def test_the_keyboard_is_enough(opened: Opened, seeded: Seeded) -> None:
    """The first stop leads past the header; a message is found by its id and Enter."""
    id_ = seeded.insert()
    opened.page.keyboard.press("Tab")
    expect(opened.page.get_by_text("Skip to the content")).to_be_focused()
    opened.page.get_by_label("Message").fill(id_)
    opened.page.keyboard.press("Enter")
    expect(opened.page.locator("h1")).to_contain_text(id_)
    assert [] == opened.noise
