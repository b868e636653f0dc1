"""An AMQP URL with several hosts, as in libpq: all hosts share one login, one vhost and one set of options. No I/O."""

from __future__ import annotations

import re

_PARTS = re.compile(r"(?P<scheme>\w+://)(?P<netloc>[^/?#]*)(?P<rest>.*)", re.DOTALL)


def each_host(url: str) -> list[str]:
    """The URL of each host, in the order of connection attempts; a URL with one host, or an invalid one, is returned unchanged.

    `amqp://user:password@mq1,mq2:5673/vhost` becomes `amqp://user:password@mq1/vhost` and `amqp://user:password@mq2:5673/vhost`.
    """
    parts = _PARTS.fullmatch(url)
    if parts is None:
        return [url]
    # The login ends at the last @, so a comma in a password does not separate hosts.
    login, at, hosts = parts["netloc"].rpartition("@")
    return [f"{parts['scheme']}{login}{at}{host.strip()}{parts['rest']}" for host in hosts.split(",")]
