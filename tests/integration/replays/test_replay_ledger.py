"""Replay from outside the archive, with a ledger: each message of a job once; and who may do it, and keep receipts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.support.database.queue import Found, Queue, until
from tests.support.servers.logins import login

REPLAY = """SELECT xid::text, seq, replayed_as::text FROM queue_message_replay_rows(%s, %s::text[]::xid8[], %s, %s::uuid[], %s, %s, %s,
    %s::bytea[], %s, %s::text[], %s::timestamptz[], %s)"""
NOTHING = ", ".join(["NULL"] * 9)


def rows(job: str, *seqs: int, same_id: bool = False, **columns: Sequence[object]) -> tuple[object, ...]:
    """Arguments of a replay of made-up messages of transaction 7, other columns as given."""
    many = len(seqs)
    given: dict[str, Sequence[object]] = {
        "exchange": ["orders"] * many, "routing_key": [f"key.{seq}" for seq in seqs], "content": ['{"n": 1.0}'] * many,
        "body": [None] * many, "options": ["{}"] * many, "ordering_key": [None] * many, "expires_at": [None] * many, **columns,
    }  # fmt: skip
    return job, ["7"] * many, list(seqs), [id_of(seq) for seq in seqs], *(list(column) for column in given.values()), same_id


def id_of(seq: int) -> str:
    """Id of a made-up message."""
    return f"00000000-0000-7000-8000-{seq:012}"


async def test_a_message_is_enqueued_as_it_was_with_its_origin(queue: Queue) -> None:
    """Every column that an application may write, in the order given; a deadline that has passed is left out."""
    columns: dict[str, Any] = {
        "content": ["{}", '{"a": 1.50}'], "body": [b"\0\xff", None], "options": ['{"type": "t"}', "{}"], "ordering_key": ["o", None],
        "expires_at": ["2020-01-01 00:00+00", "2999-01-01 00:00+00"],
    }  # fmt: skip
    made = await queue.sql(REPLAY, *rows("job", 2, 1, **columns))

    assert [("7", 2), ("7", 1)] == [row[:2] for row in made]
    names = "exchange, routing_key, content::text, body, options::text, ordering_key, extract(year FROM expires_at)::int, replay_of::text"
    assert [
        (made[0][2], "orders", "key.2", "{}", b"\0\xff", '{"type": "t"}', "o", None, id_of(2)),
        (made[1][2], "orders", "key.1", '{"a": 1.50}', None, "{}", None, 2999, id_of(1)),
    ] == await queue.sql(f"SELECT id::text, {names} FROM queue_message ORDER BY xid, seq")


async def test_a_job_enqueues_a_message_once(queue: Queue) -> None:
    """What its ledger has is stepped over, also within one call; another job has a ledger of its own."""
    called = [await queue.sql(REPLAY, *rows(job, *seqs)) for job, *seqs in (("a", 1, 2), ("a", 1, 2), ("a", 2, 3, 3), ("b", 1))]

    assert [[1, 2], [], [3], [1]] == [[seq for _, seq, _ in made] for made in called]
    assert 4 == await queue.waiting()
    joined = "queue_message_replay_ledger l JOIN queue_message m ON m.id = l.id AND m.routing_key = 'key.' || l.seq"
    assert [("a", 3), ("b", 1)] == await queue.sql(f"SELECT job, count(*) FROM {joined} GROUP BY job ORDER BY job")


async def test_one_job_twice_at_once_enqueues_a_message_once(queue: Queue) -> None:
    """The second waits for what the first has not committed."""
    with psycopg.connect(queue.url) as first:
        assert 2 == len(first.execute(REPLAY.encode(), rows("a", 1, 2)).fetchall())
        found: list[Found] = []
        second = threading.Thread(target=lambda: found.append(_replay_alone(queue.url, rows("a", 1, 2, 3))))
        second.start()
        await until(queue.is_held_up)
        assert second.is_alive()
        first.commit()
        second.join()
    assert [[3]] == [[seq for _, seq, _ in made] for made in found]
    assert 3 == await queue.waiting()


async def test_one_job_over_the_archive_twice_at_once_replays_a_message_once(queue: Queue) -> None:
    """The second looks when the first has ended, and finds what is left."""
    ids = await queue.insert(3)
    await queue.sql("SELECT queue_message_archive_now(%s::uuid[], 'success', NULL, NULL, 'test')", ids)
    replay = "SELECT id::text FROM queue_message_replay_many(dry_run => false, again => true, job => 'a', most => %s)"
    with psycopg.connect(queue.url) as first:
        assert ids[:2] == [id_ for (id_,) in first.execute(replay.encode(), (2,))]
        found: list[Found] = []
        second = threading.Thread(target=lambda: found.append(_replay_alone(queue.url, (9,), replay)))
        second.start()
        await until(queue.is_held_up)
        assert second.is_alive()
        first.commit()
        second.join()
    assert [[(ids[2],)]] == found


def _replay_alone(url: str, arguments: tuple[object, ...], statement: str = REPLAY) -> Found:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode(), arguments).fetchall()


async def test_what_an_insert_refuses_leaves_no_mark_in_the_ledger(queue: Queue) -> None:
    """So it is tried again when the job is; its neighbours of the call wait with it."""
    with pytest.raises(errors.CheckViolation, match="routing_key is 300 bytes long"):
        await queue.sql(REPLAY, *rows("a", 1, 2, routing_key=["k", "k" * 300]))

    assert [] == await queue.sql("TABLE queue_message_replay_ledger")
    assert 0 == await queue.waiting()


async def test_the_id_may_stay_unless_it_is_queued(queue: Queue) -> None:
    """For consumers that must drop what they had."""
    assert [("7", 1, id_of(1))] == await queue.sql(REPLAY, *rows("a", 1, same_id=True))
    with pytest.raises(errors.UniqueViolation):
        await queue.sql(REPLAY, *rows("b", 1, same_id=True))


async def test_what_still_stands_among_the_dead_counts_as_answered(queue: Queue) -> None:
    """As with a replay from the archive itself, and signed with the login."""
    [id_] = await queue.insert(routing_key="k")
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'x', 'x', 'test')", id_)
    [(xid, seq)] = await queue.sql("SELECT xid::text, seq FROM queue_message_dead")
    arguments = list(rows("a", 1))
    arguments[1:4] = [xid], [seq], [id_]

    [(_, _, new)] = await queue.sql(REPLAY, *arguments)

    assert [(f"replayed as {new}", True)] == await queue.sql("SELECT note, acknowledged_by = session_user FROM queue_message_dead_list")


async def test_a_replayers_login_replays_and_is_written_down(queue: Queue) -> None:
    """It may enqueue through the function alone and read the ledger; which login did it is kept, once for each call that enqueued."""
    with login(queue.url, "queue_message_replayer") as url, psycopg.connect(url, autocommit=True) as replayer:
        for _ in range(2):
            replayer.execute(REPLAY.encode(), rows("a", 1, 2)).fetchall()
        assert [("a",), ("a",)] == replayer.execute("SELECT job FROM queue_message_replay_ledger").fetchall()
        user = replayer.info.user
    assert [(user, "replay_job", "a", {"messages": 2})] == await queue.sql(
        "SELECT acted_by, action, subject, became FROM queue_message_audit"
    )


async def test_the_export_s_login_keeps_receipts_and_enqueues_nothing(queue: Queue) -> None:
    """It may write and clear receipts and read the ledger; a replay takes a role of its own."""
    with login(queue.url, "queue_message_etl") as url, psycopg.connect(url, autocommit=True) as etl:
        with pytest.raises(errors.InsufficientPrivilege, match="queue_message_replay_rows"):
            etl.execute(REPLAY.encode(), rows("a", 1))
        assert [] == etl.execute("SELECT job FROM queue_message_replay_ledger").fetchall()
        etl.execute("INSERT INTO queue_message_receipt (message_id, queue, consumer) VALUES (gen_random_uuid(), 'q', 'c')")
        assert [("q", "c")] == etl.execute("SELECT queue, consumer FROM queue_message_receipt").fetchall()
        etl.execute("DELETE FROM queue_message_receipt")


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("etl", "INSERT INTO queue_message (exchange) VALUES ('e')"),
        ("etl", "INSERT INTO queue_message_replay_ledger (job, xid, seq, id) VALUES ('a', '1', 1, gen_random_uuid())"),
        ("etl", "DELETE FROM queue_message_replay_ledger"),
        ("replayer", "INSERT INTO queue_message (exchange) VALUES ('e')"),
        ("replayer", "DELETE FROM queue_message_replay_ledger"),
        ("etl", "UPDATE queue_message_receipt SET queue = ''"),
        *((role, f"SELECT queue_message_replay_rows('a', '{{}}', {NOTHING})") for role in ("producer", "relay", "operator", "etl")),
        *((role, "TABLE queue_message_receipt") for role in ("producer", "relay", "operator", "replayer")),
        *((role, "TABLE queue_message_replay_ledger") for role in ("producer", "relay")),
    ],
)
def test_nobody_does_more(database_url: str, role: str, statement: str) -> None:
    """An operator replays what the archive has; contents of the caller's own are for the export's login alone."""
    refused = pytest.raises(errors.InsufficientPrivilege)
    with login(database_url, f"queue_message_{role}") as url, psycopg.connect(url) as connection, refused:
        connection.execute(statement.encode())
