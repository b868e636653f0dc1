"""A small HTTP client for untrusted URLs: resolves the name once, refuses private addresses, and connects to the checked address."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import h11

from relay.errors import RelayError
from relay.net.ip_policy import Address, first_refused, is_odd_number, why_refused

AGENT = "outbox-relay"
MAX_URL = 8192
PORTS = {"http": 80, "https": 443}
_MAX_ADDRESSES = 4
"""Most addresses of a name that are tried; each address gets an equal share of the timeout."""
_MAX_HEAD = 64 << 10
"""Bytes of a response's status line and headers."""
_CHUNK = 64 << 10
_PRINTABLE = re.compile(r"[!-~]+")

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a name and a port to addresses as text."""


class OutboundError(RelayError):
    """The request failed; the message omits the URL's path, which may contain a secret."""


class UrlError(OutboundError):
    """The URL, or an address of its name, is refused; a retry does not help."""


class UnreachableHostError(OutboundError):
    """Nothing was sent, because there was no address, no connection or no TLS. A retry may help."""


class NoAnswerError(OutboundError):
    """The request was sent, at least in part, but no complete response came in time."""


@dataclass(frozen=True)
class Response:
    """A server's response; a redirect is a normal response and is not followed."""

    status: int
    headers: Mapping[str, str]
    """Values by name in lower case; repeated values are joined by commas."""
    body: bytes
    """At most `max_bytes` bytes of the body, as sent."""
    cut: bool = False
    """Whether the body was longer than `max_bytes`."""


@dataclass(frozen=True)
class RequestTarget:
    """The parsed target of a URL."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def place(self) -> str:
        """The URL without parts that may be secret."""
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}"

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        return _bracketed(self.host) + ("" if self.port == PORTS[self.scheme] else f":{self.port}")


async def fetch(
    url: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout: float = 10.0,  # noqa: ASYNC109 - for the whole request, resolving included
    max_bytes: int = 1 << 20,
    allow_private: bool = False,
    resolve: Resolve | None = None,
    tls: ssl.SSLContext | None = None,
) -> Response:
    """Send one request over a new connection and return the response.

    The function follows no redirects, uses no proxies of the environment, and unpacks no compressed bodies.

    Args:
        url: http or https, without a login.
        method: the request's method, such as POST.
        headers: in addition to Host, Connection, Content-Length, Accept-Encoding and User-Agent; the last two may be replaced.
        body: the request's body.
        timeout: seconds for the whole call.
        max_bytes: most bytes of the response's body; the rest is cut off.
        allow_private: also allow this machine and private networks; link-local, multicast and metadata addresses are always refused.
        resolve: resolves names; by default the system's resolver.
        tls: verifies servers; by default against the system's certificate authorities.

    Raises:
        UrlError: the URL or an address of its name is refused; nothing was sent.
        UnreachableHostError: no connection; nothing was sent.
        NoAnswerError: the server may have received the request.
    """
    target = parse(url, allow_private=allow_private)
    request = _request(target, method, headers or {}, body)
    connected = False
    try:
        async with asyncio.timeout(timeout):
            addresses = await resolved(target, allow_private=allow_private, resolve=resolve)
            reader, writer = await _connect(target, addresses, timeout, tls)
            connected = True
            return await _exchange(reader, writer, request, method, max_bytes)
    except TimeoutError as error:
        if connected:
            raise NoAnswerError(f"{target.place} gave no whole answer within {timeout:g} s.") from error
        raise UnreachableHostError(f"{target.place} cannot be reached (no connection within {timeout:g} s).") from error
    except (OSError, EOFError, h11.ProtocolError) as error:
        raise NoAnswerError(f"{target.place} broke off or answered no HTTP ({_reason(error)}).") from error


def parse(url: str, *, allow_private: bool = False) -> RequestTarget:
    """The target of a URL.

    Raises:
        UrlError: the URL is invalid, or it names an address that is refused.
    """
    parts, port = _split(url)
    host = (parts.hostname or "").rstrip(".")
    if parts.scheme not in PORTS:
        raise UrlError("The URL must begin with https:// or http://.")
    if "@" in parts.netloc:
        raise UrlError("The URL must hold no user and no password: if headers can be given, send them in a header.")
    if not host or "%" in host or port == 0:
        raise UrlError("The URL must name a host, and a port from 1 to 65535 if any.")
    if is_odd_number(host):
        raise UrlError("The URL's host must be a name or an address in its usual form, such as 192.0.2.1.")
    if (address := _literal(host)) and (why := why_refused(address, allow_private=allow_private)):
        raise _refused(f"The URL names {why}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return RequestTarget(parts.scheme, host, port or PORTS[parts.scheme], path)


async def check(url: str, *, allow_private: bool = False) -> RequestTarget:
    """The target of a URL, whose addresses are checked too if its name has an address now.

    Raises:
        UrlError: `fetch` would refuse the URL now.
    """
    target = parse(url, allow_private=allow_private)
    with suppress(UnreachableHostError):
        await resolved(target, allow_private=allow_private)
    return target


async def resolved(target: RequestTarget, *, allow_private: bool, resolve: Resolve | None = None) -> list[Address]:
    """The addresses of a target's host, all of them allowed; raises the errors of `fetch`."""
    try:
        found = [target.host] if _literal(target.host) else await (resolve or _resolve)(target.host, target.port)
        addresses = [ipaddress.ip_address(each) for each in dict.fromkeys(found)]
    except (OSError, ValueError) as error:
        raise UnreachableHostError(f"The host of {target.place} has no address ({_reason(error)}).") from error
    if why := first_refused(addresses, allow_private=allow_private):
        raise _refused(f"{target.place} leads to {why}")
    return addresses[:_MAX_ADDRESSES]


