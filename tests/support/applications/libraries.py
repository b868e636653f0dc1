"""SQLAlchemy and Django on a test's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import django
import sqlalchemy
from django.conf import settings
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

ALIASES = ("default", "other", "lite")


def sqlalchemy_url(url: str, driver: str) -> sqlalchemy.URL:
    """The same database by one of SQLAlchemy's drivers."""
    parts = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    return sqlalchemy.URL.create(
        f"postgresql+{driver}", parts.get("user"), parts.get("password"), parts["host"], int(parts["port"]), parts["dbname"]
    )


@contextmanager
def django_on(url: str) -> Iterator[None]:
    """Let `default` and `other` be this database for Django, and `lite` one of SQLite's."""
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    parts = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    database = {"ENGINE": "django.db.backends.postgresql", **{name: parts.get(key) or "" for name, key in names.items()}}
    lite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    connections.settings = connections.configure_settings({"default": database, "other": dict(database), "lite": lite})
    try:
        yield
    finally:
        connections.close_all()
        for alias in ALIASES:
            if hasattr(connections._connections, alias):
                del connections[alias]
