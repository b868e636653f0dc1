"""What the relay says of a statement that did not get through."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import cast

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.errors import StoreError
from relay.postgres.errors import READ_ONLY, read_only
from relay.postgres.notification_listener import NotificationListener
from relay.postgres.operator_session import OperatorSession
from relay.postgres.schema.migrate import migrate
from relay.postgres.session import Session, _kerberos, connect
from relay.postgres.timeouts import Connection, soon
from relay.queries.statements import Statements
from tests.support.database.queue import MadeStore, MakeStore, Queue, until
from tests.support.network.proxy import Proxy
from tests.support.servers.encodings import BYTE, MAKE_BYTES
from tests.support.servers.logins import login


async def test_a_lock_in_the_way_says_that_it_is_tried_again_and_whom_to_look_for(database_url: str) -> None:
    """With the server's own words, and as something that passes."""
    session = Session(database_url, application_name="relay", settings={"lock_timeout": "50ms"})
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("LOCK TABLE queue_message_lane")
        with pytest.raises(
            StoreError, match=r"^Another session holds a lock on the queue; it is tried again\..* pg_stat_activity"
        ) as caught:
            await session.fetch(b"TABLE public.queue_message_lane", {})
    await session.aclose()

    assert caught.value.in_passing
    assert "lock timeout" in str(caught.value)


async def test_an_error_is_freed_without_a_garbage_collection(store: MadeStore) -> None:
    """It may hold megabytes: the server quotes the message that it refused."""
    gc.disable()
    try:
        try:
            await store._control.fetch(b"SELECT 1 / 0", {})
        except StoreError as error:
            freed = weakref.ref(error)
        assert freed() is None
    finally:
        gc.enable()


async def test_bytes_that_are_no_text_are_said_to_be_unprintable(store: MadeStore, queue: Queue) -> None:
    """The driver refuses them after the statement has succeeded; the connection lives, and the sentence quotes nothing of the row."""
    await queue.sql(MAKE_BYTES)

    with pytest.raises(StoreError, match=r"^A name or key in the answer holds bytes that are no UTF-8: relays archive") as caught:
        await store._control.fetch(f"SELECT 'secret' || {BYTE}".encode(), {})

    assert (True, False) == (caught.value.unprintable, caught.value.row_is_guilty)
    assert [(1,)] == await store._control.fetch(b"SELECT 1", {})


async def test_a_notification_whose_bytes_are_no_text_ends_no_connection(queue: Queue) -> None:
    """Any login may send one: a temporary table takes any bytes by COPY. It may come with a statement's answer."""
    await queue.sql(MAKE_BYTES)
    listener = NotificationListener(conninfo=queue.url, application_name="ear", statements=Statements("public"), on_hint=lambda: None)
    await listener.open()
    connection = listener._connection
    assert connection is not None
    heard = listener._count
    await queue.sql(f"SELECT pg_notify('queue_message_notify', {BYTE})")

    async def is_heard() -> bool:
        await connection.execute("SELECT 1")
        return listener._count > heard

    await until(is_heard)
    await listener.aclose()


@pytest.mark.ids("C9")
async def test_a_peer_that_went_silent_is_left_for_a_new_connection(database_url: str) -> None:
    """Behind a proxy that keeps the connection open for it TCP notices nothing; what was asked counts as unanswered, not as refused."""
    async with Proxy.before(database_url) as proxy:
        session = Session(proxy.url(database_url), application_name="relay", answer=lambda: 0.5)
        await session.open()
        proxy.black_hole()
        with pytest.raises(StoreError, match=r"^PostgreSQL did not answer a statement within 0\.5 seconds, .* a firewall on the way"):
            await session.fetch(b"SELECT 1", {})
        proxy.heal()

        assert [(1,)] == await session.fetch(b"SELECT 1", {})
        assert 2 == proxy.connections
        await session.aclose()


@pytest.mark.ids("C9")
async def test_an_answer_that_is_on_its_way_for_too_long_is_left(database_url: str) -> None:
    """Nothing else goes over the connection meanwhile: a slow network may bring it bit by bit, but in time."""
    async with Proxy.before(database_url) as proxy:
        session = Session(proxy.url(database_url), application_name="relay", answer=lambda: 1.5)
        await session.open()
        proxy.rate = 1_000_000
        [(long,)] = await session.fetch(b"SELECT repeat('x', 400000)", {})
        assert 400_000 == len(long)

        with pytest.raises(StoreError, match=r"^PostgreSQL did not answer a statement within 1\.5 seconds") as caught:
            await session.fetch(b"SELECT repeat('x', 40000000)", {})
        await session.aclose()

    assert caught.value.unanswered


