"""Existing servers, given by TEST_DATABASE_URL and TEST_AMQP_URL; each run uses its own new database and vhost."""

from __future__ import annotations

import base64
import json
import secrets
import urllib.error
import urllib.parse
import urllib.request
from types import TracebackType
from typing import Self

import psycopg
from psycopg import conninfo, sql

from relay.errors import LocalServerError


def database_at(url: str, name: str) -> str:
    """Return the connection string of another database on the same server; a URL stays a URL."""
    if "://" in url:
        return urllib.parse.urlsplit(url)._replace(path=f"/{name}").geturl()
    return conninfo.make_conninfo(url, dbname=name)


class BorrowedPostgres:
    """A database on an existing server, created for the run and dropped after it."""

    def __init__(self, url: str) -> None:
        self._lent = url
        self._name = f"relay_{secrets.token_hex(6)}"

    @property
    def url(self) -> str:
        """Connection string (libpq) of the database made for the run."""
        return database_at(self._lent, self._name)

    def __enter__(self) -> Self:
        self._run("CREATE DATABASE {}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        try:
            with psycopg.connect(self._lent, autocommit=True) as connection:
                connection.execute(sql.SQL(statement).format(sql.Identifier(self._name)))
        except psycopg.Error as error:
            message = f"TEST_DATABASE_URL must name a server and a user that may create databases: {error}"
            raise LocalServerError(message) from error


class BorrowedRabbitMQ:
    """A vhost on an existing broker, created for the run and removed after it; needs the broker's management API."""

    def __init__(self, url: str) -> None:
        self._lent = urllib.parse.urlsplit(url)
        self._name = f"relay-{secrets.token_hex(6)}"

    @property
    def url(self) -> str:
        """URL (amqp) of the vhost made for the run."""
        return self._url_of(self._name)

    def add_vhost(self, name: str) -> str:
        """Make a vhost that the user of TEST_AMQP_URL may use; return its URL."""
        self._call("PUT", f"vhosts/{name}")
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self._call("PUT", f"permissions/{name}/{urllib.parse.quote(self._user, safe='')}", everything)
        return self._url_of(name)

    def delete_vhost(self, name: str) -> None:
        """Remove a vhost with everything in it."""
        self._call("DELETE", f"vhosts/{name}")

    def __enter__(self) -> Self:
        self.add_vhost(self._name)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.delete_vhost(self._name)

    @property
    def _user(self) -> str:
        return urllib.parse.unquote(self._lent.username or "guest")

    @property
    def _api(self) -> str:
        """The management API on its usual port: the AMQP port plus 10000; by default 15672, or 15671 with TLS."""
        secure = self._lent.scheme == "amqps"
        port = (self._lent.port or (5671 if secure else 5672)) + 10_000
        return f"{'https' if secure else 'http'}://{self._lent.hostname or 'localhost'}:{port}/api"

    def _url_of(self, vhost: str) -> str:
        return self._lent._replace(path=f"/{vhost}").geturl()

    def _call(self, method: str, path: str, content: object = None) -> None:
        password = urllib.parse.unquote(self._lent.password or "guest")
        token = base64.b64encode(f"{self._user}:{password}".encode()).decode()
        headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self._api}/{path}", data=body, headers=headers, method=method)  # noqa: S310 (http or https)
        try:
            # No proxy: the broker was named by the user.
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30):
                return
        except (urllib.error.URLError, OSError) as error:
            message = (
                f"TEST_AMQP_URL: no vhost can be made for the run, because the management API at {self._api} answers: {error}; "
                "type on the broker: rabbitmq-plugins enable rabbitmq_management  (or unset TEST_AMQP_URL)"
            )
            raise LocalServerError(message) from error
