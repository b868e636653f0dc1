"""Messages with a key by the client: once, the newest, together; with psycopg, by COPY, and from models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from relay.client import (
    ClientContracts,
    Message,
    MessageError,
    OutboxModel,
    enqueue,
    enqueue_async,
    enqueue_copy,
    enqueue_copy_async,
    enqueue_many,
    enqueue_many_async,
)  # fmt: skip
from tests.support.database.queue import until
from tests.support.servers.logins import login, own_role

pytestmark = pytest.mark.ids("A38", "D7")
KEYED = "SELECT id, content::text, dedup_key, coalesce_key, bundle_key FROM queue_message_keyed"
WHERE = "SELECT id, state FROM queue_message_state ORDER BY seq"
PLAIN = {"exchange": "orders"}
ONCE = {"exchange": "orders", "dedup_key": "charge-7"}


class Charged(OutboxModel, exchange="billing", dedup_key="charge", dedup_seconds=60):
    """A class whose messages are enqueued once."""

    charge: str | None


class Level(OutboxModel, exchange="stock", coalesce_key="item"):
    """A class of which the newest counts."""

    item: int


class Line(OutboxModel, exchange="audit"):
    """A class whose messages go together by what a method computes."""

    who: str

    def outbox_bundle_key(self) -> str:
        """By initial."""
        return self.who[0]


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A producer's connection."""
    with login(database_url, "queue_message_producer") as url, psycopg.connect(url, row_factory=dict_row) as made:
        yield made


def _rows(url: str, statement: bytes | str) -> list[Any]:
    """What is committed, seen by the owner."""
    with psycopg.connect(url) as other:
        return other.execute(statement.encode() if isinstance(statement, str) else statement).fetchall()


def test_what_is_known_is_not_enqueued_and_has_the_id_of_the_first(connection: psycopg.Connection[Any], database_url: str) -> None:
    """In the same transaction, in the same call and in the next; another exchange or key is another message."""
    first = enqueue(connection, ONCE)
    assert first == enqueue(connection, Message.model_validate(ONCE))
    connection.commit()

    ids = enqueue_many(connection, [{**ONCE, "dedup_key": "8"}, ONCE, {**ONCE, "dedup_key": "8"}, {**ONCE, "exchange": "audit"}])
    connection.commit()

    assert [ids[0], first, ids[0]] == ids[:3]
    assert [(id_, "ready") for id_ in (first, ids[0], ids[3])] == _rows(database_url, WHERE)


def test_a_window_is_the_messages_own(connection: psycopg.Connection[Any], database_url: str) -> None:
    """Or the setting's, where it says none; a rollback makes nothing known."""
    enqueue(connection, {**ONCE, "dedup_seconds": 60})
    connection.rollback()
    enqueue(connection, {**ONCE, "dedup_seconds": 90})
    enqueue(connection, {**ONCE, "dedup_key": "8"})
    connection.commit()

    windows = (
        "SELECT dedup_key, extract(epoch FROM until - created_at)::int FROM queue_message_dedup d JOIN queue_message m ON m.id = message_id"
    )
    assert {("charge-7", 90), ("8", 86400)} == {*_rows(database_url, windows)}


def test_the_newest_and_those_together_wait_under_their_keys(connection: psycopg.Connection[Any], database_url: str) -> None:
    """With the ids that the client gave, in the order of the call, until a fold sends them."""
    ids = enqueue_many(connection, [
        {"exchange": "stock", "content": {"left": 12}, "coalesce_key": "item-3"},
        {"exchange": "stock", "body": b"9", "coalesce_key": "item-3"},
        {"exchange": "audit", "content": 1, "bundle_key": "b"}, {"exchange": "audit", "content": 2, "bundle_key": "b", "dedup_key": "d"},
    ])  # fmt: skip
    connection.commit()
    waiting = {(ids[0], '{"left": 12}', None, "item-3", None), (ids[1], "{}", None, "item-3", None)}
    assert waiting | {(ids[2], "1", None, None, "b"), (ids[3], "2", None, None, "b")} == {*_rows(database_url, KEYED)}

    assert [(4,)] == _rows(database_url, "SELECT folded FROM queue_message_fold(now() + interval '1 min')")
    assert [(None, b"9"), ([1, 2], None)] == _rows(
        database_url, "SELECT nullif(content, '{}'), body FROM queue_message ORDER BY seq")  # fmt: skip


