"""The receiving side: exchanges, a queue for each, and a consumer that records each delivery in its ledger and in PostgreSQL's receipts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import aio_pika
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage
from psycopg import AsyncConnection

from relay.demo.history.traffic import NOWHERE, ROUTES
from relay.demo.journal import Journal
from relay.demo.statements import statement

_NAME: Final = "example consumer"


class Receiver:
    """Declares exchanges and queues, consumes from every queue, and keeps receipts.

    Args:
        url: the broker.
        database_url: the database to which receipts are written.
        journal: the consumer's own ledger.
        clock: returns seconds since 1970, by the database's clock.
    """

    def __init__(self, url: str, database_url: str, journal: Journal, clock: Callable[[], float]) -> None:
        self._url = url
        self._database_url = database_url
        self._journal = journal
        self._clock = clock
        self._connection: AbstractConnection | None = None
        self._receipts: list[dict[str, Any]] = []
        self.deliveries = 0

    async def __aenter__(self) -> Self:
        self._connection = await aio_pika.connect(self._url)
        channel = await self._connection.channel()
        await channel.declare_exchange(NOWHERE, "topic", durable=True)
        for name in ROUTES:
            exchange = await channel.declare_exchange(name, "topic", durable=True)
            queue = await channel.declare_queue(f"{name}.all", durable=True)
            await queue.bind(exchange, "#")
            await queue.consume(self._taker(queue.name), no_ack=True)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def write_receipts(self) -> int:
        """Write to PostgreSQL the receipts since the last call, as consumers that keep receipts do; return how many."""
        receipts, self._receipts = self._receipts, []
        async with await AsyncConnection.connect(self._database_url, application_name=_NAME) as connection:
            await connection.cursor().executemany(statement("history_receive"), receipts)
        return len(receipts)

    def _taker(self, queue: str) -> Callable[[AbstractIncomingMessage], Any]:
        async def take(message: AbstractIncomingMessage) -> None:
            self._note(queue, message)

        return take

    def _note(self, queue: str, message: AbstractIncomingMessage) -> None:
        id_, at = str(message.headers.get("x-relay-id")), self._clock()
        original = message.headers.get("x-relay-replay-of")
        self._journal.note(
            id=id_,
            replay_of=None if original is None else str(original),
            queue=queue,
            at=at,
            digest=hashlib.sha256(message.body).hexdigest(),
        )
        self._receipts.append({"message_id": id_, "queue": queue, "at": at, "consumer": _NAME})
        self.deliveries += 1
