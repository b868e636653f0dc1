"""Figures for metrics that the relay asks of PostgreSQL in addition to the view of the queue."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.database.queue import MadeStore, MakeStore, Queue, until
from tests.support.servers.logins import login

AGE = "oldest_transaction_seconds"
Connection = psycopg.AsyncConnection[Any]


async def age(store: MadeStore) -> float | None:
    """Of the oldest transaction that keeps vacuum off, as the relay's role sees it."""
    [(status,)] = await store.run("read_gauges")
    value: float | None = status[AGE]
    return value


async def begin(connection: Connection, what: str) -> None:
    """Begin a transaction that reads on, one that writes, one that is prepared, or one that does nothing."""
    if what == "reads":
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.execute("SELECT 1")
    elif what == "rests":
        await connection.execute("SELECT 1")
    else:
        await connection.execute("SET LOCAL relay.notify = 'off'")
        await connection.execute("INSERT INTO queue_message (exchange) VALUES ('orders')")


@pytest.mark.parametrize(("what", "counts"), [("reads", True), ("writes", True), ("prepared", True), ("rests", False)])
async def test_the_oldest_transaction_that_keeps_vacuum_off_has_an_age(queue: Queue, store: MadeStore, what: str, *, counts: bool) -> None:
    """0 while there is none; one that is open between two statements and holds no snapshot keeps nothing off."""
    assert 0 == await age(store)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await begin(other, what)
        if what == "prepared":
            await other.execute("PREPARE TRANSACTION 'prepared'")
        try:
            assert counts == ((await age(store) or 0) > 0)
        finally:
            await other.rollback()
            if what == "prepared":
                await queue.sql("ROLLBACK PREPARED 'prepared'")
    assert 0 == await age(store)


HELD = """
    CREATE TABLE held (number int) WITH (autovacuum_analyze_threshold = 0, autovacuum_analyze_scale_factor = 0);
    CREATE FUNCTION hold(number int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        IF current_setting('application_name') = '' THEN PERFORM pg_sleep(600); END IF;
        RETURN number;
    END $$;
    CREATE INDEX ON held (hold(number));
    INSERT INTO held SELECT generate_series(1, 10)
"""
"""A table that autovacuum analyzes at once, with a function that never ends there."""
END_ANALYZES = "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_analyze"


async def test_an_analyze_of_autovacuum_that_runs_on_has_an_age(queue: Queue, make_store: MakeStore) -> None:
    """It runs functions of the table's owner, who may be any login, and keeps vacuum off the queue meanwhile."""
    await queue.sql("SET application_name = 'test'")
    await queue.sql("ALTER SYSTEM SET autovacuum_naptime = '1s'")
    await queue.sql("SELECT pg_reload_conf()")
    store = make_store()
    try:
        await queue.sql(HELD)
        await until(lambda: grows(store))
        [transactions] = await store.run("read_transactions")
        assert transactions[4] > 1
    finally:
        await queue.sql("ALTER SYSTEM RESET autovacuum_naptime")
        await queue.sql("SELECT pg_reload_conf()")
        await queue.sql(END_ANALYZES)


async def grows(store: MadeStore) -> bool:
    """There is such a transaction, for more than a second."""
    return (await age(store) or 0) > 1


async def test_a_role_that_may_not_see_other_sessions_has_no_such_figure(queue: Queue, make_store: MakeStore) -> None:
    """None rather than 0, which would be read as none open; nor the age of what it does see, its own."""
    with login(queue.url, "queue_message_relay") as url, login(queue.url, "queue_message_relay", "pg_read_all_stats") as seeing:
        async with await psycopg.AsyncConnection.connect(queue.url) as other:
            await begin(other, "writes")
            blind, sighted = make_store("blind", url=url), make_store("sighted", url=seeing)
            assert await age(blind) is None
            async with await psycopg.AsyncConnection.connect(url) as own:
                await own.execute("SELECT pg_current_xact_id()")
                assert await age(blind) is None
                [hidden] = await blind.run("read_transactions")
                [shown] = await sighted.run("read_transactions")
                assert (2, 0, 1, None, None) == hidden
                assert (2, 0, 0) == shown[:3]
                assert shown[3] == shown[4] > 0
            assert await age(sighted)
            await blind.aclose()
            await sighted.aclose()