def test_models_say_their_keys(connection: psycopg.Connection[Any], database_url: str) -> None:
    """A field's value as text, null for no key, or what a method computes; a call may say another key, or none."""
    one = enqueue(connection, Charged(charge="7"))
    assert one == enqueue(connection, Charged(charge="7"))
    others = [
        enqueue(connection, Charged(charge=None)),
        enqueue(connection, Charged(charge="7").to_message(dedup_key=None)),
        enqueue(connection, Charged(charge="7").to_message(dedup_key="8", dedup_seconds=5)),
    ]
    assert 4 == len({one, *others})
    newest = enqueue(connection, Level(item=3))
    part = enqueue(connection, Line(who="ann"))
    connection.commit()

    assert {(newest, '{"item": 3}', None, "3", None), (part, '{"who": "ann"}', None, None, "a")} == {*_rows(database_url, KEYED)}
    known = "SELECT dedup_key, message_id = %s, (until - now() < interval '6 s') FROM queue_message_dedup ORDER BY 1"
    with psycopg.connect(database_url) as other:
        assert [("7", True, False), ("8", False, True)] == other.execute(known, [one]).fetchall()


def test_a_stream_of_messages_with_a_key_goes_by_the_view(connection: psycopg.Connection[Any], database_url: str) -> None:
    """By COPY, in order; those that are known are not inserted, but counted, as COPY does not tell."""
    stream = ({**ONCE, "content": number, "dedup_key": str(number % 3)} for number in range(300))
    assert 300 == enqueue_copy(connection, stream)
    assert 1 == enqueue_copy(connection, [{**ONCE, "dedup_key": "1"}])
    assert 2 == enqueue_copy(connection, [{**PLAIN, "content": 1, "bundle_key": "b"}, {**PLAIN, "content": 2, "bundle_key": "b"}])
    connection.commit()

    assert [("0",), ("1",), ("2",)] == _rows(database_url, "SELECT content::text FROM queue_message ORDER BY xid, seq")
    assert [(2,)] == _rows(database_url, "SELECT count(*) FROM queue_message_keyed")


@pytest.mark.parametrize("call", [enqueue_many, enqueue_copy])
@pytest.mark.parametrize(
    ("messages", "place", "here", "before"), [([ONCE, ONCE, PLAIN], 3, "no key", "one"), ([PLAIN, ONCE], 2, "a key", "none")]
)
def test_a_call_takes_messages_with_a_key_or_without(
    connection: psycopg.Connection[Any], database_url: str, call: Any, messages: list[dict[str, Any]], place: int, here: str, before: str
) -> None:
    """A call with both inserts nothing, and the transaction continues. Two statements would preserve neither order nor atomicity."""
    enqueue(connection, {**PLAIN, "content": "before"})
    with pytest.raises(MessageError) as refused:
        call(connection, messages)
    connection.commit()

    names = "dedup_key, coalesce_key, bundle_key"
    sentence = f"message {place} has {here} ({names}), and those before it have {before}: enqueue them in separate calls"
    assert sentence == str(refused.value)
    assert [('"before"',)] == _rows(database_url, "SELECT content::text FROM queue_message")
    assert [] == _rows(database_url, "SELECT FROM queue_message_dedup")


