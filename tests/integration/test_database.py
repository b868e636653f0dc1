"""What the relay says of a statement that did not get through."""

from __future__ import annotations

import psycopg
import pytest

from relay.console import Console
from relay.database import Session
from relay.errors import StoreError
from relay.migrate import migrate


async def test_a_lock_in_the_way_says_that_it_is_tried_again_and_whom_to_look_for(database_url: str) -> None:
    """With the server's own words, and as something that passes."""
    session = Session(database_url, application_name="relay", settings={"lock_timeout": "50ms"})
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("LOCK TABLE queue_message_lane")
        with pytest.raises(
            StoreError, match=r"^Another session holds a lock on the queue; it is tried again\..* pg_stat_activity"
        ) as caught:
            await session.fetch(b"TABLE queue_message_lane", {})
    await session.aclose()

    assert caught.value.in_passing
    assert "lock timeout" in str(caught.value)


async def test_a_host_that_cannot_be_looked_up_is_a_sentence() -> None:
    """The resolver refuses such a name with an error of its own kind, which is none of the network; the relay tries again."""
    session = Session("host=a..b", application_name="relay")

    with pytest.raises(StoreError, match=r"^RELAY_DATABASE_URL names a host that no resolver can be asked for: correct its name\.$"):
        await session.fetch(b"SELECT 1", {})


async def test_a_schema_that_is_not_there_says_who_makes_it_and_what_else_may_be_wrong(empty_database_url: str) -> None:
    """Whoever runs the relay is seldom the owner of the schema, and the URL may lead to the wrong database."""
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
    with Console(database_url, schema="public") as console:
        assert {"text": "→"} == console.connection.execute("SELECT chr(8594) AS text").fetchone()
    said: list[str] = []
    migrate(database_url, say=said.append)
    assert [] == said
