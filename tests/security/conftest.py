"""Servers with TLS and an authority of their own, for connections that others would like to read; several outboxes of one server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from relay import devservers
from relay.devservers.rabbitmq import Certificates
from tests.support.network.network_namespace import ADDRESS
from tests.support.servers.certificates import Authority, TlsPostgres
from tests.support.servers.named_outboxes import Outbox, named_outboxes
from tests.support.servers.shared import Databases, Say

MUTUAL = """
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = EXTERNAL
"""
"""A certificate is asked for, and is login enough."""


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who vouches for servers and clients."""
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that no server or client trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="session")
def tls_postgres(say: Say, authority: Authority) -> Iterator[TlsPostgres]:
    """A private PostgreSQL with TLS, for the name localhost."""
    with devservers.postgres(say=say, private=True) as server:
        yield TlsPostgres(server, authority)


@pytest.fixture(scope="session")
def shown_by_broker(authority: Authority) -> Certificates:
    """The broker's files; what is written into them it shows from then on, when its cache is cleared."""
    return authority.issue("localhost", ADDRESS)


@pytest.fixture(scope="session")
def tls_broker(say: Say, shown_by_broker: Certificates) -> Iterator[devservers.RabbitMQ]:
    """A private RabbitMQ whose TLS listener, for the name localhost, asks for a certificate of the authority."""
    plugins = ["rabbitmq_auth_mechanism_ssl"]
    with devservers.rabbitmq(say=say, private=True, config=MUTUAL, plugins=plugins, tls=shown_by_broker) as node:
        yield node


@pytest.fixture
def outbox(databases: Databases) -> Iterator[Outbox]:
    """Makes an outbox in a database of a name, and drops it with its roles in the end."""
    with named_outboxes(databases) as make:
        yield make


@pytest.fixture
def pair(outbox: Outbox, unique: str) -> tuple[str, str]:
    """URLs of two outboxes in two databases."""
    return outbox(unique), outbox(f"{unique}2")