@pytest.mark.parametrize(
    "columns",
    [
        {"bundle_key": "a", "coalesce_key": "b"},
        {"bundle_key": "a", "body": b"x"},
        {"dedup_key": "x" * 1025},
        {"bundle_key": "ü" * 513},
        {"coalesce_key": "x" * 1025},
        {"dedup_key": "x", "dedup_seconds": 0},
        {"dedup_key": "x", "dedup_seconds": 31_536_001},
        {"coalesce_key": "x", "dedup_seconds": 5},
    ],
)
def test_what_makes_no_sense_is_refused_in_the_words_of_the_database(database_url: str, columns: dict[str, Any]) -> None:
    """The client refuses it before any SQL, with the sentence that an INSERT by hand gets."""
    with psycopg.connect(database_url) as connection:
        with pytest.raises(MessageError) as refused:
            enqueue(connection, {**PLAIN, **columns})
        assert psycopg.pq.TransactionStatus.IDLE == connection.info.transaction_status

        columns = {**PLAIN, **columns}
        statement = sql.SQL("INSERT INTO queue_message_keyed ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Placeholder, columns)))  # fmt: skip
        with pytest.raises(psycopg.errors.CheckViolation) as by_hand:
            connection.execute(statement, columns)
    assert str(refused.value) == by_hand.value.diag.message_primary


def test_without_a_key_the_view_is_not_asked(database_url: str) -> None:
    """A login that may insert into the queue alone enqueues as ever; messages with a key need the view."""
    with login(database_url, "queue_message_producer") as url, psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(sql.SQL("REVOKE ALL ON queue_message_keyed FROM {}").format(sql.Identifier(own_role(owner, "producer"))))
        with psycopg.connect(url) as connection:
            enqueue(connection, PLAIN)
            enqueue_many(connection, [PLAIN, {**PLAIN, "dedup_key": None}])
            assert 1 == enqueue_copy(connection, [PLAIN])
            connection.commit()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                enqueue(connection, ONCE)


def test_a_part_of_a_bundle_keeps_the_contract_of_the_list(connection: psycopg.Connection[Any]) -> None:
    """It is checked as a list of one, which is what the relay would see."""
    schema = '{"type": "array", "items": {"type": "integer"}}'
    contracts = ClientContracts([("orders", "#", 1, "enforce", schema)])

    enqueue(connection, {**PLAIN, "content": 7, "bundle_key": "b"}, contracts=contracts)
    with pytest.raises(MessageError, match='at "/0", rule type'):
        enqueue(connection, {**PLAIN, "content": "7", "bundle_key": "b"}, contracts=contracts)
    with pytest.raises(MessageError, match='at "", rule type'):
        enqueue(connection, {**PLAIN, "content": 7, "dedup_key": "b"}, contracts=contracts)


async def test_async_connections_do_the_same(database_url: str) -> None:
    """One, many, a stream; known is known."""

    async def stream() -> AsyncIterator[dict[str, Any]]:
        for key in ("charge-7", "8", "9"):
            yield {**ONCE, "dedup_key": key}

    async with await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row) as connection:
        first = await enqueue_async(connection, ONCE)
        assert first == await enqueue_async(connection, ONCE)
        ids = await enqueue_many_async(connection, [ONCE, {**ONCE, "dedup_key": "8"}])
        assert first == ids[0] != ids[1]
        assert 3 == await enqueue_copy_async(connection, stream())
        count = await (await connection.execute("SELECT count(id) AS n FROM queue_message")).fetchone()
        assert {"n": 3} == count
        with pytest.raises(MessageError, match=r"^message 2 has a key"):
            await enqueue_copy_async(connection, [PLAIN, ONCE])


async def test_who_waited_for_the_first_is_told_its_id(database_url: str) -> None:
    """The first committed after the second's statement began."""
    async with await psycopg.AsyncConnection.connect(database_url) as one, await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("SET application_name = 'second'")
        await other.commit()
        first = await enqueue_async(one, ONCE)
        second = asyncio.create_task(enqueue_async(other, ONCE))
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as watcher:
            await until(lambda: _held_up(watcher))
        await one.commit()

        assert first == await second


async def _held_up(watcher: psycopg.AsyncConnection[Any]) -> bool:
    """Whether the second session waits for a lock."""
    cursor = await watcher.execute("SELECT FROM pg_stat_activity WHERE application_name = 'second' AND wait_event_type = 'Lock'")
    return await cursor.fetchone() is not None
