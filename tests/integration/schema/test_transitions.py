"""Legal moves only: ready to locked to ready or archived, enforced by the database."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from tests.support.database.queue import Queue

LOCK = """
    UPDATE queue_message SET lock_expires_at = now() + interval '30 s', lock_token = gen_random_uuid(), locked_by = 1,
        attempts = attempts + 1
"""
RELEASE = "UPDATE queue_message SET lock_expires_at = NULL, lock_token = NULL, locked_by = NULL"
UNCHANGEABLE = {
    "id": "gen_random_uuid()", "xid": "'2'", "exchange": "'other'", "routing_key": "'other'", "content": """'{"n": 2}'""",
    "body": "'x', content = '{}'", "options": """'{"priority": 1}'""", "ordering_key": "'other'", "created_at": "now() + interval '1 s'",
    "replay_of": "gen_random_uuid()",
}  # fmt: skip

pytestmark = pytest.mark.ids("B8")


async def refused(queue: Queue, statement: str, sentence: str) -> None:
    """The statement is refused with this sentence and changes nothing."""
    before = await queue.sql("SELECT m::text FROM queue_message m ORDER BY seq")
    with pytest.raises(errors.CheckViolation, match=sentence):
        await queue.sql(statement)
    assert before == await queue.sql("SELECT m::text FROM queue_message m ORDER BY seq")


@pytest.mark.parametrize(
    "columns",
    ["lock_expires_at) VALUES ('e', now())", "lock_token) VALUES ('e', gen_random_uuid())", "locked_by) VALUES ('e', 1)",
     "attempts) VALUES ('e', 1)", "last_error) VALUES ('e', 'x')"],
)  # fmt: skip
async def test_a_new_message_is_ready(queue: Queue, columns: str) -> None:
    """An inserter can neither lock it nor pretend attempts."""
    await refused(queue, f"INSERT INTO queue_message (exchange, {columns}", "a new message is not locked and has no attempts")


async def test_the_place_in_the_queue_is_given(queue: Queue) -> None:
    """A place below the heads of the relays would strand the message."""
    await refused(queue, "INSERT INTO queue_message (xid, exchange) VALUES ('3', 'e')", "its place is given by the database")
    with pytest.raises(errors.GeneratedAlways):
        await queue.sql("INSERT INTO queue_message (seq, exchange) VALUES (1, 'e')")


@pytest.mark.parametrize("column", UNCHANGEABLE)
@pytest.mark.parametrize("locked", [False, True])
async def test_a_queued_message_does_not_change(queue: Queue, column: str, locked: bool) -> None:
    """What was committed is what goes out."""
    await queue.insert(content='{"n": 1}')
    if locked:
        await queue.sql(LOCK)

    await refused(queue, f"UPDATE queue_message SET {column} = {UNCHANGEABLE[column]}", "a queued message does not change")
    await queue.sql("UPDATE queue_message SET content = content, routing_key = routing_key")


async def test_times_may_move(queue: Queue) -> None:
    """An application may put a message off or bring it forward."""
    await queue.insert()
    await queue.sql("UPDATE queue_message SET available_at = now() + interval '1 h', expires_at = now() + interval '2 h'")
    assert 1 == await queue.waiting()


async def test_a_living_lock_is_not_taken_over(queue: Queue) -> None:
    """Another token, or none, comes only after the end of the lock or a release."""
    await queue.insert()
    await queue.sql(LOCK)

    sentence = "it is locked; wait until lock_expires_at has passed, or release it first"
    await refused(queue, "UPDATE queue_message SET lock_token = gen_random_uuid()", sentence)
    await refused(queue, "UPDATE queue_message SET lock_token = NULL, lock_expires_at = now() + interval '1 h'", sentence)


async def test_the_same_token_renews(queue: Queue) -> None:
    """A renewal moves the end of the lock and nothing else."""
    await queue.insert()
    await queue.sql(LOCK)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() + interval '1 h'")
    assert await queue.value("SELECT lock_expires_at > now() + interval '59 min' FROM queue_message")


async def test_an_expired_lock_is_taken_over(queue: Queue) -> None:
    """Once its end has passed, a lock may be replaced."""
    await queue.insert()
    await queue.sql(LOCK)
    await queue.expire()
    await queue.sql(LOCK)
    assert 2 == await queue.value("SELECT attempts FROM queue_message")


@pytest.mark.ids("A5", "B8")
async def test_a_lock_by_hand_needs_its_end_alone(queue: Queue) -> None:
    """Programs that follow the convention set lock_expires_at and clear it again."""
    await queue.insert()
    by_hand = "UPDATE queue_message SET lock_expires_at = now() + interval '5 s' WHERE lock_expires_at IS NULL RETURNING 1"
    assert [(1,)] == await queue.sql(by_hand)
    assert [] == await queue.sql(by_hand)
    await queue.sql("UPDATE queue_message SET lock_expires_at = NULL")
    assert [(1,)] == await queue.sql(by_hand)


async def test_a_token_without_a_lock_is_refused(queue: Queue) -> None:
    """Half a release would leave a fence around nothing."""
    await queue.insert()
    await queue.sql(LOCK)
    await refused(queue, "UPDATE queue_message SET lock_expires_at = NULL", "set lock_expires_at and lock_token to NULL together")


@pytest.mark.parametrize("change", ["attempts - 2", "attempts + 2", "0", "-1"])
async def test_attempts_move_by_one(queue: Queue, change: str) -> None:
    """A claim adds one, and a release may take it away."""
    await queue.insert()
    for _ in range(3):
        await queue.sql(LOCK)
        await queue.sql(RELEASE)

    await refused(queue, f"UPDATE queue_message SET attempts = {change}", "attempts")
    await queue.sql("UPDATE queue_message SET attempts = attempts - 1")


async def test_legal_moves_call_no_function(queue: Queue) -> None:
    """A claim and a renewal fire no trigger at all."""
    await queue.insert(50)
    async with await psycopg.AsyncConnection.connect(queue.url, autocommit=True) as watcher:
        plan = "EXPLAIN (ANALYZE, FORMAT TEXT) "
        shown = await (await watcher.execute((plan + LOCK).encode())).fetchall()
        renewed = await (await watcher.execute((plan + "UPDATE queue_message SET lock_expires_at = lock_expires_at").encode())).fetchall()
    assert [] == [line for (line,) in [*shown, *renewed] if line.startswith("Trigger")]
