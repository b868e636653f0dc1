"""The HTTP client for addresses that others chose, against real servers: where it connects, what it reads, when it gives up."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from relay.net.http_client import NoAnswerError, Response, UnreachableHostError, UrlError, check, fetch
from tests.support.servers.certificates import Authority
from tests.support.servers.webhook_receiver import Answer, Hook, hook

CHUNK = b"x" * 65536


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who vouches for servers."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server() -> Iterator[Hook]:
    """A server on this machine."""
    with hook() as running:
        yield running


class Resolver:
    """Gives one answer after the other, and says how often it was asked."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, _host: str, _port: int) -> list[str]:
        """See `Resolve`."""
        self.asked += 1
        return self._answers.pop(0)


@asynccontextmanager
async def _raw(reply: bytes, *, then_hang: bool = False) -> AsyncIterator[int]:
    """The port of a server that answers with these bytes."""
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        if then_hang:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        done.set()
        server.close()


async def test_a_request_arrives_whole_and_its_answer_too(server: Hook) -> None:
    """Method, path, headers and body; the status, headers in small letters, the body."""
    server.answer = lambda _: Answer(200, {"X-One": "1", "content-length": "5"}, lambda: iter([b"hel", b"lo"]))

    response = await fetch(server.url, method="POST", headers={"Content-Type": "text/plain"}, body=b"abc", allow_private=True)

    got = server.next()
    assert ("POST", "/hook/not-for-logs", b"abc") == (got.method, got.path, got.body)
    assert f"127.0.0.1:{server.port}" == got.headers["host"]
    assert ("text/plain", "close", "identity") == tuple(got.headers[name] for name in ("content-type", "connection", "accept-encoding"))
    assert (200, b"hello", False, "1") == (response.status, response.body, response.cut, response.headers["x-one"])


async def test_a_name_is_resolved_once_and_that_address_is_connected_to(server: Hook) -> None:
    """A resolver that answers otherwise the second time is never asked a second time."""
    resolver = Resolver(["127.0.0.1"], ["169.254.169.254"])

    response = await fetch(f"http://rebinding.example:{server.port}/", allow_private=True, resolve=resolver)

    assert (204, 1) == (response.status, resolver.asked)
    assert f"rebinding.example:{server.port}" == server.next().headers["host"]


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], ["0.0.0.0"]])
async def test_a_name_that_leads_inside_is_refused_before_any_connection(server: Hook, answer: list[str]) -> None:
    """This holds even with a public address next to it, and whatever the first lookup returns."""
    with pytest.raises(UrlError, match="no request goes there"):
        await fetch(f"http://innocent.example:{server.port}/", resolve=Resolver(answer))

    assert server.got.empty()


async def test_localhost_is_refused_by_its_address(server: Hook) -> None:
    """The system's own resolver; and what is said at the start is what would happen."""
    url = f"http://localhost:{server.port}/"
    for ask in (fetch(url), check(url)):
        with pytest.raises(UrlError, match=r"leads to the private address .* unless private addresses are allowed"):
            await ask

    assert server.got.empty()


async def test_a_redirect_is_an_answer_and_is_not_followed(server: Hook) -> None:
    """Its target could be anything."""
    server.answer = lambda _: Answer(302, {"Location": f"http://127.0.0.1:{server.port}/inside"})

    response = await fetch(server.url, allow_private=True)

    assert (302, f"http://127.0.0.1:{server.port}/inside") == (response.status, response.headers["location"])
    server.next()
    assert server.got.empty()


async def test_a_gigabyte_of_answer_is_cut_where_the_cap_is(server: Hook) -> None:
    """And hung up on: the server does not get it all out."""
    sent = 0
    ended = threading.Event()

    def parts() -> Iterator[bytes]:
        nonlocal sent
        try:
            while sent < 1 << 30:
                yield CHUNK
                sent += len(CHUNK)
        finally:
            ended.set()

    server.answer = lambda _: Answer(200, {"content-length": str(1 << 30)}, parts)

    response = await fetch(server.url, allow_private=True, max_bytes=100_000)

    assert (200, 100_000, True) == (response.status, len(response.body), response.cut)
    assert await asyncio.to_thread(ended.wait, 20)
    assert sent < 64 << 20


