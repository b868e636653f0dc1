"""Fixtures: a console as a process of its own, and a browser that has opened its link."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.support.relays.cli import Cli

Console = Callable[..., httpx.Client]
LINK = re.compile(r"Open (http://127\.0\.0\.1:\d+)(/enter\?key=[\w-]{43}) \(works once\)\.\n")


@pytest.fixture
def link(cli: Cli) -> Callable[..., tuple[str, str]]:
    """Start a console with this environment; return its address and the path of its link."""

    def start(**env: str) -> tuple[str, str]:
        cli.env |= env
        process = cli.start("console", "--port", "0")
        assert process.stderr is not None
        found = LINK.fullmatch(line := process.stderr.readline())
        assert found, line
        return found[1], found[2]

    return start


@pytest.fixture
def console(link: Callable[..., tuple[str, str]]) -> Iterator[Console]:
    """Start a console and open its link: a client with the cookie."""
    with ExitStack() as stack:

        def opened(**env: str) -> httpx.Client:
            address, path = link(**env)
            client = stack.enter_context(httpx.Client(base_url=address, follow_redirects=True, timeout=30))
            assert 303 == client.get(path, follow_redirects=False).status_code
            return client

        yield opened