def _split(url: str) -> tuple[SplitResult, int | None]:
    # Parsers disagree on blanks, control characters, non-ASCII characters and backslashes, so a URL must not contain them.
    if len(url) > MAX_URL or not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise UrlError(f"The URL must be of 1 to {MAX_URL} printable ASCII characters: percent-encode others, and write names as xn--.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UrlError("The URL must name a host, and a port from 1 to 65535 if any.") from error
    return parts, port


def _refused(why: str) -> UrlError:
    return UrlError(f"{why}: no request goes there{' unless private addresses are allowed' if 'the private' in why else ''}.")


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def _connect(
    target: RequestTarget, addresses: Sequence[Address], seconds: float, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the first address that answers; only TLS uses the host's name."""
    secure = (tls or ssl.create_default_context()) if target.scheme == "https" else None
    failure: Exception = OSError("no address")
    for address in addresses:
        try:
            async with asyncio.timeout(seconds / len(addresses)):
                return await asyncio.open_connection(
                    str(address), target.port, ssl=secure, server_hostname=target.host if secure else None, limit=_CHUNK
                )
        except (OSError, EOFError) as error:
            failure = error
    raise UnreachableHostError(f"{target.place} cannot be reached ({_reason(failure)}).") from failure


def _request(target: RequestTarget, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """The bytes of a request."""
    given = {name.lower(): value for name, value in headers.items()}
    own = {"host": target.authority, "connection": "close", "content-length": str(len(body))}
    every = {"user-agent": AGENT, "accept-encoding": "identity", **given, **own}
    connection = h11.Connection(h11.CLIENT)
    try:
        request = h11.Request(method=method, target=target.path, headers=list(every.items()))
        events = [request, *([h11.Data(data=body)] if body else []), h11.EndOfMessage()]
        sent = [connection.send(event) for event in events]
    except (h11.LocalProtocolError, UnicodeEncodeError) as error:
        raise UrlError("The method or a header holds characters that HTTP does not allow there.") from error
    if method == "CONNECT":
        raise UrlError("The method CONNECT asks for a tunnel, which is no request.")
    return b"".join(filter(None, sent))


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, method: str, max_bytes: int) -> Response:
    """Send the request, read the response, and close the connection."""
    try:
        writer.write(request)
        return await _read_response(reader, method, max_bytes)
    finally:
        writer.transport.abort()


async def _read_response(reader: asyncio.StreamReader, method: str, max_bytes: int) -> Response:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
    # The end of a response depends on the request: a response to HEAD has no body.
    connection.send(h11.Request(method=method, target="/", headers=[("host", "-"), ("connection", "close")]))
    connection.send(h11.EndOfMessage())
    head: h11.Response | None = None
    received = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Response):
            head = event
        elif isinstance(event, h11.Data):
            received += event.data
        if head and (len(received) > max_bytes or isinstance(event, h11.EndOfMessage)):
            return Response(head.status_code, _joined_headers(head), bytes(received[:max_bytes]), cut=len(received) > max_bytes)


def _joined_headers(response: h11.Response) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in response.headers:
        key, text = name.decode("ascii"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reason(error: Exception) -> str:
    """The reason, in the library's or the system's words; never a part of a server's response."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