async def test_headers_without_end_are_given_up() -> None:
    """They are kept in memory until they end, so they have a bound."""
    async with _raw(b"HTTP/1.1 200 OK\r\n" + b"x-filler: " + b"y" * (1 << 20), then_hang=True) as port:
        with pytest.raises(NoAnswerError, match="answered no HTTP"):
            await fetch(f"http://127.0.0.1:{port}/", allow_private=True)


@pytest.mark.parametrize(
    "reply", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", b"\x1b]0;evil\x07\r\n\r\n"]
)
async def test_what_is_no_whole_http_is_an_error_without_the_servers_words(reply: bytes) -> None:
    """A foreign answer reaches no terminal."""
    async with _raw(reply) as port:
        with pytest.raises(NoAnswerError) as failed:
            await fetch(f"http://127.0.0.1:{port}/secret-path", allow_private=True)

    assert str(failed.value).isprintable()
    assert not {"OpenSSH", "evil", "secret-path"} & set(str(failed.value).replace("/", " ").split())


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 5])
async def test_a_server_that_never_ends_its_answer_is_left(reply: bytes) -> None:
    """Within the time for the whole."""
    began = time.monotonic()
    async with _raw(reply, then_hang=True) as port:
        with pytest.raises(NoAnswerError, match="no whole answer within"):
            await fetch(f"http://127.0.0.1:{port}/", allow_private=True, timeout=0.3)

    assert time.monotonic() - began < 5


async def test_nobody_there_means_that_nothing_was_sent(server: Hook) -> None:
    """A port has no listener, or a name has no address."""
    with hook() as gone:
        url = gone.url
    with pytest.raises(UnreachableHostError, match=r"cannot be reached \(Connection refused\)"):
        await fetch(url, allow_private=True)
    with pytest.raises(UnreachableHostError, match="has no address"):
        await fetch("http://no-such-name.invalid/")
    await check("http://no-such-name.invalid/")


async def _secure(server: Hook, name: str, authority: Authority | None) -> Response:
    tls = ssl.create_default_context(cafile=str(authority.file) if authority else None)
    return await fetch(f"https://{name}:{server.port}/", allow_private=True, resolve=Resolver(["127.0.0.1"]), tls=tls)


async def test_tls_is_for_the_name_and_is_verified(authority: Authority, tmp_path: Path) -> None:
    """The name that the URL has, at the address that was looked up; another name, a stranger or an old certificate ends it."""
    with hook(tls=authority.issue("hooks.example")) as server:
        assert 204 == (await _secure(server, "hooks.example", authority)).status
        assert f"hooks.example:{server.port}" == server.next().headers["host"]
        for name, trusted in (("other.example", authority), ("hooks.example", None), ("hooks.example", Authority(tmp_path))):
            with pytest.raises(UnreachableHostError, match="its certificate is not trusted"):
                await _secure(server, name, trusted)
        assert server.got.empty()
    with hook(tls=authority.issue("hooks.example", expired=True)) as server:
        with pytest.raises(UnreachableHostError, match="certificate has expired"):
            await _secure(server, "hooks.example", authority)
        assert server.got.empty()


@pytest.mark.parametrize(
    ("method", "headers"),
    [("GET\r\nX: y", {}), ("GET", {"x": "a\r\nb: c"}), ("GET", {"x y": "z"}), ("GET", {"x": "\u20ac"}), ("CONNECT", {})],
)
async def test_nothing_can_be_smuggled_into_a_request(server: Hook, method: str, headers: dict[str, str]) -> None:
    """Neither lines nor a tunnel."""
    with pytest.raises(UrlError, match="method"):
        await fetch(server.url, method=method, headers=headers, allow_private=True)

    assert server.got.empty()


async def test_own_headers_stay_own(server: Hook) -> None:
    """A caller's Host would lead elsewhere behind the same address."""
    await fetch(server.url, headers={"Host": "inside", "Content-Length": "9", "User-Agent": "mine"}, allow_private=True)

    got = server.next()
    assert (f"127.0.0.1:{server.port}", "0", "mine") == tuple(got.headers[name] for name in ("host", "content-length", "user-agent"))
