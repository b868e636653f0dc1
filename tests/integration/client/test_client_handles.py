"""What the helpers are given to write on: the wrong kind is refused before any SQL, and the sentence names the right call."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import connection as django_connection
from django.db import connections
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from relay import client
from relay.client import Message
from relay.integrations import asyncpg as by_asyncpg
from relay.integrations import django as by_django
from relay.integrations import sqlalchemy as by_sqlalchemy
from tests.support.applications.libraries import django_on, sqlalchemy_url

pytestmark = pytest.mark.ids("A38")
Handles = dict[str, Any]
MESSAGE = Message(exchange="orders")
PSYCOPG, ASYNC_PSYCOPG = "relay.client.{}", "relay.client.{}_async"
SQLALCHEMY, ASYNC_SQLALCHEMY = "relay.integrations.sqlalchemy.{}", "relay.integrations.sqlalchemy.{}_async"
ASYNCPG, DJANGO = "relay.integrations.asyncpg.{}", "relay.integrations.django.{}"
RIGHT = {
    "psycopg Connection": PSYCOPG, "psycopg Cursor": PSYCOPG,
    "psycopg AsyncConnection": ASYNC_PSYCOPG, "psycopg AsyncCursor": ASYNC_PSYCOPG,
    "SQLAlchemy Session": SQLALCHEMY, "SQLAlchemy scoped_session": SQLALCHEMY, "SQLAlchemy Connection": SQLALCHEMY,
    "SQLAlchemy AsyncSession": ASYNC_SQLALCHEMY, "SQLAlchemy async_scoped_session": ASYNC_SQLALCHEMY,
    "SQLAlchemy AsyncConnection": ASYNC_SQLALCHEMY, "asyncpg Connection": ASYNCPG, "asyncpg PoolConnectionProxy": ASYNCPG,
    "alias of Django": DJANGO,
}  # fmt: skip
"""The helpers that take each handle."""
INSTEAD = {
    **{name: f"call {helper}" for name, helper in RIGHT.items()},
    "SQLAlchemy Engine": f"open a session or connection of it and call {SQLALCHEMY}",
    "SQLAlchemy sessionmaker": f"open a session with it and call {SQLALCHEMY}",
    "SQLAlchemy AsyncEngine": f"open a session or connection of it and call {ASYNC_SQLALCHEMY}",
    "SQLAlchemy async_sessionmaker": f"open a session with it and call {ASYNC_SQLALCHEMY}",
    "asyncpg Pool": f"acquire a connection from it and call {ASYNCPG}",
    "alias of Django": f"open a connection, or, for the alias of a Django database, call {DJANGO} with using=",
    "connection of Django": f"call {DJANGO} with using=connection.alias",
    "connections of Django": f"call {DJANGO} with using=connection.alias",
    "None": "pass the one whose transaction the message belongs to",
    "message": "pass the one whose transaction the message belongs to",
}
"""What the sentence tells to do with each handle."""
TAKES = {
    PSYCOPG: "a connection or cursor of psycopg",
    ASYNC_PSYCOPG: "an async connection or cursor of psycopg",
    SQLALCHEMY: "a session or connection of SQLAlchemy",
    ASYNC_SQLALCHEMY: "an async session or connection of SQLAlchemy",
    ASYNCPG: "a connection of asyncpg",
    DJANGO: "the alias of a Django database as using=",
}


def _django(helper: Callable[..., Any]) -> Callable[..., Any]:
    """Django's helpers take the handle by name, and behind the message."""
    return lambda handle, *messages: helper(*messages, using=handle)


HELPERS: dict[tuple[str, str], Callable[..., Any]] = {
    (PSYCOPG, "enqueue"): client.enqueue,
    (PSYCOPG, "enqueue_many"): client.enqueue_many,
    (PSYCOPG, "enqueue_copy"): client.enqueue_copy,
    (PSYCOPG, "load_contracts"): client.load_contracts,
    (ASYNC_PSYCOPG, "enqueue"): client.enqueue_async,
    (ASYNC_PSYCOPG, "enqueue_many"): client.enqueue_many_async,
    (ASYNC_PSYCOPG, "enqueue_copy"): client.enqueue_copy_async,
    (ASYNC_PSYCOPG, "load_contracts"): client.load_contracts_async,
    (SQLALCHEMY, "enqueue"): by_sqlalchemy.enqueue,
    (SQLALCHEMY, "enqueue_many"): by_sqlalchemy.enqueue_many,
    (SQLALCHEMY, "load_contracts"): by_sqlalchemy.load_contracts,
    (ASYNC_SQLALCHEMY, "enqueue"): by_sqlalchemy.enqueue_async,
    (ASYNC_SQLALCHEMY, "enqueue_many"): by_sqlalchemy.enqueue_many_async,
    (ASYNC_SQLALCHEMY, "load_contracts"): by_sqlalchemy.load_contracts_async,
    (ASYNCPG, "enqueue"): by_asyncpg.enqueue,
    (ASYNCPG, "enqueue_many"): by_asyncpg.enqueue_many,
    (ASYNCPG, "load_contracts"): by_asyncpg.load_contracts,
    (DJANGO, "enqueue"): _django(by_django.enqueue),
    (DJANGO, "enqueue_many"): _django(by_django.enqueue_many),
    (DJANGO, "load_contracts"): _django(by_django.load_contracts),
}
GIVEN = {"enqueue": (MESSAGE,), "enqueue_many": ([MESSAGE],), "enqueue_copy": ([MESSAGE],), "load_contracts": ()}


@pytest.fixture
def django_database(database_url: str) -> Iterator[str]:
    """Django on the test's database; it refuses to be left within a loop."""
    with django_on(database_url):
        yield database_url


