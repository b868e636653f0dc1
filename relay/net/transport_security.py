"""Security of connections: options of a URL that weaken security, and risks of an open connection. This module opens no connection."""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from yarl import URL

AMQP_TLS_OPTIONS = ("cafile", "capath", "cadata", "certfile", "keyfile", "no_verify_ssl")
AMQP_OPTIONS = (*AMQP_TLS_OPTIONS, "auth", "heartbeat")
"""Options of an AMQP URL. All other options are refused, because the library uses some of them and ignores the rest."""
_HEARTBEATS = range(65_535)
"""Allowed seconds of a heartbeat; the library reads any other value as 0, which turns the heartbeat off."""
_WEAK_VALUES: Mapping[str, frozenset[str]] = {
    "sslmode": frozenset({"disable", "allow"}),
    "channel_binding": frozenset({"disable"}),
    "ssl_min_protocol_version": frozenset({"TLSv1", "TLSv1.1"}),
}
"""Values that are weaker than libpq's defaults ("Parameter Key Words")."""


def is_here(host: str) -> bool:
    """Whether a connection to this host stays on this machine: a socket path, a loopback address, or `localhost`.

    The zone of an address (`fe80::1%eth0`) is ignored.
    """
    if host == "localhost" or host.startswith(("/", "@")):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def in_brackets(host: str | None) -> str:
    """A host as written before a port; an IPv6 address is in brackets."""
    return f"[{host}]" if host and ":" in host and not host.startswith(("/", "@")) else host or ""


def weakens(url: str) -> str | None:
    """The option of a valid AMQP URL or conninfo that weakens security; None if there is no such option."""
    return _weakens_amqp(url) if _is_amqp(url) else _weakens_postgres(url)


def _weakens_postgres(conninfo: str) -> str | None:
    """The option that weakens a conninfo; always None if every host is on this machine. Names are not resolved."""
    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    hosts = _hosts({**_defaults(parts.get("service")), **parts})
    if all(is_here(host) for host in hosts if host):
        return None
    return next((f"{name}={parts[name]}" for name, values in _WEAK_VALUES.items() if parts.get(name) in values), None)


def _hosts(parts: Mapping[str, str]) -> list[str]:
    """Each host that libpq would connect to, as an address if `hostaddr` gives one; empty for the default socket."""
    hosts, addresses = parts.get("host", "").split(","), parts.get("hostaddr", "").split(",")
    if len(hosts) != len(addresses):
        return addresses if addresses != [""] else hosts
    return [address or host for host, address in zip(hosts, addresses, strict=True)]


def _defaults(service: str | None) -> Mapping[str, str]:
    """Libpq's values for missing parameters: from `PG*`, and from the service named by the conninfo or `PGSERVICE`."""
    with _service(service):
        found = {option.keyword.decode(): option.val for option in Conninfo.get_defaults()}
    return {name: value.decode() for name in ("host", "hostaddr") if (value := found.get(name))}


@contextmanager
def _service(name: str | None) -> Iterator[None]:
    """Set `PGSERVICE`, which is the only way to ask libpq for a service's parameters."""
    before = os.environ.get("PGSERVICE")
    if name is not None:
        os.environ["PGSERVICE"] = name
    try:
        yield
    finally:
        if name is not None:
            os.environ.pop("PGSERVICE")
        if name is not None and before is not None:
            os.environ["PGSERVICE"] = before


def _weakens_amqp(url: str) -> str | None:
    """The option that weakens an AMQP URL, as aiormq reads the URL; None if there is no such option."""
    given = _query(url).get("no_verify_ssl", "0")
    return f"no_verify_ssl={given}" if given != "0" else None


def wrong_amqp_option(url: str) -> str | None:
    """A sentence about an unknown or impossible option of an AMQP URL; None if all options are valid."""
    for name, value in _query(url).items():
        if name not in AMQP_OPTIONS:
            near = difflib.get_close_matches(name, AMQP_OPTIONS, n=1)
            return f"There is no option {name!r}: " + (
                f"did you mean {near[0]}?" if near else f"remove it (there are {', '.join(AMQP_OPTIONS)})."
            )
        if url.lower().startswith("amqp:") and (name in AMQP_TLS_OPTIONS or value.lower() == "external"):
            return f"The option {name} is for TLS, and amqp:// has none: write amqps://."
        if name == "heartbeat" and not (value.isdecimal() and int(value) in _HEARTBEATS):
            return f"The option heartbeat must be a whole number of seconds from 0 to {_HEARTBEATS[-1]}."
        if name == "auth" and value.lower() not in {"plain", "external"}:
            return "The option auth must be plain or external."
    return None


def _is_amqp(url: str) -> bool:
    return url.lower().startswith(("amqp:", "amqps:"))


def _query(url: str) -> Mapping[str, str]:
    """The options of a URL, the first value of each name. The URL may have any text in place of the host."""
    return URL(f"amqp://host/?{url.partition('?')[2].partition('#')[0]}").query


def postgres_risk(*, host: str, address: str, encrypted: bool, sslmode: str) -> str | None:
    """The risk of an open connection to PostgreSQL, as a sentence; None on this machine and with sslmode=verify-full.

    Args:
        host: the host in the connection string; may be a socket path.
        address: the connected IP address; empty for a socket.
        encrypted: whether TLS is in use.
        sslmode: the `sslmode` in the connection string.

    """
    if is_here(address or host) or (encrypted and sslmode == "verify-full"):
        return None
    host = in_brackets(host)
    advice = "write sslmode=verify-full and sslrootcert=... into its URL."
    if encrypted:
        return f"The connection to PostgreSQL at {host} does not check that it is {host} that answers (sslmode={sslmode}): {advice}"
    return f"The connection to PostgreSQL at {host} is without TLS, so password and messages can be read on their way: {advice}"


def broker_risk(url: URL, *, address: str) -> str | None:
    """The risk of an open connection to the broker, as a sentence; None for verified TLS, and on this machine."""
    host = in_brackets(url.host)
    if url.scheme == "amqps":
        if _weakens_amqp(str(url)) is None:
            return None
        why = f"Any server that answers at {host} is taken for the broker (no_verify_ssl)"
        return f"{why}: name its CA in the URL (?cafile=/path/ca.pem) instead."
    if is_here(address):
        return None
    return f"The connection to the broker at {host} is without TLS, so password and messages can be read on their way: write amqps://."
