"""What the console keeps in memory: its link, its sessions, its newest figures."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import PlainTextResponse

from relay.cli.console.access import SESSION_SECONDS, Access, LinkKeys
from relay.cli.console.latest import Latest
from relay.errors import RelayError


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now


async def test_only_the_browser_that_used_the_link_is_let_through() -> None:
    """Others are refused, whatever cookie they make up."""
    announced: list[str] = []
    app = Access(PlainTextResponse("a page"), LinkKeys(announced.append), "session")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as browser:
        before = [await browser.get("/", headers={"cookie": cookie}) for cookie in ("", "session=x", "session=", "other=x; ;=")]
        entered = await browser.get("/enter", params={"key": announced[0]})
        after = await browser.get("/")

    assert [401] * 4 == [answer.status_code for answer in before]
    assert (303, 200, "a page") == (entered.status_code, after.status_code, after.text)


def test_a_key_opens_one_session_and_the_next_key_is_announced() -> None:
    """No key is announced twice."""
    announced: list[str] = []
    keys = LinkKeys(announced.append)

    first = keys.enter(announced[0])

    assert first is not None
    assert keys.knows(first)
    assert keys.enter(announced[0]) is None
    assert 2 == len(set(announced))
    assert keys.enter(announced[1]) not in {None, first}


@pytest.mark.parametrize("key", ["", "x", "\u00e9", "k" * 100_000])
def test_a_key_that_was_not_announced_opens_nothing(key: str) -> None:
    """Whatever its length and its letters; the link still works."""
    announced: list[str] = []
    keys = LinkKeys(announced.append)

    assert keys.enter(key) is None
    assert keys.enter(announced[0])


def test_a_session_ends_after_twelve_hours() -> None:
    """A later session does not extend it."""
    announced: list[str] = []
    clock = Clock()
    keys = LinkKeys(announced.append, clock)
    session = keys.enter(announced[-1])
    assert session is not None

    clock.now = SESSION_SECONDS - 1
    keys.enter(announced[-1])
    assert keys.knows(session)
    clock.now = SESSION_SECONDS
    assert not keys.knows(session)
    assert not keys.knows("")


def test_figures_are_read_again_when_they_are_old() -> None:
    """Not before."""
    clock, read = Clock(), iter(range(10))
    latest = Latest(lambda: next(read), 4.0, clock)

    seen = []
    for clock.now in (0.0, 3.9, 4.0, 7.9, 8.0):
        seen.append(latest.value())

    assert [0, 0, 1, 1, 2] == seen


def test_an_error_is_kept_for_a_second_and_hides_no_figures() -> None:
    """Requests that waited share it, and the next one tries again; old figures do not pass for new ones."""
    clock, asked = Clock(), 0

    def read() -> int:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise RelayError("no answer")
        return asked

    latest = Latest(read, 4.0, clock)
    assert 1 == latest.value()
    for clock.now in (4.0, 4.9):
        with pytest.raises(RelayError, match="no answer"):
            latest.value()
    assert 2 == asked
    clock.now = 5.0
    assert 3 == latest.value()
