"""Who gets in: a browser with the link, once; nobody from another site."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import httpx
import pytest

from tests.integration.console.conftest import Console
from tests.support.relays.cli import Cli

Link = Callable[..., tuple[str, str]]
PATHS = ("/", "/waiting", "/dead", "/message/00000000-0000-0000-0000-000000000000", "/nothing")
SAFE = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_browser_without_the_cookie_sees_nothing(link: Link, path: str) -> None:
    """Whatever it asks for, and whatever cookie it makes up."""
    address, _ = link()
    for cookies in ({}, {f"outbox_relay_{address.rpartition(':')[2]}": "x"}):
        answer = httpx.get(f"{address}{path}", headers={"cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())})
        assert 401 == answer.status_code
        assert "opened the link" in answer.text


def test_a_link_works_once(link: Link) -> None:
    """The next one is printed; the browser that has the cookie is led to the page."""
    address, path = link()
    with httpx.Client(base_url=address, follow_redirects=True) as first, httpx.Client(base_url=address, follow_redirects=True) as second:
        entered, late, again = first.get(path), second.get(path), first.get(path)

    assert [200, 401, 200] == [one.status_code for one in (entered, late, again)]
    cookie = entered.history[0].headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=lax", "Path=/", "Max-Age=43200"))


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "[::1]evil", "127.0.0.1.evil.example:80"])
def test_a_name_of_another_site_is_refused(console: Console, host: str) -> None:
    """A page of that site, which points its name to 127.0.0.1, reads nothing."""
    answer = console().get("/", headers={"host": host})

    assert 403 == answer.status_code
    assert "Overview" not in answer.text


def test_every_answer_has_the_headers_that_keep_others_out(console: Console, link: Link) -> None:
    """No foreign code runs, no other page frames or reads it, nothing stays in a cache."""
    client = console()
    for path in ("/", "/static/console.js", "/static/console.css", "/static/other", "/nothing", "/enter?key=x"):
        answer = client.get(path)
        assert SAFE == {name: answer.headers[name] for name in SAFE}, path
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_answered(console: Console, method: str) -> None:
    """The pages change nothing, so there is no form to forge."""
    assert 405 == console().request(method, "/").status_code


def test_a_port_that_is_taken_is_a_sentence(cli: Cli, link: Link) -> None:
    """With the option that helps."""
    address, _ = link()
    port = address.rpartition(":")[2]

    assert f"Cannot listen on 127.0.0.1 port {port} (Address already in use): give another --port." == cli.refused(
        "console", "--port", port, code=2
    )


def test_a_database_that_cannot_be_reached_is_said_at_once(cli: Cli) -> None:
    """Before a port is opened."""
    url = "postgresql://nobody:x@127.0.0.1:1/none"

    assert cli.refused("console", "--port", "0", code=4, RELAY_DATABASE_URL=url)


def test_without_its_extra_the_command_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other commands need no Jinja."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for name in [name for name in sys.modules if name.startswith("relay.cli.console.") and not name.endswith(".command")]:
        monkeypatch.delitem(sys.modules, name)

    sentence = cli.refused("console", "--port", "0", code=2)

    assert "The console is not installed (jinja2 is missing): pip install 'outbox-relay[console]'." == sentence


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_0(cli: Cli, sent: signal.Signals) -> None:
    """Also while a browser keeps its connection."""
    process = cli.start("console", "--port", "0")
    assert process.stderr is not None
    address = process.stderr.readline().split()[1].partition("/enter")[0]
    with httpx.Client(base_url=address) as client:
        client.get("/")
        process.send_signal(sent)

        assert 0 == process.wait(10)
