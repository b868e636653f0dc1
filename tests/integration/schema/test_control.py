"""The control plane is SQL: psql is enough in an emergency."""

from __future__ import annotations

from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import errors

from tests.support.database.queue import MadeStore, Queue

HOLD = "UPDATE queue_message SET lock_expires_at = now() + interval '30 s' WHERE id = %s"


async def signed(queue: Queue, by: str = "") -> str:
    """How this connection's login signs, for itself or in a name."""
    user = str(await queue.value("SELECT session_user::text"))
    return f"{user} (as {by})" if by else user


async def swept(queue: Queue, arguments: str = "") -> tuple[int, int]:
    """Released and archived."""
    [(released, archived)] = await queue.sql(f"SELECT released, archived FROM queue_message_sweep({arguments})")
    return released, archived


async def test_an_exchange_is_paused_and_resumed(queue: Queue) -> None:
    """With who, since when and why; a second call says that it was paused, and only a new reason changes anything."""
    held = "SELECT exchange, paused_by, reason, paused_at FROM queue_message_pause"
    assert await queue.value("SELECT queue_message_pause('orders', 'too loud', 'ann')")
    [(exchange, by, reason, since)] = await queue.sql(held)
    assert ("orders", await signed(queue, "ann"), "too loud") == (exchange, by, reason)

    assert not await queue.value("SELECT queue_message_pause('orders')")
    assert [("orders", by, "too loud", since)] == await queue.sql(held)
    assert not await queue.value("SELECT queue_message_pause('orders', 'still too loud', 'bob')")
    assert [("orders", await signed(queue, "bob"), "still too loud", since)] == await queue.sql(held)
    assert await queue.value("SELECT queue_message_resume('orders')")
    assert not await queue.value("SELECT queue_message_resume('orders')")


async def test_an_exchange_is_limited_and_let_go(queue: Queue) -> None:
    """With who, since when and why. Another figure replaces all of that; with the same one only a new reason changes anything."""
    held = "SELECT exchange, per_second, limited_by, reason, limited_at FROM queue_message_limit"
    assert await queue.value("SELECT queue_message_limit('orders', 50, 'old consumer', 'ann')")
    [first] = await queue.sql(held)
    assert ("orders", 50.0, await signed(queue, "ann"), "old consumer") == first[:4]

    assert not await queue.value("SELECT queue_message_limit('orders', 50)")
    assert [first] == await queue.sql(held)
    assert not await queue.value("SELECT queue_message_limit('orders', 50, 'still old', 'bob')")
    assert [("orders", 50.0, await signed(queue, "bob"), "still old", first[4])] == await queue.sql(held)
    assert not await queue.value("SELECT queue_message_limit('orders', 0.5)")
    [last] = await queue.sql(held)
    assert ("orders", 0.5, await signed(queue), "") == last[:4]
    assert first[4] < last[4]
    assert 1 == await queue.value("SELECT limited_exchanges FROM queue_message_status")
    assert await queue.value("SELECT queue_message_unlimit('orders')")
    assert not await queue.value("SELECT queue_message_unlimit('orders')")


@pytest.mark.parametrize("figure", ["0", "-1", "'NaN'", "'Infinity'", "1000001", "0.0009", "NULL"])
async def test_a_figure_that_is_no_limit_is_refused(queue: Queue, figure: str) -> None:
    """With a sentence, and by the table itself."""
    with pytest.raises(errors.RaiseException, match=r"from 0\.001 to 1000000 messages a second; to send nothing of an exchange, pause"):
        await queue.sql(f"SELECT queue_message_limit('orders', {figure})")
    with pytest.raises((errors.CheckViolation, errors.NotNullViolation)):
        await queue.sql(f"INSERT INTO queue_message_limit (exchange, per_second) VALUES ('orders', {figure})")


async def test_a_key_is_parked_and_resumed(queue: Queue) -> None:
    """Resuming makes the head due, so that its lane's owner finds it."""
    await queue.insert(2, ordering_key="k")
    assert await queue.value("SELECT queue_message_key_park('k', 'wait', 'ann')")
    assert not await queue.value("SELECT queue_message_key_park('k')")
    parked = "SELECT ordering_key, held_by, reason FROM queue_message_key_hold"
    assert [("k", await signed(queue, "ann"), "wait")] == await queue.sql(parked)
    assert not await queue.value("SELECT queue_message_key_park('k', 'longer')")
    assert [("k", await signed(queue), "longer")] == await queue.sql(parked)

    assert await queue.value("SELECT queue_message_key_resume('k')")
    assert not await queue.value("SELECT queue_message_key_resume('k')")
    assert [(True,), (False,)] == await queue.sql("SELECT available_at IS NOT NULL FROM queue_message ORDER BY seq")


