"""The service of docs/start.md runs exactly as printed there."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from tests import ROOT
from tests.support.applications.libraries import sqlalchemy_url
from tests.support.pages.docs import text_of

PAGE = ROOT / "docs" / "start.md"
URL = '"postgresql+psycopg://owner:owner@localhost:18432/outbox"'


@pytest.fixture
def service(database_url: str) -> dict[str, Any]:
    """The names of the page's module, on a database of the test's own."""
    program = text_of(PAGE).partition("```python\n")[2].partition("```")[0]
    table = text_of(PAGE).partition('psql -U owner outbox -c "')[2].partition('"')[0]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(table.encode())
    own = sqlalchemy_url(database_url, "psycopg").render_as_string(hide_password=False)
    assert program.count(URL) == 1
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(program.replace(URL, repr(own)), str(PAGE), "exec"), names)  # noqa: S102 - our own page
    return names


REFUSED = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'refused'; END$$;
    CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()
"""
"""COMMIT fails."""


async def test_nobody_hears_of_an_order_that_is_not_committed(service: dict[str, Any], database_url: str) -> None:
    """The answer comes after the commit: where that fails, the client gets an error and no id."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(REFUSED)
    transport = httpx.ASGITransport(app=service["app"], raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answer = await client.post("/orders/7")
    await service["engine"].dispose()

    assert 500 == answer.status_code
    with psycopg.connect(database_url) as connection:
        assert [(0,)] == connection.execute("SELECT count(*) FROM queue_message").fetchall()


async def test_an_order_and_its_message_commit_together(service: dict[str, Any], database_url: str) -> None:
    """The answer is the message's id; a request that fails leaves neither."""
    transport = httpx.ASGITransport(app=service["app"], raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        done = await client.post("/orders/7")
        service["Message"] = None
        failed = await client.post("/orders/8")
    await service["engine"].dispose()

    assert (200, 500) == (done.status_code, failed.status_code)
    with psycopg.connect(database_url) as connection:
        assert [(7,)] == connection.execute("SELECT number FROM orders").fetchall()
        messages = connection.execute("SELECT id::text, exchange, content::text FROM queue_message").fetchall()
    assert [(done.json(), "shop", '{"order": 7}')] == messages
