"""Rows of a table `page` whose rows are requests: asked, answered and archived by hand."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from relay.message import Batch, Outcome
from relay.ports import SettleRow
from tests.support.database.queue import MadeStore, Queue

NO_ANSWER = {"at": None, "code": None, "error": None}


async def asked(queue: Queue, number: int = 1) -> str:
    """Insert one request; return its message's id."""
    await queue.sql("INSERT INTO page (id, url) VALUES (%s, 'u')", number)
    return str(await queue.value("SELECT id FROM queue_message ORDER BY xid DESC, seq DESC LIMIT 1"))


async def answered(connection: psycopg.AsyncConnection[Any], batch: Batch, answer: object, *, settle: bool = True) -> str | None:
    """Answer the only message of a batch by hand, with its settle; return the code of the refusal, if any."""
    [claim] = batch.claims
    values = (claim.id, batch.token, None if answer is None else json.dumps(answer))
    [(code, _)] = await (await connection.execute("SELECT * FROM queue_message_answer(%s, %s, %s)", values)).fetchall()
    if settle and code is None:
        columns = "xid, seq, id, exchange, routing_key, content, options, created_at, attempts, replay_of"
        await connection.execute(
            f"WITH d AS (DELETE FROM queue_message WHERE id = %s RETURNING *) INSERT INTO queue_message_archive ({columns}, result)"
            f" SELECT {columns}, 'success' FROM d".encode(),
            (claim.id,),
        )
    await connection.commit()
    return code  # type: ignore[no-any-return]


async def settled(store: MadeStore, batch: Batch, outcome: Outcome) -> None:
    """Archive a batch as a relay does."""
    assert [] == await store.archive(batch, [SettleRow(claim, outcome, None, None) for claim in batch.claims], again=False)


async def row(queue: Queue, number: int = 1) -> dict[str, Any]:
    """Answer columns of a request."""
    return dict(await queue.value("SELECT to_jsonb(f) - '{id,url,seen,loud,note}'::text[] FROM page f WHERE id = %s", number))
