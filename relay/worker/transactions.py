"""Transactions that end with a settle: what a handler writes, or the answer that it returned, is committed with it, or not at all."""

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
from relay.postgres.session_settings import PIN
from relay.queries.statements import Statements
from relay.worker.handler import Handler, call
from relay.worker.message import Message
from relay.worker.outcomes import NotStartedError, Reject, Retry, TransientAttemptError
from relay.worker.response import answer_of, is_request
from relay.worker.response_memory import ResponseMemory

NO_CONNECTION_PAUSE = 1.0
"""Seconds before a message whose handler got no connection goes back, so that it is not claimed over and over."""
LONGEST_PAUSE = 5.0
"""Seconds between two tries of an answer while the database is away."""
LARGE = 1 << 20
"""Characters of an answer after which its connection is not used again."""
LOST = "lock_lost"
"""The database's word for it."""
TAKEN_OVER = "the lock expired while it was handled; what the handler wrote is rolled back"


class LockLostError(TransientAttemptError):
    """Another worker had taken the message over: what the handler wrote is rolled back."""


class AnswerError(Retry):
    """The database refused to write an answer, for a reason that is none of its values."""


class RolledBackError(Retry):
    """The handler ended its transaction without a word, and its message is not settled."""


class Settled:
    """Positions that a handler's own transaction has settled: nobody settles them again."""

    def __init__(self) -> None:
        self._positions: set[Position] = set()

    def add(self, claim: Claim) -> None:
        """Its message is in the archive."""
        self._positions.add(claim.position)

    def take(self, claim: Claim) -> bool:
        """Whether it is settled; asked once."""
        try:
            self._positions.remove(claim.position)
        except KeyError:
            return False
        return True

    def before(self, settler: Settler) -> Settler:
        """A settler that passes on what is not settled yet."""
        return _Rest(self, settler)


class _Rest:
    """See `Settled.before`."""

    def __init__(self, settled: Settled, settler: Settler) -> None:
        self._settled = settled
        self._settler = settler

    async def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> AsyncIterator[SettleResult]:
        """See `relay.ports.Settler`."""
        through = [self._settled.take(claim) for claim in portion.claims]
        for ours in (True, False):
            places = [place for place, settled in enumerate(through) if settled is ours]
            if not places:
                continue
            part = _part(portion, places)
            chosen = [outcomes[place] for place in places]
            if ours:
                yield SettleResult(part, chosen, [])
                continue
            async for written in self._settler.settle(batch, part, chosen):
                yield written

    def leave(self) -> None:
        """See `relay.ports.Settler`."""
        self._settler.leave()


def _part(portion: Portion, places: Sequence[int]) -> Portion:
    claims, results, published, confirmed = portion
    return Portion(
        [claims[place] for place in places],
        [results[place] for place in places],
        [published[place] for place in places],
        [confirmed[place] for place in places],
    )


