"""Ctrl-C where a job is called from Python, as in a notebook: no command line handles the signal, and the process continues."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from relay.devservers.process import poll
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.replay import job as replay
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.database import NAME, Database
from relay.pipeline.verify import job as verify
from tests.pipeline.conftest import Archived
from tests.support.lake.exporting import export

WAITS = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()"
LEDGER = "SELECT count(*) FROM queue_message_replay_ledger"
PROMPT = 5.0
"""Seconds; a busy machine needs some."""


@pytest.fixture(autouse=True)
def _python() -> Iterator[None]:
    """The handler that Python has by itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def messages(lake: Lake, database: Database, archived: Archived) -> Lake:
    """Twenty messages in the lake, some of them dead."""
    archived(*({"result": "failed" if number % 4 == 0 else "success"} for number in range(20)))
    export(lake, database)
    return lake


@contextmanager
def interrupted(url: str, table: str, *, first: str | None = None) -> Iterator[list[float]]:
    """Ctrl-C as soon as a job waits for a lock on a table, which is taken now, or once a count is more than nothing.

    Yields when that was.
    """
    at: list[float] = []
    with psycopg.connect(url, autocommit=True) as watch, psycopg.connect(url) as holder:

        def lock() -> None:
            holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())

        def interrupt() -> None:
            if first:
                assert poll(lambda: watch.execute(first.encode()).fetchone() != (0,), seconds=60)
                lock()
            assert poll(lambda: watch.execute(WAITS.encode()).fetchone() != (0,), seconds=60)
            at.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        if first is None:
            lock()
        thread = threading.Thread(target=interrupt)
        thread.start()
        yield at
        thread.join()
        assert poll(lambda: watch.execute(WAITS.encode()).fetchone() == (0,), seconds=20)


def asked(url: str, statement: str, *values: object) -> int:
    """A number."""
    with psycopg.connect(url) as connection:
        [(found,)] = connection.execute(statement.encode(), values).fetchall()
    return int(found)


def again(lake: Lake, database: Database) -> Callable[..., replay.Replayed]:
    """Replay what was published."""
    selection = Selection(result="success")
    return lambda **more: replay.run(lake=lake, database=database, say=lambda _line: None, selection=selection, job="again", **more)


def check_sessions(url: str, database: Database) -> None:
    """No session is left but the caller's own."""
    database.close()
    with psycopg.connect(url, autocommit=True) as watch:
        ours = b"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND starts_with(application_name, %s)"
        assert poll(lambda: watch.execute(ours, [NAME]).fetchone() == (0,), seconds=20)


def test_a_replay_that_waits_for_a_lock_ends_at_once(messages: Lake, database: Database, database_url: str) -> None:
    """Before anything is enqueued it is an interrupt, and the next run enqueues all."""
    run = again(messages, database)
    with interrupted(database_url, "queue_message") as at, pytest.raises(KeyboardInterrupt):
        run()

    assert time.monotonic() - at[0] < PROMPT
    assert 0 == asked(database_url, LEDGER)
    check_sessions(database_url, database)
    assert (15, 0) == ((done := run()).enqueued, done.exit_code)


def test_a_replay_reports_what_it_has_enqueued(messages: Lake, database: Database, database_url: str) -> None:
    """Its result has as many as the ledger, and the signal's exit code."""
    run = again(messages, database)
    with interrupted(database_url, "queue_message", first=LEDGER) as at:
        done = run(rate=4.0)

    assert time.monotonic() - at[0] < PROMPT
    assert (asked(database_url, LEDGER), 130) == (done.enqueued, done.exit_code)
    assert 0 < done.enqueued < 15
    assert str(done.failure).endswith(": SIGINT stopped it.")
    check_sessions(database_url, database)
    assert 15 == done.enqueued + run().enqueued


@pytest.mark.parametrize("table", ["queue_message_dead", "queue_message_archive_20240501", "queue_message_export"])
def test_a_verification_ends_at_once(messages: Lake, database: Database, database_url: str, table: str) -> None:
    """Whatever it waits for; the next one verifies."""
    with interrupted(database_url, table) as at, pytest.raises(KeyboardInterrupt):
        verify.run(lake=messages, database=database, say=lambda _line: None)

    assert time.monotonic() - at[0] < PROMPT
    check_sessions(database_url, database)
    assert 0 == verify.run(lake=messages, database=database, say=lambda _line: None).exit_code
