"""Letters that the database's encoding lacks, in each part of a delivery: poison that goes to the dead side, and its neighbours come in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.inbox.delivery import Delivery, Problem, unreadable
from relay.postgres.inbox import Inbox
from relay.postgres.schema.sql_files import migrations
from tests.support.fakes.given_source import given, receive
from tests.support.servers.encodings import encoded_database
from tests.support.servers.shared import Databases

pytestmark = pytest.mark.ids("C16")
LETTER = "\N{CHECK MARK}"
"""Of none of the encodings below."""
POISON: dict[str, dict[str, Any]] = {
    "message id": {"message_id": LETTER},
    "long message id": {"message_id": LETTER * 80},
    "id of a relay": {"headers": {"x-relay-id": LETTER * 2}},
    "routing key": {"routing_key": f"k{LETTER}" * 50},
    "exchange": {"exchange": LETTER},
    "name of a header": {"headers": {LETTER: 1}},
    "value of a header": {"headers": {"a": [LETTER]}},
    "property": {"type": LETTER},
    "content": {"payload": f'"{LETTER}"'.encode()},
    "escaped content": {"payload": b'"\\u2713"'},
    "key of the content": {"payload": f'{{"{LETTER}": 1}}'.encode()},
    "no JSON": {"payload": f"{LETTER} is no JSON".encode()},
    "NUL in the names": {"routing_key": f"{LETTER}\0"},
}
NAMES = (LETTER, f"{LETTER} é", "q")
"""Queues and receivers."""


@pytest.fixture(params=["LATIN1", "EUC_JP", "WIN1251"])
def url(request: pytest.FixtureRequest, databases: Databases) -> Iterator[str]:
    """A database of each encoding with an inbox."""
    with encoded_database(databases, request.param) as made:
        with psycopg.connect(made, autocommit=True) as connection:
            connection.execute("SELECT queue_message_config_set('direction', 'inbox')")
        yield made


async def written(url: str, deliveries: list[Delivery], *, name: str = "receiver") -> None:
    """Receive with plain neighbours, all of which come in."""
    before, after = given(b'"before"', message_id="before"), given(b'"after"', message_id="after")
    inbox = Inbox(conninfo=url, schema="public", name=name)
    try:
        await inbox.check(migrations()[-1].version)
        await asyncio.wait_for(receive(inbox, [before, *deliveries, after]), 60)
    finally:
        await inbox.aclose()
    async with await psycopg.AsyncConnection.connect(url, client_encoding="UTF8") as connection:
        came = await connection.execute(
            "SELECT content #>> '{}' FROM queue_message WHERE content IN ('\"before\"', '\"after\"') ORDER BY seq"
        )
        assert [("before",), ("after",)] == await came.fetchall()


async def texts_of(url: str, columns: str) -> list[tuple[Any, ...]]:
    """Columns of the dead side."""
    async with await psycopg.AsyncConnection.connect(url, client_encoding="UTF8") as connection:
        query = f"SELECT {columns} FROM queue_message_dead ORDER BY xid, seq"
        return await (await connection.execute(query.encode())).fetchall()


async def test_a_letter_stops_no_receiver_wherever_it_is(url: str) -> None:
    """Each such delivery is dead with its payload byte for byte; a name has a code for the letter, and is cut where it is too long."""
    deliveries = [given(**{"payload": f'"{name}"'.encode(), "message_id": name, **values}) for name, values in POISON.items()]
    await written(url, deliveries)
    dead = await texts_of(url, "body, result, exchange, routing_key, options->'headers'->>'x-relay-message-id'")
    assert [(each.payload, "rejected") for each in deliveries] == [row[:2] for row in dead]
    told = dict(zip(POISON, dead, strict=True))
    assert (r"\u2713", r"\u2713\u2713") == (told["message id"][4], told["id of a relay"][4])
    assert told["long message id"][4].startswith(r"\u2713\u2713")
    assert "... sha256:" in told["long message id"][4]
    assert r"\u2713" == told["exchange"][2]
    assert told["routing key"][3].startswith(r"k\u2713k\u2713")
    assert told["routing key"][3].endswith("...")


async def test_names_that_nobody_could_read_stop_no_receiver(url: str) -> None:
    """Their bytes are replaced by a letter that these encodings lack as well."""
    made = unreadable(queue="q", names=("x\ufffd", "k\ufffd"), header=b"", payload=b"\x00\xff", error=ValueError("bytes"))
    await written(url, [made])
    assert [(b"\x00\xff", r"x\ufffd", r"k\ufffd", "properties_invalid")] == await texts_of(url, "body, exchange, routing_key, error_code")


@pytest.mark.parametrize("name", NAMES, ids=["missing", "mixed", "plain"])
async def test_names_that_an_operator_chose_make_no_message_poison(url: str, name: str) -> None:
    """What a queue of that name brings comes in, once; a receiver of that name rejects."""
    deliveries = [given(b"%d" % number, queue=name, message_id=str(number % 2)) for number in range(4)]
    bad = given(b"{", queue=name, message_id="bad")
    await written(url, [*deliveries[:2], bad, bad, *deliveries[2:]], name=name)
    assert 1 == len(await texts_of(url, "body"))
    async with await psycopg.AsyncConnection.connect(url, client_encoding="UTF8") as connection:
        came = await connection.execute("SELECT content::text FROM queue_message WHERE jsonb_typeof(content) = 'number' ORDER BY seq")
        assert [("0",), ("1",)] == await came.fetchall()


async def test_a_sentence_with_such_a_letter_is_told(url: str) -> None:
    """The reason as well."""
    await written(url, [Delivery("q", "a", "x", "k", b"1", None, "{}", Problem("c", f"why {LETTER}"))])
    assert [("c", r"why \u2713")] == await texts_of(url, "error_code, error_detail")
