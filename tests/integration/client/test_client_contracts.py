"""Contracts in the application, before any SQL."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from relay.client import (
    JsonText,
    Message,
    MessageError,
    enqueue,
    enqueue_async,
    enqueue_copy,
    enqueue_copy_async,
    enqueue_many,
    load_contracts,
    load_contracts_async,
)
from tests.support.servers.logins import login

pytestmark = pytest.mark.ids("A37", "A38")
SCHEMA = json.dumps({"required": ["order"], "properties": {"order": {"type": "integer", "minimum": 1}}})
BROKEN = {"exchange": "orders", "routing_key": "order.paid", "content": {"order": "hunter22"}}
SENTENCE = 'content breaks contract "orders" "order.*" version 1 at "/order", rule type: it is not of type integer'


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A producer's connection to a database with a contract."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("SELECT queue_message_contract_add('orders', 'order.*', %s, mode => 'enforce')", [SCHEMA])
        owner.execute("SELECT queue_message_contract_add('audit', '#', %s)", [SCHEMA])
        with login(database_url, "queue_message_producer") as url, psycopg.connect(url) as made:
            yield made


def test_a_message_that_breaks_a_contract_never_reaches_the_database(connection: psycopg.Connection[Any]) -> None:
    """The sentence is the one that the relay would archive; the transaction is as it was, and others go."""
    contracts = load_contracts(connection)
    with pytest.raises(MessageError) as refused:
        enqueue(connection, BROKEN, contracts=contracts)
    assert SENTENCE == str(refused.value)
    with pytest.raises(MessageError, match=r"^message 2: content breaks contract"):
        enqueue_many(connection, [Message(exchange="orders"), BROKEN], contracts=contracts)

    with pytest.raises(MessageError, match=r"^message 2: content breaks contract"):
        enqueue_copy(connection, [Message(exchange="orders"), BROKEN], contracts=contracts)

    enqueue(connection, {**BROKEN, "content": {"order": 7}}, contracts=contracts)
    enqueue(connection, {**BROKEN, "routing_key": "other"}, contracts=contracts)
    enqueue(connection, {**BROKEN, "exchange": "else"}, contracts=contracts)
    enqueue(connection, BROKEN)
    assert (4,) == connection.execute("SELECT count(id) FROM queue_message").fetchone()


def test_what_breaks_a_contract_on_trial_is_enqueued_and_logged(
    connection: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """By the logger relay.contracts, without a word of the content."""
    with caplog.at_level(logging.WARNING, logger="relay.contracts"):
        enqueue(connection, {**BROKEN, "exchange": "audit"}, contracts=load_contracts(connection))

    [line] = caplog.messages
    assert SENTENCE.replace('"orders" "order.*"', '"audit" "#"') == line


@pytest.mark.parametrize(("number", "fine"), [("1e400", True), ("7.0", True), ("1e-3", False), ("1" + "0" * 5000, False)])
def test_numbers_are_judged_as_the_relay_will_see_them(connection: psycopg.Connection[Any], number: str, fine: bool) -> None:
    """However they are written."""
    contracts = load_contracts(connection)
    message = Message(exchange="orders", routing_key="order.paid", content=JsonText(f'{{"order": {number}}}'))
    if fine:
        contracts.check(message)
    else:
        with pytest.raises(MessageError, match=r"rule (type|digits)"):
            contracts.check(message)


def test_a_binary_body_breaks_an_enforced_contract(connection: psycopg.Connection[Any]) -> None:
    """As it does in the relay."""
    with pytest.raises(MessageError, match="the contract is about JSON in content"):
        load_contracts(connection).check(Message(exchange="orders", routing_key="order.paid", body=b"7"))


async def test_async_connections_have_the_same(connection: psycopg.Connection[Any], database_url: str) -> None:
    """Loaded and checked as with the sync ones."""
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        contracts = await load_contracts_async(other)
        assert 2 == len(contracts)
        with pytest.raises(MessageError, match="content breaks contract"):
            await enqueue_async(other, BROKEN, contracts=contracts)
        with pytest.raises(MessageError, match=r"^message 1: content breaks contract"):
            await enqueue_copy_async(other, [BROKEN], contracts=contracts)
        await enqueue_async(other, {**BROKEN, "content": {"order": 1}}, contracts=contracts)
