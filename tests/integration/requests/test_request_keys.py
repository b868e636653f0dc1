"""Request rows whose keys come again: an answer lands in the row that asked for it, or nowhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from relay.message import Archive, Result
from tests.support.database.queue import MadeStore, Queue
from tests.support.database.requests import NO_ANSWER, answered, asked, row, settled

AGAIN = "INSERT INTO page (id, url) VALUES (1, 'another')"


@pytest.fixture
async def page(inbox_queue: Queue) -> Queue:
    """A table of requests."""
    await inbox_queue.sql("CREATE TABLE page (id int PRIMARY KEY, url text, at timestamptz, code int, error text)")
    await inbox_queue.sql("SELECT queue_message_request('page', '{at,code}', error => 'error')")
    return inbox_queue


@pytest.fixture
async def other(page: Queue) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Another connection, not in autocommit."""
    async with await psycopg.AsyncConnection.connect(page.url) as connection:
        yield connection


@pytest.mark.ids("C16")
@pytest.mark.parametrize("gone", ["DELETE FROM page", "TRUNCATE page"])
async def test_a_row_that_has_the_key_of_another_gets_its_own_answer(
    page: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any], gone: str
) -> None:
    """The answer to the earlier row finds no row. It does not take the place of the new row's answer."""
    await asked(page)
    first = await store.batch()
    await page.sql(gone)
    await page.sql(AGAIN)
    second = await store.batch()
    assert "request_missing" == await answered(other, first, {"code": 1})
    assert NO_ANSWER == await row(page)
    assert None is await answered(other, second, {"code": 2})
    assert {**NO_ANSWER, "code": 2} == await row(page)


@pytest.mark.ids("C16", "B13")
async def test_what_a_row_before_it_died_of_is_not_its_error(page: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]) -> None:
    """Neither when it dies, nor by a replay of it."""
    id_ = await asked(page)
    first = await store.batch()
    await page.sql("DELETE FROM page")
    await page.sql(AGAIN)
    await settled(store, first, Archive(Result.REJECTED, "page_unknown", "no such page"))
    assert NO_ANSWER == await row(page)
    await store.batch()
    await page.sql("SELECT queue_message_replay(%s)", id_)
    assert "request_missing" == await answered(other, await store.batch(limit=1), {"code": 3})
    assert NO_ANSWER == await row(page)
