"""A table of ours may gain columns of any name: what the functions call their parameters and variables is no reserved word."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest
from psycopg import sql

from relay.message import Archive, Result
from relay.ports import SettleRow
from tests.support.database.queue import MadeStore, Queue

Step = Callable[[Queue, MadeStore], Awaitable[None]]
_DECLARED = re.compile(r"^    (\w+) [\w.]+", re.MULTILINE)


def names_in(arguments: list[str] | None, text: str) -> set[str]:
    """Parameters and variables of one function."""
    declared = re.search(r"DECLARE\n(.*?)\nBEGIN", text, re.DOTALL)
    return {*filter(None, arguments or []), *(_DECLARED.findall(declared[1]) if declared else [])}


@pytest.fixture
async def widened(queue: Queue) -> Queue:
    """Every table of ours with a column of each name that a function of ours uses for itself."""
    functions = await queue.sql("SELECT proargnames, prosrc FROM pg_proc WHERE proname LIKE 'queue%'")
    names = set[str]().union(*(names_in(*function) for function in functions))
    assert {"clock", "expired", "holder", "most", "allowed", "dead", "from_xid", "below_xid", "key", "ids", "now", "setting"} <= names
    tables = """SELECT oid::regclass::text, ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid) FROM pg_class c
        WHERE relkind IN ('r', 'p') AND NOT relispartition AND relname LIKE 'queue%'"""
    for table, columns in await queue.sql(tables):
        added = [sql.SQL("ADD COLUMN {} text").format(sql.Identifier(name)) for name in sorted(names - {*columns})]
        await queue.connection.execute(sql.SQL("ALTER TABLE {} {}").format(sql.Identifier(table), sql.SQL(", ").join(added)))
    return queue


async def relay_settles(queue: Queue, store: MadeStore) -> None:
    """What was sent, and what was not."""
    ids = await queue.insert(2)
    batch = await store.batch()
    rows = [SettleRow(claim, outcome, None, None) for claim, outcome in zip(batch.claims, OUTCOMES, strict=True)]

    assert [] == await store.archive(batch, rows, again=False)
    assert [] == await store.archive(batch, rows, again=True)
    assert {ids[0]: "success", ids[1]: "failed"} == await queue.results()


OUTCOMES = (Archive(Result.SUCCESS), Archive(Result.FAILED, "x", "x"))


async def locks_are_swept(queue: Queue, store: MadeStore) -> None:
    """Back to the queue, by a holder's name and without, and to the archive by policy."""
    await queue.insert(2)
    await queue.insert(ordering_key="k")
    await store.take()
    await store.heads("k")
    await queue.expire()
    sweep = "SELECT ARRAY[released, archived] FROM queue_message_sweep"
    assert [0, 0] == await queue.value(f"{sweep}(holder => 999)")
    assert [1, 0] == await queue.value(f"{sweep}(holder => %s, below_xid => '1', most => 1, apart => true)", store.relay_id)
    assert [1, 0] == await queue.value(f"{sweep}(most => 1)")
    await queue.sql("SELECT queue_message_config_set('on_lock_expired', 'archive'), queue_message_config_set('on_dead_key', 'park')")
    assert [0, 1] == await queue.value(f"{sweep}_minute()")
    assert (0, 0) == await store.sweep()


async def a_head_is_skipped(queue: Queue, store: MadeStore) -> None:
    """That of its own key, and only it; the next one is due."""
    await queue.insert(ordering_key="other")
    first, second = await queue.insert(2, ordering_key="k")
    assert await queue.value("SELECT queue_message_key_park('k', 'why')")
    assert await queue.value("SELECT queue_message_key_resume('k')")

    assert first == str(await queue.value("SELECT queue_message_key_skip('k')"))
    assert {first: "discarded"} == await queue.results()
    assert (await queue.row(second))["available_at"]
    assert [second] == await store.heads("k")


async def messages_are_replayed(queue: Queue, store: MadeStore) -> None:
    """One by its id, many by a filter, with a job once."""
    ids = await queue.insert(2)
    assert 2 == await queue.value("SELECT queue_message_archive_now(%s::uuid[], 'failed', 'x', 'x', 'r')", ids)
    assert await queue.value("SELECT queue_message_replay(%s)", ids[0])
    many = "SELECT count(*) FROM queue_message_replay_many(exchange => 'orders', again => true, dry_run => false, job => 'j')"
    assert [2, 0] == [await queue.value(many), await queue.value(many)]
    await queue.sql("DELETE FROM queue_message_dead_ack")
    assert 1 == await queue.value("SELECT queue_message_dead_acknowledge(%s)", ids[1])
    assert store.relay_id


