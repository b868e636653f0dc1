"""The examples of docs/client.md run as they stand there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests import ROOT
from tests.support.applications.libraries import django_on, sqlalchemy_url
from tests.support.pages.docs import text_of

PAGE = ROOT / "docs" / "client.md"


@pytest.fixture
def names(database_url: str) -> Iterator[dict[str, Any]]:
    """What an example may take for granted."""
    with psycopg.connect(database_url, autocommit=True) as other:
        other.execute("CREATE TABLE invoice (id int, paid boolean)")
    url = sqlalchemy_url(database_url, "psycopg").render_as_string(hide_password=False)
    with django_on(database_url):
        yield {"DATABASE_URL": database_url, "SQLALCHEMY_URL": url, "psycopg": psycopg, "__name__": "example"}


def _example(heading: str, language: str = "python") -> str:
    section = re.split(r"^## ", text_of(PAGE), flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(f"{heading}\n")]
    return re.sub("^ {3}", "", text.partition(f"```{language}\n")[2].partition("```")[0], flags=re.MULTILINE if language == "sql" else 0)


def _waiting(url: str) -> list[str]:
    with psycopg.connect(url) as other:
        return [content for (content,) in other.execute("SELECT content::text FROM queue_message ORDER BY xid, seq")]


@pytest.mark.ids("A38")
@pytest.mark.parametrize(
    ("heading", "waiting"),
    [
        ("psycopg", ['{"invoice": 7}', "0", "1", "2"]),
        ("Models", [f'{{"country": "at", "invoice": {number}, "customer": "c-7"}}' for number in (7, 8)]),
        ("Delays", ['{"invoice": 7}']),
        ("Keys", ['{"order": 7}']),
        ("SQLAlchemy", ['{"invoice": 9}']),
        ("Django", ['{"invoice": 10}']),
        ("COPY", [f'{{"customer": {number}}}' for number in range(10_000)]),
    ],
)
def test_an_example_of_the_page_runs(names: dict[str, Any], heading: str, waiting: list[str]) -> None:
    """And leaves in the queue what it says."""
    exec(compile(_example(heading), str(PAGE), "exec"), names)  # noqa: S102 - our own page

    assert waiting == _waiting(names["DATABASE_URL"])
    if "engine" in names:
        names["engine"].dispose()


def test_the_example_of_asyncpg_runs(names: dict[str, Any]) -> None:
    """Its function is the application's to call."""
    exec(compile(_example("asyncpg"), str(PAGE), "exec"), names)  # noqa: S102 - our own page
    asyncio.run(names["pay"]())

    assert ['{"invoice": 11}'] == _waiting(names["DATABASE_URL"])


def test_the_example_of_traces_runs(database_url: str) -> None:
    """In psql, or any other client."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_example("Traces", "sql").encode())
        [(headers,)] = connection.execute("SELECT options -> 'headers' FROM queue_message").fetchall()

    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert {"traceparent": parent, "tracestate": "rojo=00f067aa0ba902b7"} == headers
