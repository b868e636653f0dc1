"""Commits a handler's writes, or the answer that it returned, in the same transaction as the settle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from relay.aio import pause
from relay.engine.policy import Policy
from relay.events import SettleFailed, Sink
from relay.message import SUCCESS, Batch, Claim, Outcome, Portion, Position
from relay.net.secret_url import Conninfo
from relay.ports import Settler, SettleResult, SettleRow
from relay.postgres.errors import reason
from relay.postgres.parameters import settle_of
from relay.postgres.session import connect
from relay.postgres.session_settings import PIN_OF_HANDLERS
from relay.queries.statements import Statements
from relay.worker.handler import Handler, call
from relay.worker.message import Message
from relay.worker.outcomes import NotStartedError, Reject, Retry, TransientAttemptError
from relay.worker.response import answer_of, is_request
from relay.worker.response_memory import ResponseMemory

NO_CONNECTION_PAUSE = 1.0
"""Seconds before a message whose handler got no connection is released, so that it is not claimed in a tight loop."""
LONGEST_PAUSE = 5.0
"""Most seconds between two attempts to write an answer while the database is unavailable."""
LARGE_ANSWER = 1 << 20
"""Characters of an answer above which its connection is closed afterwards."""
BEYOND_A_LIMIT = "54"
"""SQLSTATE class of a value that PostgreSQL never accepts. psycopg counts it among the operational errors, most of which are temporary."""
LOCK_LOST = "lock_lost"
"""The code of `answer_request` for a lost lock."""
TAKEN_OVER = "the lock expired while it was handled; what the handler wrote is rolled back"


class LockLostError(TransientAttemptError):
    """Another worker has claimed the message; the handler's writes are rolled back."""


class AnswerError(Retry):
    """The database refused to write an answer, for a reason unrelated to its values."""


class RolledBackError(Retry):
    """The handler rolled its transaction back without an error, so its message is not settled."""


class SettledPositions:
    """Positions that a handler's own transaction has settled; the engine must not settle them again."""

    def __init__(self) -> None:
        self._positions: set[Position] = set()

    def add(self, claim: Claim) -> None:
        """Note a message that is in the archive."""
        self._positions.add(claim.position)

    def pop(self, claim: Claim) -> bool:
        """Return whether the message is settled, and forget it."""
        try:
            self._positions.remove(claim.position)
        except KeyError:
            return False
        return True

    def excluded_from(self, settler: Settler) -> Settler:
        """A settler that passes on only messages that are not settled yet."""
        return _RemainingSettler(self, settler)


class _RemainingSettler:
    """See `SettledPositions.excluded_from`."""

    def __init__(self, settled: SettledPositions, settler: Settler) -> None:
        self._settled = settled
        self._settler = settler

    async def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> AsyncIterator[SettleResult]:
        """See `relay.ports.Settler`."""
        settled = [self._settled.pop(claim) for claim in portion.claims]
        for done in (True, False):
            places = [place for place, already in enumerate(settled) if already is done]
            if not places:
                continue
            part = _subset(portion, places)
            chosen = [outcomes[place] for place in places]
            if done:
                yield SettleResult(part, chosen, [])
                continue
            async for written in self._settler.settle(batch, part, chosen):
                yield written

    def leave(self) -> None:
        """See `relay.ports.Settler`."""
        self._settler.leave()


def _subset(portion: Portion, places: Sequence[int]) -> Portion:
    claims, results, published, confirmed = portion
    return Portion(
        [claims[place] for place in places],
        [results[place] for place in places],
        [published[place] for place in places],
        [confirmed[place] for place in places],
    )