async def the_archive_is_retained(queue: Queue, store: MadeStore) -> None:
    """Dead messages and days, without an export and with one; and what its metrics ask."""
    later = "SELECT count(*) FROM queue_message_retain(now() + interval '400 days') WHERE action IN ('deleted', 'dropped')"
    ids = await queue.insert(2)
    await queue.sql("SELECT queue_message_archive_now(%s::uuid[], 'failed', 'x', 'x', 'r')", ids[:1])
    await queue.sql("SELECT queue_message_archive_now(%s::uuid[], 'success', NULL, NULL, 'r')", ids[1:])
    assert 2 == await queue.value(later)
    await queue.sql("SELECT queue_message_config_set('export_registered', 'true')")
    assert 0 == await queue.value(later)
    kept = "SELECT count(*) FROM queue_message_retain(now() + interval '400 days') WHERE action = %s"
    assert 0 < await queue.value(kept, "unseen")
    await queue.sql("SELECT queue_message_export_begin('a', NULL, 1), queue_message_export_unseen('x'), queue_message_export_follow('b')")
    await queue.sql("SELECT queue_message_export_begin('b', NULL, 2)")
    assert await queue.value("SELECT queue_message_export_commit('b', 2, '7', 1)")
    assert await queue.value("SELECT queue_message_export_seen('b', 2, 1, clock_timestamp(), ARRAY['d'], ARRAY[1], ARRAY['x'])")
    assert not await queue.value("SELECT queue_message_export_seen('b', 2, 1, '-infinity', ARRAY['d'], ARRAY[1], ARRAY[NULL])")
    assert [(True, True)] == await queue.sql("SELECT registered, seen FROM queue_message_lake")
    assert 0 < await queue.value(kept, "unverified")
    await queue.sql("SELECT queue_message_export_progress('7'), queue_message_export_lag(), queue_message_days_unverified()")
    assert 1 == await queue.value("SELECT count(*) FROM queue_message_export_position WHERE exported_xid = '7'")
    assert 8 <= await queue.value("SELECT queue_message_ensure_partitions(20)")
    assert store.relay_id


async def operators_act(queue: Queue, store: MadeStore) -> None:
    """Pauses, settings, what cannot be printed, and all that is counted."""
    await queue.insert(2)
    assert await queue.value("SELECT queue_message_pause('orders', 'why')")
    assert await queue.value("SELECT queue_message_resume('orders')")
    assert "12" == await queue.value("SELECT queue_message_config_set('max_attempts', '7')")
    assert "7" == await queue.value("SELECT queue_message_setting_value('max_attempts')")
    await queue.sql("SELECT queue_message_config_set('notify', 'always')")
    assert 2 == await queue.value("SELECT queue_message_renotify()")
    assert 0 == await queue.value("SELECT queue_message_reject_unprintable()")
    assert 2 == await queue.value("SELECT waiting FROM queue_message_status")
    await queue.insert()
    assert 3 == len(await store.ids())


@pytest.mark.parametrize(
    "step", [relay_settles, locks_are_swept, a_head_is_skipped, messages_are_replayed, the_archive_is_retained, operators_act]
)
async def test_columns_of_any_name_change_nothing(widened: Queue, store: MadeStore, step: Step) -> None:
    """Each part of the work continues as before."""
    await step(widened, store)


async def test_no_function_keeps_the_words_of_an_error_unbounded(queue: Queue) -> None:
    """An error may repeat a payload. Each function hands its words to one that keeps at most 1,000 characters, and looks at few more."""
    bounding = r"(\bleft|queue_message_(one_line|refusal|why|refused_one|keyed_refuse|fold_past|answer_refusal))\([^;]*SQLERRM"
    functions = await queue.sql("SELECT proname, prosrc FROM pg_proc WHERE proname LIKE 'queue%'")
    assert [] == [name for name, text in functions if "SQLERRM" in re.sub(bounding, "", text)]
    await queue.insert()
    for words in (
        "queue_message_one_line(words, 1000)",
        "queue_message_refusal('23514', words)",
        "queue_message_why('P0001', words)",
        "(SELECT queue_message_refused_one(id, 'P0001', words) #>> '{0,5}' FROM queue_message)",
        "queue_message_answer_refusal(0, '{}', 'P0001', words)",
    ):
        assert 1000 >= await queue.value(f"SELECT length({words}) FROM repeat('x', 1000000) AS words"), words
