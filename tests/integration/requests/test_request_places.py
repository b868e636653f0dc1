"""Which message answers a request: the request's own and its replays, whatever id others choose and wherever it is moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from relay.message import SUCCESS, Archive, Result
from relay.postgres.schema.migrate import migrate
from tests.support.database.foreign import renumber
from tests.support.database.keyed import fold
from tests.support.database.older_schema import migrate_until
from tests.support.database.queue import MadeStore, MakeStore, Queue
from tests.support.database.requests import NO_ANSWER, answered, asked, row, settled
from tests.support.servers.logins import login

PLACES = 32
"""The migration that binds answers to places."""
TABLE = "CREATE TABLE page (id int PRIMARY KEY, url text, seen jsonb, loud text, note text, at timestamptz, code int, error text)"
REQUEST = "SELECT queue_message_request('page', '{at,code}', error => 'error')"
FORGED = "INSERT INTO queue_message (id, exchange, content, options) VALUES (%s, 'public.page', '{\"url\": \"evil\"}', %s)"
HEADERS = '{"headers": {"x-relay-request": "public.page"}}'
REASON = {**NO_ANSWER, "error": "handler_failed: x"}


@pytest.fixture
async def table(inbox_queue: Queue) -> Queue:
    """A table of requests."""
    await inbox_queue.sql(TABLE)
    await inbox_queue.sql(REQUEST)
    return inbox_queue


@pytest.fixture
async def other(table: Queue) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """Another connection, not in autocommit."""
    async with await psycopg.AsyncConnection.connect(table.url) as connection:
        yield connection


@pytest.fixture
async def forged(table: Queue, store: MadeStore) -> str:
    """The id of a request that died, under which a producer has inserted a message of its own."""
    id_ = await asked(table)
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    with login(table.url, "queue_message_producer") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as producer:
            await producer.execute(FORGED.encode(), (id_, HEADERS))
    return id_


async def test_a_message_with_the_id_of_a_dead_request_does_not_answer_it(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any], forged: str
) -> None:
    """Whatever a producer calls its message, it is no request; its own success and retention change nothing of the request."""
    batch = await store.batch()
    assert [forged] == [claim.id for claim in batch.claims]
    assert "request_missing" == await answered(other, batch, {"code": 666})
    await settled(store, batch, SUCCESS)

    assert REASON == await row(table)
    assert 1 == await table.value("SELECT count(*) FROM queue_message_request_row")


@pytest.mark.usefixtures("forged")
async def test_a_message_with_the_id_of_a_dead_request_leaves_its_reason(table: Queue, store: MadeStore) -> None:
    """It dies of something else, and the row says still of what the request died."""
    await settled(store, await store.batch(), Archive(Result.REJECTED, "evil", "x"))

    assert REASON == await row(table)


async def test_a_replay_of_what_took_the_id_of_a_request_answers_nothing(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any], forged: str
) -> None:
    """An operator replays the newest of an id; only what says what the request said answers its row."""
    await settled(store, await store.batch(), Archive(Result.REJECTED, "evil", "x"))
    for same_id in (False, True):
        await table.sql(
            "SELECT queue_message_replay_at(id, xid, seq, %s) FROM queue_message_archive WHERE id = %s ORDER BY archived_at DESC LIMIT 1",
            same_id, forged,
        )  # fmt: skip
        batch = await store.batch(limit=1)
        assert "request_missing" == await answered(other, batch, {"code": 666})
        await settled(store, batch, Archive(Result.REJECTED, "evil", "x"))

    assert REASON == await row(table)


async def test_what_a_fold_sends_with_a_new_id_answers_no_request(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]
) -> None:
    """A producer that knows id and words of a dead request has a message with both sent with a new id: it is no replay."""
    id_ = await asked(table)
    [(exchange, content, options)] = await table.sql("SELECT exchange, content::text, options::text FROM queue_message")
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    with login(table.url, "queue_message_producer") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as producer:
            await producer.execute("INSERT INTO queue_message (id, exchange) VALUES (%s, 'e')", (id_,))
            await producer.execute(
                "INSERT INTO queue_message_keyed (id, exchange, content, options, coalesce_key) VALUES (%s, %s, %s, %s, 'k')",
                (id_, exchange, content, options),
            )
    await fold(table)
    await table.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'success', NULL, NULL, 'relay-1')", id_)

    batch = await store.batch()

    assert [exchange] == [claim.exchange for claim in batch.claims]
    assert "request_missing" == await answered(other, batch, {"code": 666})
    assert REASON == await row(table)


@pytest.mark.parametrize(
    ("content", "code"), [('{"id": 1, "url": "u", "loud": null, "note": null, "seen": null}', None), ("{}", "request_missing")]
)
async def test_a_replay_from_outside_answers_with_the_words_of_the_request_alone(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any], content: str, code: str | None
) -> None:
    """Who replays from the lake says what the message was, and whose."""
    id_ = await asked(table)
    [(xid, seq, exchange, options)] = await table.sql("SELECT xid::text, seq, exchange, options::text FROM queue_message")
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    with login(table.url, "queue_message_replayer") as url:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as replayer:
            await replayer.execute(
                b"SELECT queue_message_replay_rows('job', ARRAY[%s::xid8], ARRAY[%s::bigint], ARRAY[%s::uuid], ARRAY[%s], ARRAY[''],"
                b" ARRAY[%s], ARRAY[NULL::bytea], ARRAY[%s], ARRAY[NULL::text], ARRAY[NULL::timestamptz])",
                (xid, seq, id_, exchange, content, options),
            )

    assert code == await answered(other, await store.batch(), {"code": 200})


@pytest.mark.parametrize("traced", ["the request", "the replay"])
async def test_a_trace_keeps_no_replay_from_its_answer(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any], traced: str
) -> None:
    """The options contain the trace of the inserting session, which says nothing about the request."""
    trace = "SELECT set_config('relay.traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', false)"
    if traced == "the request":
        await table.sql(trace)
    id_ = await asked(table)
    await table.sql("RESET relay.traceparent" if traced == "the request" else trace)
    await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
    await table.sql("SELECT queue_message_replay(%s)", id_)

    assert None is await answered(other, await store.batch(), {"code": 200})


async def test_a_replay_with_the_same_id_answers_its_row(table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]) -> None:
    """As often as it dies again; what the earlier ones were is dropped by retention without an effect."""
    id_ = await asked(table)
    for _ in range(2):
        await settled(store, await store.batch(), Archive(Result.FAILED, "handler_failed", "x"))
        await table.sql("SELECT queue_message_replay(%s, true)", id_)
    await table.sql("SELECT queue_message_retain(now() + interval '10 years')")

    assert None is await answered(other, await store.batch(), {"code": 200})
    assert {**NO_ANSWER, "code": 200} == await row(table)
    assert 0 == await table.value("SELECT count(*) FROM queue_message_request_row")


async def test_a_request_of_another_cluster_is_answered_after_it_was_renumbered(
    table: Queue, store: MadeStore, other: psycopg.AsyncConnection[Any]
) -> None:
    """A restored dump brings positions that change."""
    await asked(table)
    await table.sql("ALTER TABLE queue_message DISABLE TRIGGER USER")
    await table.sql("UPDATE queue_message SET xid = '99999999999'")
    await table.sql("ALTER TABLE queue_message ENABLE TRIGGER USER")
    await table.sql(
        "DO $$ BEGIN UPDATE queue_message_request_row SET xid = '99999999999'; EXCEPTION WHEN undefined_column THEN NULL; END $$"
    )
    assert 1 == await renumber(table)

    assert None is await answered(other, await store.batch(), {"code": 200})


async def test_requests_that_were_there_before_an_upgrade_are_answered(
    empty_database_url: str, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits, and what died and is replayed after it; neither is answered by a message that took its id."""
    migrate_until(empty_database_url, PLACES - 1, monkeypatch, seed={"direction": "inbox"})
    async with (
        await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection,
        await psycopg.AsyncConnection.connect(empty_database_url) as answering,
    ):
        queue = Queue(empty_database_url, connection)
        await queue.sql(TABLE)
        await queue.sql(REQUEST)
        dead = await asked(queue)
        await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'handler_failed', 'x', 'r')", dead)
        await asked(queue, 2)
        migrate(empty_database_url)
        await queue.sql(FORGED, dead, HEADERS)
        store = make_store("after", url=empty_database_url)
        await store.register()
        codes = [await answered(answering, await store.batch(limit=1), {"code": number}) for number in (1, 2)]
        await queue.sql("DELETE FROM queue_message")
        await queue.sql("SELECT queue_message_replay(%s)", dead)
        codes.append(await answered(answering, await store.batch(limit=1), {"code": 3}))
        assert [None, "request_missing", None] == codes
        assert [3, 1] == [(await row(queue, number))["code"] for number in (1, 2)]