def test_a_claim_must_arrive_within_half_of_its_lock() -> None:
    """So that the locks of others can be renewed before and after it; in half a minute at the most."""
    assert [5, 10, 30, 30] == [soon(seconds) for seconds in (1, 20, 300, 86_400)]


async def test_a_host_that_cannot_be_looked_up_is_a_sentence() -> None:
    """The resolver refuses such a name with an error of its own kind, which is none of the network; the relay tries again."""
    session = Session("host=a..b", application_name="relay")

    with pytest.raises(StoreError, match=r"^RELAY_DATABASE_URL names a host that no resolver can be asked for: correct its name\.$"):
        await session.fetch(b"SELECT 1", {})


async def test_a_schema_that_is_not_there_says_who_makes_it_and_what_else_may_be_wrong(empty_database_url: str) -> None:
    """The login that runs the relay seldom owns the schema, and the URL may lead to the wrong database."""
    session = Session(empty_database_url, application_name="relay")

    for statement in (b"TABLE queue_message", b"SELECT queue_message_clock(now())"):
        with pytest.raises(
            StoreError, match=r"let its owner run `relay migrate`, or correct RELAY_DATABASE_URL and RELAY_SCHEMA \(.* does not exist\)\.$"
        ):
            await session.fetch(statement, {})
    await session.aclose()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_texts_are_read_whole_whatever_encoding_the_environment_names(
    database_url: str, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """One encoding would hand out bytes, of which no message can be made, another would refuse whole claims over one letter."""
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    session = Session(database_url, application_name="relay")

    assert [("a→b",)] == await session.fetch(b"SELECT 'a' || chr(8594) || 'b'", {})
    await session.aclose()
    with OperatorSession(database_url, schema="public") as console:
        assert {"text": "→"} == console.connection.execute("SELECT chr(8594) AS text").fetchone()
    said: list[str] = []
    migrate(database_url, say=said.append)
    assert [] == said


async def test_a_primary_that_is_kept_from_writing_is_told_from_a_standby(queue: Queue, make_store: MakeStore) -> None:
    """PostgreSQL says the same of both; a pool does not tell which it is."""
    await queue.sql(f"ALTER DATABASE {queue.connection.info.dbname} SET default_transaction_read_only = on")

    with pytest.raises(StoreError, match=r"^PostgreSQL is a primary that default_transaction_read_only keeps from writing: .* read-only"):
        await make_store().register()
    for hot_standby in ("on", None):
        info = SimpleNamespace(parameter_status={"in_hot_standby": hot_standby}.get)
        assert READ_ONLY == read_only(cast("psycopg.ConnectionInfo", info))


@pytest.mark.parametrize(("used", "answer", "kerberos"), [(True, (True,), True), (True, (False,), False), (False, (True,), False)])
async def test_a_session_that_kerberos_encrypts_is_told_from_plain_text(
    database_url: str, monkeypatch: pytest.MonkeyPatch, used: bool, answer: tuple[bool], kerberos: bool
) -> None:
    """PostgreSQL is asked only after a login by GSSAPI; that alone encrypts nothing."""
    connection = await connect(database_url, "relay", prepare_threshold=None)
    monkeypatch.setattr("relay.postgres.session.text", lambda _: f"SELECT {answer[0]}")
    stand_in = SimpleNamespace(pgconn=SimpleNamespace(used_gssapi=used), execute=connection.execute, fileno=connection.fileno)

    assert kerberos == await _kerberos(cast("Connection", stand_in))
    assert not await _kerberos(connection)
    await connection.close()


async def test_a_missing_permission_says_who_grants_it(queue: Queue, make_store: MakeStore) -> None:
    """The login may lack the role, or the role a grant."""
    sentence = r"run `relay grant relay LOGIN`, or, .* `relay migrate`, which grants again"
    with login(queue.url) as url, pytest.raises(StoreError, match=sentence):
        await make_store(url=url).register()


async def test_nothing_is_claimed_without_a_connection_to_settle_on(queue: Queue, make_store: MakeStore) -> None:
    """Neither at the start nor later: what goes out then could not be settled."""
    [id_] = await queue.insert()
    with login(queue.url, "queue_message_relay", attributes="CONNECTION LIMIT 2") as url:
        limit = f"ALTER ROLE {conninfo_to_dict(url)['user']} CONNECTION LIMIT"
        store = make_store(url=url)
        with pytest.raises(StoreError, match="PostgreSQL has no connection left"):
            await store.register()
        await queue.sql(f"{limit} 3")
        await store.register()

        await queue.sql(f"{limit} 2")
        await store._settles.aclose()
        with pytest.raises(StoreError, match="PostgreSQL has no connection left"):
            await store.take()
        assert (await queue.row(id_))["lock_token"] is None
        await queue.sql(f"{limit} 3")
        assert [id_] == await store.ids()
        await store.aclose()
