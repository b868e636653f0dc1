"""PostgreSQL and RabbitMQ for the demo and the tests, on any machine, without touching the user's own servers.

Of the user's own servers only those of TEST_DATABASE_URL and TEST_AMQP_URL are used. Private servers listen on free loopback ports, keep
everything in a folder of their own below /tmp, and end with this process, however it ends.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, overload

from relay.devservers.borrowed import BorrowedPostgres, BorrowedRabbitMQ
from relay.devservers.find import find_postgres, find_rabbitmq, version_of
from relay.devservers.postgres import Mode, Postgres
from relay.devservers.process import Say, free_ports
from relay.devservers.rabbitmq import Certificates, RabbitMQ

__all__ = ["BorrowedPostgres", "BorrowedRabbitMQ", "Certificates", "Mode", "Postgres", "RabbitMQ", "free_ports", "postgres", "rabbitmq"]


@overload
def postgres(*, say: Say, settings: Sequence[str] = (), fsync: bool = False, private: Literal[True]) -> Postgres: ...


@overload
def postgres(*, say: Say, settings: Sequence[str] = (), fsync: bool = False, private: bool = False) -> Postgres | BorrowedPostgres: ...


def postgres(*, say: Say, settings: Sequence[str] = (), fsync: bool = False, private: bool = False) -> Postgres | BorrowedPostgres:
    """Choose a PostgreSQL, and print which in one line; the server starts with `with`.

    Args:
        say: takes lines for the person who waits.
        settings: of a private server, each `name=value`.
        fsync: a private server keeps committed data even if the machine fails.
        private: use no borrowed server, because this one will be killed, stopped or starved.

    Raises:
        LocalServerError: no server is available; the message is the line to type.
    """
    lent = os.environ.get("TEST_DATABASE_URL")
    if lent and not private:
        say("postgres: the server of TEST_DATABASE_URL, in a database made for this run")
        return BorrowedPostgres(lent)
    folder = find_postgres()
    server = Postgres(folder, settings=settings, fsync=fsync)
    say(f"postgres: {version_of(folder)} of {folder}, a private server on port {server.port}")
    return server


@overload
def rabbitmq(
    *, say: Say, config: str = "", plugins: Sequence[str] = (), tls: Certificates | None = None, private: Literal[True]
) -> RabbitMQ: ...


@overload
def rabbitmq(
    *, say: Say, config: str = "", plugins: Sequence[str] = (), tls: Certificates | None = None, private: bool = False
) -> RabbitMQ | BorrowedRabbitMQ: ...


def rabbitmq(
    *, say: Say, config: str = "", plugins: Sequence[str] = (), tls: Certificates | None = None, private: bool = False
) -> RabbitMQ | BorrowedRabbitMQ:
    """Choose a RabbitMQ, fetch it if necessary, and print which in one line; the node starts with `with`.

    Args:
        say: takes lines for the person who waits.
        config: lines of rabbitmq.conf for a private node.
        plugins: to enable in a private node.
        tls: certificates of a private node's TLS listener.
        private: use no borrowed broker, because this one will be killed, stopped or starved.

    Raises:
        LocalServerError: no server is available; the message is the line to type.
    """
    lent = os.environ.get("TEST_AMQP_URL")
    if lent and not private:
        say("rabbitmq: the broker of TEST_AMQP_URL, in a vhost made for this run")
        return BorrowedRabbitMQ(lent)
    installation = find_rabbitmq(say=say)
    node = RabbitMQ(installation, config=config, plugins=plugins, tls=tls)
    say(f"rabbitmq: {installation.version} of {installation.scripts.parent}, a private node on port {node.port} (ready in 5 to 15 s)")
    return node
