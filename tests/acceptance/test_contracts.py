"""Message contracts end to end: a relay as a process, what its consumer gets, and what an operator sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import Relays

pytestmark = pytest.mark.ids("A37")
SCHEMA = {"type": "object", "required": ["order"], "properties": {"order": {"type": "integer"}, "secret": {"maxLength": 3}}}
FINE, BROKEN = '{"order": 7}', '{"order": 7, "secret": "hunter22"}'


def a_schema(folder: Path, schema: Any = SCHEMA) -> str:
    """A file with a schema."""
    path = folder / "schema.json"
    path.write_text(json.dumps(schema))
    return str(path)


async def test_what_breaks_an_enforced_contract_is_rejected_and_its_neighbours_go_out(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, tmp_path: Path
) -> None:
    """With pointer and rule, and no word of the content; it was there before the relay was, and held from its first claim on."""
    place = await topology.declare("orders", "orders", routing_key="order.paid")
    await relays.command("contract", "add", place.exchange, "order.*", a_schema(tmp_path), "--mode", "enforce", database=queue.url)
    mine = {"exchange": place.exchange, "routing_key": "order.paid"}
    fine = await queue.insert(50, content=FINE, **mine)
    [broken] = await queue.insert(content=BROKEN, **mine)
    [binary] = await queue.insert(body=b"7", **mine)
    fine += await queue.insert(50, content=FINE, **mine)

    relay = await relays.start(database=queue.url, broker=amqp_url)
    await queue.settled()

    assert fine == [message.message_id for message in await topology.drain(place.queue, 100)]
    assert {broken: "rejected", binary: "rejected", **dict.fromkeys(fine, "success")} == await queue.results()
    dead = await queue.archived(broken)
    sentence = f'content breaks contract "{place.exchange}" "order.*" version 1 at "/secret", rule maxLength: it has more than 3 characters'
    assert ("contract_violated", sentence, 1) == (dead["error_code"], dead["error_detail"], dead["attempts"])
    assert "rule body" in (await queue.archived(binary))["error_detail"]
    assert 0 == await relay.stop()
    assert "hunter22" not in str(relay.lines)


async def test_contracts_are_tried_switched_on_and_relaxed_while_the_relay_runs(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str, tmp_path: Path
) -> None:
    """In mode warn a message that breaks the contract goes out and is logged.

    In mode enforce it is rejected; once relaxed, it is replayed.
    """
    place = await topology.declare("orders", "orders", routing_key="order.paid")
    mine = {"exchange": place.exchange, "routing_key": "order.paid", "content": BROKEN}
    relay = await relays.start(database=queue.url, broker=amqp_url)

    await relays.command("contract", "add", place.exchange, "#", a_schema(tmp_path), database=queue.url)
    told = await relay.logged("contracts_held")
    assert (0, 1) == (told["enforced"], told["warned"])
    [warned] = await queue.insert(**mine)
    told = await relay.logged("contract_broken")
    assert (warned, place.exchange) == (told["id"], told["exchange"])
    assert 'at "/secret", rule maxLength' in told["detail"]
    assert [warned] == [message.message_id for message in await topology.drain(place.queue, 1)]

    await relays.command("contract", "mode", place.exchange, "#", "enforce", database=queue.url)
    await relay.logged("contracts_held", 2)
    [rejected] = await queue.insert(**mine)
    await queue.settled()
    assert {warned: "success", rejected: "rejected"} == await queue.results()

    relaxed = a_schema(tmp_path, {**SCHEMA, "properties": {}})
    await relays.command("contract", "add", place.exchange, "#", relaxed, "--mode", "enforce", database=queue.url)
    await relay.logged("contracts_held", 3)
    await relays.command("dead", "replay", rejected, database=queue.url)
    [again] = await topology.drain(place.queue, 1)
    assert rejected == again.headers["x-relay-replay-of"]

    await relays.command("contract", "remove", place.exchange, "#", "--all", database=queue.url)
    told = await relay.logged("contracts_held", 4)
    assert (0, 0) == (told["enforced"], told["warned"])
    assert "hunter22" not in str(relay.lines)


async def test_a_contract_that_the_relay_cannot_read_stops_nothing_and_is_shown(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str
) -> None:
    """A contract written without the command was never compiled: the messages go out, and the status names the contract."""
    place = await topology.declare("orders", "orders", routing_key="k")
    statement = "INSERT INTO queue_message_contract (exchange, routing_key, version, mode, schema) VALUES (%s, '#', 1, 'enforce', %s)"
    await queue.sql(statement, place.exchange, '{"type": "objekt"}')
    relay = await relays.start(database=queue.url, broker=amqp_url)
    ids = await queue.insert(3, exchange=place.exchange, routing_key="k")
    await queue.settled()

    assert dict.fromkeys(ids, "success") == await queue.results()
    assert 'wrong at "/type"' in (await relay.logged("contract_unusable"))["error"]

    async def is_shown() -> bool:
        return "cannot check contract" in await relays.command("status", database=queue.url)

    await until(is_shown)