async def test_a_blocked_head_is_skipped(queue: Queue) -> None:
    """It is archived discarded with its last error, and its successor is due."""
    first, second = await queue.insert(2, ordering_key="k")
    await queue.sql("UPDATE queue_message SET available_at = now() + interval '1 h', last_error = 'no route' WHERE id = %s", first)

    assert UUID(first) == await queue.value("SELECT queue_message_key_skip('k', 'ann')")

    kept = await queue.archived(first)
    expected = ("discarded", "skipped", "no route", await signed(queue, "ann"))
    assert expected == tuple(kept[c] for c in ("result", "error_code", "error_detail", "handled_by"))
    assert [(UUID(second), True)] == await queue.sql("SELECT id, available_at <= now() FROM queue_message")


async def test_a_head_in_flight_is_not_skipped(queue: Queue) -> None:
    """It may be with the broker; once its lock has expired it may go."""
    [id_] = await queue.insert(ordering_key="k")
    await queue.sql(HOLD, id_)
    with pytest.raises(errors.ObjectInUse, match=f"Message {id_} is locked until .*; try again after that"):
        await queue.sql("SELECT queue_message_key_skip('k')")
    await queue.expire()
    await queue.sql("SELECT queue_message_key_skip('k')")
    with pytest.raises(errors.NoDataFound, match="No message waits under the ordering key 'k'"):
        await queue.sql("SELECT queue_message_key_skip('k')")


async def test_a_successor_is_not_skipped_in_the_place_of_its_head(queue: Queue) -> None:
    """Who names the head that was seen skips it or nothing: it may have been settled meanwhile."""
    first, second = await queue.insert(2, ordering_key="k")
    await queue.sql("SELECT queue_message_key_skip('k', expected => %s)", first)

    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=f"The first message of the ordering key 'k' is {second}, not {first}"):
        await queue.sql("SELECT queue_message_key_skip('k', expected => %s)", first)

    assert (1, {first: "discarded"}) == (await queue.waiting(), await queue.results())


@pytest.mark.ids("A12", "A28", "B9")
async def test_expired_locks_come_back_as_suspects(queue: Queue, store: MadeStore) -> None:
    """Due at once with the attempt counted and the holder remembered, so that they are claimed alone; living locks stay."""
    await queue.insert(3)
    batch = await store.batch()
    lost, kept = batch.claims[0].id, batch.claims[1].id
    await queue.expire(lost)

    assert (1, 0) == await swept(queue)

    row = await queue.row(lost)
    assert (None, None, store.relay_id, 1) == tuple(row[c] for c in ("lock_expires_at", "lock_token", "locked_by", "attempts"))
    assert await queue.value("SELECT available_at <= now() FROM queue_message WHERE id = %s", lost)
    assert "lock expired at" in row["last_error"]
    assert (await queue.row(kept))["lock_token"] == batch.token


@pytest.mark.ids("A12")
async def test_a_lock_by_hand_comes_back_with_an_attempt(queue: Queue) -> None:
    """Programs that follow the convention count none when they lock."""
    [id_] = await queue.insert()
    await queue.sql(HOLD, id_)
    await queue.expire()
    assert (1, 0) == await swept(queue)
    row = await queue.row(id_)
    assert (0, 1) == (row["locked_by"], row["attempts"])


@pytest.mark.ids("A11", "A28")
@pytest.mark.parametrize(("setting", "value"), [("max_attempts", "1"), ("on_lock_expired", "archive")])
async def test_a_lock_that_expires_once_too_often_is_dead(queue: Queue, store: MadeStore, setting: str, value: str) -> None:
    """After the last attempt, or at once where the policy is strict; the archive names the holder."""
    await queue.sql("SELECT queue_message_config_set(%s, %s)", setting, value)
    [id_] = await queue.insert()
    await store.batch()
    await queue.expire()

    assert (0, 1) == await swept(queue)

    kept = await queue.archived(id_)
    name = await queue.value("SELECT name FROM queue_message_relay")
    assert ("lock_expired", "lock_expired", name) == (kept["result"], kept["error_code"], kept["handled_by"])
    assert f"The lock of {name} expired at" in kept["error_detail"]


@pytest.mark.parametrize(("policy", "parked"), [("continue", False), ("park", True)])
async def test_a_dead_head_frees_or_parks_its_key(queue: Queue, policy: str, parked: bool) -> None:
    """By policy, as when the broker refuses it."""
    await queue.sql("SELECT queue_message_config_set('on_lock_expired', 'archive'), queue_message_config_set('on_dead_key', %s)", policy)
    first, _ = await queue.insert(2, ordering_key="k")
    await queue.sql(HOLD, first)
    await queue.expire(first)

    assert (0, 1) == await swept(queue)

    assert parked == await queue.value("SELECT count(*) = 1 FROM queue_message_key_hold WHERE held_by = 'sweep'")
    assert await queue.value("SELECT available_at IS NULL FROM queue_message") == parked