class Transactions:
    """Runs a handler in a transaction of a connection that it gets, and settles its message there.

    Args:
        conninfo: of the inbox's database, where the handler writes too.
        schema: of the inbox.
        name: this worker, for the archive.
        prepare: statements may be prepared.
        most_bytes: bytes that answers may take as text, all together.
        handler: takes the message and the connection.
        settled: told of what is settled.
        policy: the database's policy that holds now.
        emit: hears of an answer that is written again.

    """

    def __init__(
        self,
        *,
        conninfo: Conninfo,
        schema: str,
        name: str,
        prepare: bool,
        most_bytes: int,
        handler: Handler,
        settled: Settled,
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
        self._free: list[psycopg.AsyncConnection[Any]] = []
        self._kept = ResponseMemory(most_bytes)
        self._grown: set[psycopg.AsyncConnection[Any]] = set()
        """Connections that have sent something large: libpq keeps the buffer for as long as there is the connection."""

    async def run(self, batch: Batch, claims: Sequence[Claim]) -> None:
        """Handle one message; raises what the handler or the database raises, after which nothing of it is written."""
        [claim] = claims
        written = False
        async with AsyncExitStack() as kept, AsyncExitStack() as transaction:
            connection = await self._begun(transaction)
            returned = await call(self._handler, Message(claim), connection)
            await self._answer(connection, batch, claim, returned, kept)
            await self._write(connection, batch, claim)
            written = True
        if not written:
            raise RolledBackError("the handler rolled its transaction back (psycopg.Rollback); raise another exception, or Reject")
        self._settled.add(claim)

    async def answer(self, batch: Batch, claim: Claim, returned: object) -> None:
        """Write what a handler returned outside of a transaction with the settle, as often as it takes; raises what `run` raises.

        Nothing is done where there is no answer to write.
        """
        if not (isinstance(returned, Mapping) or is_request(claim)):
            return
        attempt = 0
        while not (attempt and await self._was_settled(batch, claim)):
            try:
                async with AsyncExitStack() as kept, AsyncExitStack() as transaction:
                    connection = await self._begun(transaction)
                    await self._answer(connection, batch, claim, returned, kept)
                    await self._write(connection, batch, claim)
                break
            except (psycopg.OperationalError, psycopg.errors.CheckViolation, NotStartedError) as error:
                # The database is away, busy, or has no partition for the day. Nobody does the work again for that.
                attempt += 1
                self._emit(SettleFailed(1, reason(error) if isinstance(error, psycopg.Error) else str(error), attempt))
                await asyncio.sleep(pause(attempt, longest=LONGEST_PAUSE))
        self._settled.add(claim)

    async def _answer(
        self, connection: psycopg.AsyncConnection[Any], batch: Batch, claim: Claim, returned: object, kept: AsyncExitStack
    ) -> None:
        """The answer, where there is one or a row waits for one; the message's settle must follow, and then the end of `kept`."""
        if not (isinstance(returned, Mapping) or is_request(claim)):
            return
        answer = await kept.enter_async_context(self._kept.made(lambda: answer_of(returned, most=self._policy().max_body_bytes)))
        if len(answer.text or "") > LARGE:
            self._grown.add(connection)
        values = {"id": claim.id, "token": batch.token, "answer": answer.text, "bytes": answer.binary}
        try:
            [(code, sentence)] = await (await connection.execute(self._statements["answer_request"], values)).fetchall()
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            raise AnswerError(f"its answer was not written: {reason(error)}") from error
        if code == LOST:
            raise LockLostError(TAKEN_OVER)
        if code:
            raise Reject(sentence, code=code)

    async def _was_settled(self, batch: Batch, claim: Claim) -> bool:
        """Whether a COMMIT had come through whose answer was lost."""
        values = {"ids": [claim.id], "successes": [claim.id], "handled_by": self._name, "claimed_at": batch.claimed_at}
        with suppress(psycopg.OperationalError, NotStartedError):
            async with AsyncExitStack() as transaction:
                connection = await self._begun(transaction)
                return bool(await (await connection.execute(self._statements["find_archived"], values)).fetchall())
        return False

    async def _put_back(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Keep it for the next handler, unless its state is not known, or it has grown."""
        grown = connection in self._grown
        self._grown.discard(connection)
        if connection.info.transaction_status == TransactionStatus.IDLE and not grown:
            self._free.append(connection)
        else:
            await connection.close()

    async def _write(self, connection: psycopg.AsyncConnection[Any], batch: Batch, claim: Claim) -> None:
        """The settle, fenced by the lock token: without the lock there is no commit."""
        values = settle_of(batch, [SettleRow(claim, SUCCESS, None, None)], name=self._name, policy=self._policy())
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self._statements["settle"], values)
            if await cursor.fetchall():
                raise LockLostError(TAKEN_OVER)

    async def _begun(self, stack: AsyncExitStack) -> psycopg.AsyncConnection[Any]:
        """A connection in a transaction, which ends with the stack; what keeps it from that is not the message's fault."""
        while self._free:
            # One that a restart has closed is found here, and not by a handler.
            with suppress(psycopg.OperationalError):
                return await self._enter(stack, self._free.pop())
        try:
            return await self._enter(stack, await self._connected())
        except (psycopg.Error, OSError, UnicodeError) as error:
            await asyncio.sleep(NO_CONNECTION_PAUSE)
            raise NotStartedError(f"The handler got no connection ({type(error).__name__}).") from error

    async def _enter(self, stack: AsyncExitStack, connection: psycopg.AsyncConnection[Any]) -> psycopg.AsyncConnection[Any]:
        stack.push_async_callback(self._put_back, connection)
        await stack.enter_async_context(connection.transaction())
        return connection

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        connection = await connect(self._conninfo, f"outbox-relay/{self._name} work", prepare_threshold=self._prepare_threshold)
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        await connection.execute(PIN, prepare=False)
        # The handler's own statements may count on its role's or its database's.
        await connection.execute("RESET TimeZone", prepare=False)
        return connection

    async def aclose(self) -> None:
        """Close what is free."""
        await asyncio.gather(*(connection.close() for connection in self._free))