class Transactions:
    """Runs a handler in a transaction, passes it the connection, and settles its message in that transaction.

    Args:
        conninfo: the inbox's database, to which the handler also writes.
        schema: the inbox's schema.
        name: this worker's name, for the archive.
        prepare: whether statements may be prepared.
        max_bytes: limit of all answers together, as text.
        handler: the handler, which is called with the message and the connection.
        settled: collects the settled positions.
        policy: returns the database's current policy.
        emit: sink of an event when an answer must be written again.

    """

    def __init__(
        self,
        *,
        conninfo: Conninfo,
        schema: str,
        name: str,
        prepare: bool,
        max_bytes: int,
        handler: Handler,
        settled: SettledPositions,
        policy: Callable[[], Policy],
        emit: Sink,
    ) -> None:
        self._emit = emit
        self._prepare_threshold = 0 if prepare else None
        self._conninfo = conninfo
        self._name = name
        self._handler = handler
        self._settled = settled
        self._policy = policy
        self._statements = Statements(schema)
        self._idle: list[psycopg.AsyncConnection[Any]] = []
        self._response_memory = ResponseMemory(max_bytes)
        self._large_buffers: set[psycopg.AsyncConnection[Any]] = set()
        """Connections that have sent a large answer: libpq keeps the buffer until the connection is closed."""

    async def run(self, batch: Batch, claims: Sequence[Claim]) -> None:
        """Handle one message. If the handler or the database raises an error, nothing is written and this call raises it."""
        [claim] = claims
        written = False
        async with AsyncExitStack() as memory, AsyncExitStack() as transaction:
            connection = await self._begin(transaction)
            returned = await call(self._handler, Message(claim), connection)
            await self._write_answer(connection, batch, claim, returned, memory)
            await self._settle(connection, batch, claim)
            written = True
        if not written:
            raise RolledBackError("the handler rolled its transaction back (psycopg.Rollback); raise another exception, or Reject")
        self._settled.add(claim)

    async def answer(self, batch: Batch, claim: Claim, returned: object) -> None:
        """Write an answer and the settle in one transaction, and retry until they are written; raises the errors of `run`.

        Without an answer to write, this call does nothing.
        """
        if not (isinstance(returned, Mapping) or is_request(claim)):
            return
        attempt = 0
        while not (attempt and await self._was_settled(batch, claim)):
            try:
                async with AsyncExitStack() as memory, AsyncExitStack() as transaction:
                    connection = await self._begin(transaction)
                    await self._write_answer(connection, batch, claim, returned, memory)
                    await self._settle(connection, batch, claim)
                break
            except (psycopg.OperationalError, psycopg.errors.CheckViolation, NotStartedError) as error:
                # The database is unavailable, busy, or has no partition for the day: such a failure must not make the handler run again.
                attempt += 1
                self._emit(SettleFailed(1, reason(error) if isinstance(error, psycopg.Error) else str(error), attempt))
                await asyncio.sleep(pause(attempt, longest=LONGEST_PAUSE))
        self._settled.add(claim)

    async def _write_answer(
        self, connection: psycopg.AsyncConnection[Any], batch: Batch, claim: Claim, returned: object, memory: AsyncExitStack
    ) -> None:
        """Write the answer if the handler returned one or a request row waits for one. The settle must follow, then the end of `memory`."""
        if not (isinstance(returned, Mapping) or is_request(claim)):
            return
        limit = self._policy().max_body_bytes
        answer = await memory.enter_async_context(self._response_memory.admit(lambda: answer_of(returned, max_bytes=limit)))
        if len(answer.text or "") > LARGE_ANSWER:
            self._large_buffers.add(connection)
        values = {"id": claim.id, "token": batch.token, "answer": answer.text, "bytes": answer.binary}
        try:
            [(code, sentence)] = await (await connection.execute(self._statements["answer_request"], values)).fetchall()
        except psycopg.errors.LockNotAvailable as error:
            # Another session may lock the row for hours: other messages need the slot, and this message is claimed again later.
            raise AnswerError("its answer was not written: another session holds the row of its request") from error
        except psycopg.OperationalError as error:
            if not (error.sqlstate or "").startswith(BEYOND_A_LIMIT):
                raise
            raise Reject(f"The answer is beyond a limit of PostgreSQL: {reason(error)}.", code="answer_refused") from error
        except psycopg.Error as error:
            raise AnswerError(f"its answer was not written: {reason(error)}") from error
        if code == LOCK_LOST:
            raise LockLostError(TAKEN_OVER)
        if code:
            raise Reject(sentence, code=code)

    async def _was_settled(self, batch: Batch, claim: Claim) -> bool:
        """Whether an earlier COMMIT succeeded although its reply was lost."""
        values = {"ids": [claim.id], "successes": [claim.id], "handled_by": self._name, "claimed_at": batch.claimed_at}
        with suppress(psycopg.OperationalError, NotStartedError):
            async with AsyncExitStack() as transaction:
                connection = await self._begin(transaction)
                return bool(await (await connection.execute(self._statements["find_archived"], values)).fetchall())
        return False

    async def _return_connection(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Keep the connection for the next handler, unless its state is unknown or its buffer is large."""
        large_buffer = connection in self._large_buffers
        self._large_buffers.discard(connection)
        if connection.info.transaction_status == TransactionStatus.IDLE and not large_buffer:
            self._idle.append(connection)
        else:
            await connection.close()

    async def _settle(self, connection: psycopg.AsyncConnection[Any], batch: Batch, claim: Claim) -> None:
        """Settle, fenced by the lock token: without the lock there is no commit."""
        values = settle_of(batch, [SettleRow(claim, SUCCESS, None, None)], name=self._name, policy=self._policy())
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self._statements["settle"], values)
            if await cursor.fetchall():
                raise LockLostError(TAKEN_OVER)

    async def _begin(self, stack: AsyncExitStack) -> psycopg.AsyncConnection[Any]:
        """A connection in a transaction that ends with the stack. A failure here does not count as an attempt of the message."""
        while self._idle:
            # A connection that a restart has closed fails here, not in a handler.
            with suppress(psycopg.OperationalError):
                return await self._enter(stack, self._idle.pop())
        try:
            return await self._enter(stack, await self._connect())
        except (psycopg.Error, OSError, UnicodeError) as error:
            await asyncio.sleep(NO_CONNECTION_PAUSE)
            raise NotStartedError(f"The handler got no connection ({type(error).__name__}).") from error

    async def _enter(self, stack: AsyncExitStack, connection: psycopg.AsyncConnection[Any]) -> psycopg.AsyncConnection[Any]:
        stack.push_async_callback(self._return_connection, connection)
        await stack.enter_async_context(connection.transaction())
        return connection

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        connection = await connect(self._conninfo, f"outbox-relay/{self._name} work", prepare_threshold=self._prepare_threshold)
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        await connection.execute(PIN_OF_HANDLERS, prepare=False)
        return connection

    async def aclose(self) -> None:
        """Close the idle connections."""
        await asyncio.gather(*(connection.close() for connection in self._idle))
