"""Message contracts in an application: read once and checked before any SQL. The relay checks messages again by its current contracts."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from relay.client.handles import AsyncConnection, Connection, async_connection, sync_connection
from relay.client.message import Message, MessageError
from relay.codec.json_numbers import as_stored
from relay.contracts.registry import Breach, Contract, Contracts, breaches
from relay.contracts.schema import compiled
from relay.queries.statements import statement

_compiled = lru_cache(maxsize=1024)(compiled)
"""Compiles schemas and caches them, so that a further read compiles only new schemas."""
_LOG = logging.getLogger("relay.contracts")


class ClientContracts:
    """The contracts at the time of the read; read them again to see later contracts.

    Args:
        rows: the rows of the table `queue_message_contract`. A contract that this version cannot read is left to the relay.
    """

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._contracts = Contracts((Contract(*row) for row in rows), compile_schema=_compiled)

    def __len__(self) -> int:
        return len(self._contracts)

    def check(self, message: Message) -> None:
        """Check a message; a breach of a contract in mode `warn` is logged by the logger `relay.contracts`.

        Raises:
            MessageError: the message breaks an enforced contract; the relay would archive the same text. A part of a bundle is checked
                as a list with one item, because it may be sent as such a list.
        """
        for breach in self._breaches(message):
            if breach.contract.mode == "enforce":
                raise MessageError(breach.sentence)
            _LOG.warning("%s", breach.sentence)

    def check_all(self, messages: Iterable[Message]) -> None:
        """Check messages; the error names the place of the first wrong message."""
        for place, message in enumerate(messages, start=1):
            try:
                self.check(message)
            except MessageError as error:
                raise MessageError(f"message {place}: {error}") from None

    def _breaches(self, message: Message) -> list[Breach]:
        contracts = self._contracts.of(message.exchange, message.routing_key)
        if not contracts:
            return []
        if message.body is not None:
            return breaches(contracts, None)
        text = message.content_text if message.bundle_key is None else f"[{message.content_text}]"
        # The relay sees numbers as PostgreSQL writes them, and 1e400 is a whole number there.
        return breaches(contracts, text) and breaches(contracts, as_stored(text))


def load_contracts(connection: Connection, *, schema: str = "public") -> ClientContracts:
    """Read the contracts over a psycopg connection or cursor, in its transaction.

    Raises:
        TypeError: the connection is not psycopg's, or is async; the error names the right call.
        psycopg.Error: the contracts cannot be read.
    """
    with psycopg.Cursor(sync_connection(connection, "load_contracts"), row_factory=tuple_row) as cursor:
        return ClientContracts(cursor.execute(statement("read_contracts", schema)).fetchall())


async def load_contracts_async(connection: AsyncConnection, *, schema: str = "public") -> ClientContracts:
    """`load_contracts` for psycopg's async connections."""
    async with psycopg.AsyncCursor(async_connection(connection, "load_contracts_async"), row_factory=tuple_row) as cursor:
        await cursor.execute(statement("read_contracts", schema))
        return ClientContracts(await cursor.fetchall())