@pytest.fixture
async def handles(django_database: str) -> AsyncIterator[Handles]:
    """One of each kind that an application may have at hand, in a transaction where it has one."""
    engine = sqlalchemy.create_engine(sqlalchemy_url(django_database, "psycopg"), poolclass=NullPool)
    async_engine = create_async_engine(sqlalchemy_url(django_database, "psycopg"), poolclass=NullPool)
    async with AsyncExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(django_database))
        async_connection = await stack.enter_async_context(await psycopg.AsyncConnection.connect(django_database))
        by_asyncpg_alone = await asyncpg.connect(django_database)
        stack.push_async_callback(by_asyncpg_alone.close)
        pool = await stack.enter_async_context(asyncpg.create_pool(django_database, min_size=1, max_size=1))
        scoped = scoped_session(sessionmaker(engine))
        stack.callback(scoped.remove)
        async_scoped = async_scoped_session(async_sessionmaker(async_engine), scopefunc=lambda: None)
        stack.push_async_callback(async_scoped.remove)
        yield {
            "psycopg Connection": connection,
            "psycopg Cursor": connection.cursor(),
            "psycopg AsyncConnection": async_connection,
            "psycopg AsyncCursor": async_connection.cursor(),
            "SQLAlchemy Session": stack.enter_context(Session(engine)),
            "SQLAlchemy scoped_session": scoped,
            "SQLAlchemy Connection": stack.enter_context(engine.connect()),
            "SQLAlchemy AsyncSession": await stack.enter_async_context(AsyncSession(async_engine)),
            "SQLAlchemy async_scoped_session": async_scoped,
            "SQLAlchemy AsyncConnection": await stack.enter_async_context(async_engine.connect()),
            "SQLAlchemy Engine": engine,
            "SQLAlchemy sessionmaker": sessionmaker(engine),
            "SQLAlchemy AsyncEngine": async_engine,
            "SQLAlchemy async_sessionmaker": async_sessionmaker(async_engine),
            "asyncpg Connection": by_asyncpg_alone,
            "asyncpg PoolConnectionProxy": await stack.enter_async_context(pool.acquire()),
            "asyncpg Pool": pool,
            "alias of Django": "default",
            "connection of Django": connections["default"],
            "connections of Django": django_connection,
            "None": None,
            "message": MESSAGE,
        }  # fmt: skip


# Without the check a sync helper leaves a coroutine behind, which is no business of the fixtures.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize(("kind", "name"), HELPERS, ids=lambda value: value.replace(".{}", ""))
async def test_a_wrong_handle_is_refused_before_any_sql_and_the_sentence_names_the_right_call(
    handles: Handles, database_url: str, kind: str, name: str
) -> None:
    """For each kind of handle that the helper does not take; committed afterwards, none of them has enqueued anything."""
    wrong = {handle: value for handle, value in handles.items() if RIGHT.get(handle) != kind}
    told = {handle: await _told(HELPERS[kind, name], value, *GIVEN[name]) for handle, value in wrong.items()}

    assert {handle: _sentence(kind, name, handle, value) for handle, value in wrong.items()} == told
    for handle, value in handles.items():
        if hasattr(value, "commit") and "Django" not in handle:
            committed = value.commit()
            if inspect.isawaitable(committed):
                await committed
    with psycopg.connect(database_url) as other:
        assert [(0,)] == other.execute("SELECT count(*) FROM queue_message").fetchall()


async def _told(helper: Callable[..., Any], *args: object) -> str:
    try:
        answer = helper(*args)
        return f"answered {await answer if inspect.isawaitable(answer) else answer}"
    except Exception as error:  # noqa: BLE001 - its type is part of what is compared
        return f"{type(error).__name__}: {error}"


def _sentence(kind: str, name: str, handle: str, value: object) -> str:
    instead = INSTEAD[handle]
    # COPY is psycopg's alone.
    called = "enqueue_many" if name == "enqueue_copy" and "relay.client" not in instead else name
    return f"TypeError: {kind.format(name)} takes {TAKES[kind]}, not {type(value).__name__}: {instead.format(called)}."


async def test_each_helper_takes_its_own_handles(handles: Handles) -> None:
    """Every kind that the documentation names."""
    for (kind, name), helper in HELPERS.items():
        for handle in (handle for handle, right in RIGHT.items() if right == kind and kind is not DJANGO):
            if kind is ASYNCPG and name != "load_contracts":
                async with handles[handle].transaction():
                    assert "answered" in await _told(helper, handles[handle], *GIVEN_ANEW[name]())
            else:
                assert "answered" in await _told(helper, handles[handle], *GIVEN_ANEW[name]())


GIVEN_ANEW: dict[str, Callable[[], tuple[Any, ...]]] = {
    "enqueue": lambda: ({"exchange": "orders"},),
    "enqueue_many": lambda: ([{"exchange": "orders"}],),
    "enqueue_copy": lambda: ([{"exchange": "orders"}],),
    "load_contracts": tuple,
}


async def test_contracts_are_read_whatever_rows_the_connection_makes(database_url: str) -> None:
    """A connection may be configured to return rows as mappings; a cursor of it serves as well."""
    with psycopg.connect(database_url, row_factory=dict_row, autocommit=True) as connection:
        connection.execute("SELECT queue_message_contract_add('orders', 'order.*', '{}')")
        assert 1 == len(client.load_contracts(connection)) == len(client.load_contracts(connection.cursor()))
    async with await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row) as other:
        assert 1 == len(await client.load_contracts_async(other)) == len(await client.load_contracts_async(other.cursor()))
