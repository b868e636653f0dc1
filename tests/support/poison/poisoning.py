"""Puts entries of the catalogue of bad and odd messages into a queue, and expects what it says to have become of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from tests.support.broker.raw_amqp import Delivery, RawClient
from tests.support.database.queue import Queue
from tests.support.poison.catalogue import Poison

BARRED = "barred"
"""Part of the names of exchanges to which the relay may not write."""
MAY_WRITE = f"^(?!.*{BARRED})"
"""The permission that says so."""
STAYS = {"year_9999", "archive_refuses"}
"""Needs of messages that must still be in the queue in the end."""
Plain = dict[str, str]
"""Exchange and routing key of an entry that names none."""


@dataclass
class Sent:
    """One entry, the ids that its INSERT gave, and what the INSERT said if it was refused."""

    entry: Poison
    ids: list[str] = field(default_factory=list)
    refusal: str = ""

    @property
    def stays(self) -> bool:
        """It must still be in the queue in the end."""
        return bool(STAYS & {*self.entry.needs})

    @property
    def arrives(self) -> bool:
        """A consumer must see it."""
        return self.entry.outcome == "delivered" and "year_9999" not in self.entry.needs


async def prepare(queue: Queue, client: RawClient, entry: Poison, exchange: str) -> Plain:
    """Make what the entry needs; return where its message goes if the entry does not say."""
    plain = {"exchange": exchange, "routing_key": "key"}
    target = entry.claim(exchange, "key") if entry.encodable else None
    if target and entry.outcome != "refused":
        if target.exchange and not target.exchange.startswith("amq.") and "no_exchange" not in entry.needs:
            await client.declare_exchange(target.exchange, internal="internal_exchange" in entry.needs)
        if entry.outcome == "delivered":
            name = await client.consume(target.exchange, target.routing_key)
            plain["routing_key"] = plain["routing_key"] if target.exchange else name
    if "archive_refuses" in entry.needs:
        plain["routing_key"] = "key"
        refused = sql.SQL("ALTER TABLE queue_message_archive ADD CONSTRAINT refused CHECK (exchange <> {})").format(sql.Literal(exchange))
        await queue.connection.execute(refused)
    return plain


async def insert(queue: Queue, entry: Poison, plain: Plain) -> Sent:
    """Insert an entry, as often as it says; within a transaction a refusal undoes this entry alone."""
    sent = Sent(entry)
    try:
        for _ in range(entry.rows):
            async with queue.connection.transaction():
                cursor = await queue.connection.execute(entry.insert(sql.Identifier("queue_message"), **plain))
                sent.ids += [id_ for (id_,) in await cursor.fetchall()]
    except psycopg.Error as error:
        sent.refusal = str(error)
    return sent


async def read_archive(queue: Queue) -> dict[str, dict[str, Any]]:
    """Result, code and sentence by id."""
    columns = "id::text, result, error_code, error_detail"
    rows = await queue.sql(f"SELECT {columns} FROM queue_message_archive")
    return {id_: {"result": result, "error_code": code, "error_detail": detail} for id_, result, code, detail in rows}


def expect_refused(sent: Sequence[Sent]) -> None:
    """The INSERT refused what the catalogue says, with its sentence, and nothing else."""
    for one in sent:
        refused = one.entry.outcome == "refused"
        assert refused == (not one.ids), (one.entry, one.refusal)
        assert not refused or any(sentence in one.refusal for sentence in one.entry.sentences), (one.entry, one.refusal)


def expect_archived(sent: Sequence[Sent], archive: dict[str, dict[str, Any]]) -> None:
    """The archive says of each message what the catalogue says."""
    for one in sent:
        if one.stays:
            continue
        for row in map(archive.__getitem__, one.ids):
            result = "success" if one.entry.outcome == "delivered" else one.entry.outcome
            assert (result, one.entry.code or None) == (row["result"], row["error_code"]), one.entry
            assert result == "success" or row["error_detail"], one.entry


def expect_seen(sent: Sequence[Sent], came: dict[str, Delivery]) -> None:
    """A consumer saw of each message what the catalogue says, its body byte for byte."""
    for one in sent:
        for id_ in one.ids if one.arrives else ():
            expected = {name: value for name, value in one.entry.expect.items() if not name.startswith("body")}
            assert expected == came[id_].seen(expected), one.entry
            assert one.entry.claim("", "").payload == came[id_].body, one.entry