async def test_one_that_the_archive_refuses_keeps_no_other(queue: Queue) -> None:
    """It stays in the queue with a warning, and the rest is archived and released."""
    await queue.sql("ALTER TABLE queue_message_dead ADD CHECK (exchange <> 'poison')")
    await queue.sql("SELECT queue_message_config_set('on_lock_expired', 'archive')")
    poison, other = [*await queue.insert(exchange="poison"), *await queue.insert()]
    await queue.sql("UPDATE queue_message SET lock_expires_at = now()")
    warnings: list[str | None] = []
    queue.connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary))

    assert (0, 1) == await swept(queue)

    assert [(UUID(poison),)] == await queue.sql("SELECT id FROM queue_message")
    assert {other: "lock_expired"} == await queue.results()
    assert any(f"message {poison} cannot be archived" in str(warning) for warning in warnings)


async def test_a_sweep_keeps_to_its_bounds(queue: Queue, store: MadeStore) -> None:
    """One holder, a first position, a last one, and a number."""
    await queue.insert(4)
    batch = await store.batch(limit=3)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() WHERE lock_expires_at IS NULL")
    await queue.expire()
    [_, second, third] = batch.claims

    assert (0, 0) == await swept(queue, f"holder => {store.relay_id + 1}")
    assert (1, 0) == await swept(
        queue, f"from_xid => '{second.xid}', from_seq => {second.seq}, below_xid => '{third.xid}', below_seq => {third.seq}"
    )
    assert (1, 0) == await swept(queue, "most => 1")
    assert (1, 0) == await swept(queue, f"holder => {store.relay_id}")
    assert (1, 0) == await swept(queue)


async def test_two_sweeps_do_not_wait_for_each_other(queue: Queue) -> None:
    """Each steps over the rows that the other holds."""
    await queue.insert(2)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now()")
    await queue.sql("SET statement_timeout = '10s'")
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        assert (1, 0) == await (await other.execute("SELECT released, archived FROM queue_message_sweep(most => 1)")).fetchone()
        assert (1, 0) == await swept(queue)


@pytest.mark.ids("A12", "A30")
async def test_the_minutes_sweep_finds_locks_by_hand(queue: Queue) -> None:
    """No relay has ever run here."""
    await queue.insert(2)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now()")
    assert [(2, 0)] == await queue.sql("SELECT released, archived FROM queue_message_sweep_minute()")


async def test_a_dead_message_is_answered_once(queue: Queue) -> None:
    """The answer is stored alongside the archive, which does not change."""
    [id_] = await queue.insert()
    await queue.sql("UPDATE queue_message SET lock_expires_at = now()")
    await queue.sql("SELECT queue_message_config_set('on_lock_expired', 'archive'), queue_message_sweep()")
    assert 1 == await queue.value("SELECT dead_unacknowledged FROM queue_message_status")

    assert 1 == await queue.value("SELECT queue_message_dead_acknowledge(%s, 'ann', 'known')", id_)
    assert 0 == await queue.value("SELECT queue_message_dead_acknowledge(%s, 'bob')", id_)

    assert [(await signed(queue, "ann"), "known")] == await queue.sql("SELECT acknowledged_by, note FROM queue_message_dead_list")
    assert 0 == await queue.value("SELECT dead_unacknowledged FROM queue_message_status")
    with pytest.raises(errors.NoDataFound, match="No dead message has the id"):
        await queue.sql("SELECT queue_message_dead_acknowledge(%s)", uuid4())


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("reason", "SELECT queue_message_pause('orders', %s)"),
        ("reason", "SELECT queue_message_limit('orders', 1, %s)"),
        ("reason", "SELECT queue_message_key_park('k', %s)"),
        ("note", "SELECT queue_message_dead_acknowledge(id, 'ann', %s) FROM queue_message_dead"),
        ("note", "SELECT queue_message_dead_answer(id, xid, seq, 'ann', %s) FROM queue_message_dead"),
    ],
    ids=["pause", "limit", "park", "acknowledge", "answer"],
)
async def test_what_is_said_of_something_is_no_longer_than_people_read(queue: Queue, name: str, statement: str) -> None:
    """The limit is 4,000 bytes. A page of 500 rows with megabytes of text each would take all memory of its reader."""
    await queue.insert()
    await queue.sql("SELECT queue_message_archive_now(array_agg(id), 'rejected', 'c', 'd', 'r') FROM queue_message")
    with pytest.raises(errors.CheckViolation, match=f"{name} is 4001 bytes long; the limit is 4000 bytes"):
        await queue.sql(statement, "é" * 2000 + "x")
    assert await queue.value(statement, "é" * 2000)
