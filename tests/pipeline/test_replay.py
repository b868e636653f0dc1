"""Replay from the lake: each message of a job once, as it was, in order, at a rate; needs no JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay.errors import LakeError, PipelineError, UnreachableError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.replay import job as replay
from relay.pipeline.replay import lake_source
from relay.pipeline.replay.job import ReplayCount, Replayed
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.database import Database
from tests.support.lake.exporting import export
from tests.support.servers.logins import login

if TYPE_CHECKING:
    from tests.pipeline.conftest import Archived

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
ORDERS = Selection(exchange="orders")
Replay = Callable[..., Replayed]
Found = list[tuple[Any, ...]]


@pytest.fixture
def sql(database_url: str) -> Callable[..., Found]:
    """Run a statement as the owner."""

    def run(statement: str, *values: object) -> Found:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def run(lake: Lake, database: Database) -> Replay:
    """Replay messages of the exchange `orders`, unless a test says otherwise."""

    def replayed(**options: Any) -> Replayed:
        return replay.run(lake=lake, database=database, **{"say": lambda _line: None, "selection": ORDERS, **options})

    return replayed


def keys(sql: Callable[..., Found]) -> list[str]:
    """Routing keys of what waits, in claim order."""
    return [key for (key,) in sql("SELECT routing_key FROM queue_message ORDER BY xid, seq")]


def forget_archive(sql: Callable[..., Found]) -> None:
    """Drop the archive's rows as retention does, so that the lake alone has them."""
    sql("SELECT set_config('relay.retention', 'on', false); DELETE FROM queue_message_archive")


def test_a_message_comes_back_as_it_was_with_its_origin(lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any) -> None:
    """Byte for byte, also when PostgreSQL has dropped it; a deadline that has passed is left out."""
    hostile = '{"n": 123456789012345678901234567890.10, "s": "\\u00e9\\"\\\\ \\u0001\\n"}'
    past, ahead = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    archived(
        {"content": hostile, "options": '{"type": "t", "headers": {"a": 1.0}}', "ordering_key": "k", "expires_at": ahead},
        {"content": "{}", "body": bytes(range(256)) * 5_000, "routing_key": "\U0001f680 *", "expires_at": past},
    )
    columns = "exchange, routing_key, content::text, body, options::text, ordering_key"
    was = sql(f"SELECT id, {columns} FROM queue_message_archive ORDER BY seq")
    export(lake, database)
    forget_archive(sql)

    assert (2, 2) == ((result := run(job="job")).found, result.enqueued)

    assert was == sql(f"SELECT replay_of, {columns} FROM queue_message ORDER BY seq")
    assert [(ahead,), (None,)] == sql("SELECT expires_at FROM queue_message ORDER BY seq")
    assert [(2,)] == sql("SELECT count(*) FROM queue_message_replay_ledger JOIN queue_message USING (id) WHERE job = 'job'")


def test_a_job_that_is_run_twice_enqueues_each_message_once(
    lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any
) -> None:
    """Without a name the job is its filter, so the same filter continues with what is new."""
    archived({}, {}, {"exchange": "audit"})
    export(lake, database)

    first, second = run(), run()
    archived({})
    export(lake, database)
    third = run()

    assert [(2, 0, 2), (2, 2, 0), (3, 2, 1)] == [(one.found, one.done_before, one.enqueued) for one in (first, second, third)]
    assert 1 == len({one.job for one in (first, second, third)})
    assert 3 == run(job="another").enqueued
    assert 6 == len(keys(sql))


@pytest.mark.parametrize("same_id", [False, True])
def test_a_job_does_not_replay_what_it_made(
    lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any, same_id: bool
) -> None:
    """What it enqueued is archived and exported in its turn, and meets the same filter; for another job it is a message like others."""
    archived({})
    export(lake, database)
    [made] = [run(job="job", same_id=same_id).enqueued]
    sql("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message")
    export(lake, database)

    assert (1, 0) == (made, run(job="job", same_id=same_id).enqueued)
    assert 2 == run(job="another", dry_run=True).left


def test_a_dry_run_counts_and_changes_nothing(lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any) -> None:
    """By exchange and result, less what the job did before."""
    archived({}, {}, {"result": "failed"}, {"exchange": "audit", "result": "discarded"})
    export(lake, database)
    everything = Selection(since=NOON)
    run(selection=everything, job="job", limit=1)

    result = run(selection=everything, job="job", dry_run=True)

    assert (4, 1, 0, 3) == (result.found, result.done_before, result.enqueued, result.left)
    assert (ReplayCount("audit", "discarded", 1), ReplayCount("orders", "failed", 1), ReplayCount("orders", "success", 1)) == result.counts
    assert 1 == len(keys(sql))


def test_messages_go_in_the_order_of_archiving(
    lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever files and pieces they are read in; that keeps the order of a key."""
    monkeypatch.setattr(lake_source, "PIECE", 3)
    monkeypatch.setattr(replay, "BATCH", 2)
    times = [NOON + timedelta(hours=hours) for hours in (30, 0, 1, 40, 2, 3, 4)]
    for number, at in enumerate(times):
        archived({"archived_at": at, "routing_key": f"{number}.1"}, {"archived_at": at, "routing_key": f"{number}.2"})
        export(lake, database)

    run()

    assert [f"{number}.{one}" for number in (1, 2, 4, 5, 6, 0, 3) for one in (1, 2)] == keys(sql)


def test_what_the_queue_refuses_today_is_named_and_the_others_go_on(
    lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any
) -> None:
    """It is not in the ledger, so the job takes it once the rule allows it; a script hears of it by the exit code."""
    long = "k" * 256
    archived(*({"routing_key": long if number in {3, 4, 9} else str(number)} for number in range(12)))
    export(lake, database)

    result = run(job="job")

    assert (12, 9, 3, 0, 1) == (result.found, result.enqueued, result.refused, result.left, result.exit_code)
    assert {"routing_key is 256 bytes long; the limit is 255 bytes"} == {refusal.reason for refusal in result.refusals}
    assert ["0", "1", "2", "5", "6", "7", "8", "10", "11"] == keys(sql)
    sql("ALTER TABLE queue_message DISABLE TRIGGER queue_message_check")
    again = run(job="job")
    assert (9, 3, 0, 0) == (again.done_before, again.enqueued, again.refused, again.exit_code)


def test_the_same_id_waits_for_its_message_to_leave_the_queue(
    lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any
) -> None:
    """The queue could not distinguish two messages of one id."""
    archived({})
    export(lake, database)
    assert 1 == run(job="one", same_id=True).enqueued

    [refusal] = run(job="two", same_id=True).refusals

    assert "in the queue already" in refusal.reason
    assert sql("SELECT id::text FROM queue_message") == [(refusal.id,)]


def test_a_rate_is_held_over_the_whole_run(lake: Lake, database: Database, archived: Archived, run: Replay) -> None:
    """Ten messages at twenty a second take half a second, in small steps, with what is left said in the end."""
    archived(*[{}] * 10)
    export(lake, database)
    said: list[str] = []

    began = time.monotonic()
    run(rate=20, say=said.append)

    assert 0.45 < time.monotonic() - began < 5
    assert said[-1].startswith("10 messages enqueued, ")
    assert said[-1].endswith(" a second, 0 to go")


def test_a_limit_says_what_it_leaves(lake: Lake, database: Database, archived: Archived, run: Replay) -> None:
    """Progress counts down to the end of this run; messages beyond it are reported at the beginning."""
    archived(*[{}] * 5)
    export(lake, database)
    said: list[str] = []

    result = run(limit=2, job="job", say=said.append)

    assert "5 messages found, 0 of them enqueued by this job before, 3 left for another run by the limit" == said[0]
    assert said[-1].endswith(" a second, 0 to go")
    assert (2, 3) == (result.enqueued, result.left)


def test_what_is_refused_takes_no_place_of_a_limit(lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any) -> None:
    """Those that stand first would use it up in each run; what is beyond it is left to the next one."""
    archived(*({"routing_key": "k" * 256 if number < 20 else str(number)} for number in range(24)))
    export(lake, database)
    said: list[str] = []

    first = run(limit=2, job="job", say=said.append)
    second = run(limit=20, job="job")

    assert (24, 2, 20, 2) == (first.found, first.enqueued, first.refused, first.left)
    assert 22 == sum(count.messages for count in first.counts)
    assert said[-1].startswith("2 messages enqueued, ")
    assert said[-1].endswith(" a second, 0 to go")
    assert (2, 20, 0, 1) == (second.enqueued, second.refused, second.left, second.exit_code)
    assert ["20", "21", "22", "23"] == keys(sql)


def test_few_are_read_where_few_are_wanted(
    lake: Lake, database: Database, archived: Archived, run: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many each time, as long as what was read is refused."""
    archived(*({"routing_key": "k" * 256 if number < 3 else str(number)} for number in range(40)))
    export(lake, database)
    read, pieces = lake_source.LakeSource._read, []

    def counted(self: Any, piece: Any) -> Any:
        pieces.append(piece.num_rows)
        return read(self, piece)

    monkeypatch.setattr(lake_source.LakeSource, "_read", counted)

    assert 2 == run(limit=2).enqueued
    assert [2, 4] == pieces


def test_a_lake_s_message_is_refused_in_the_words_of_the_archive_s(
    lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any
) -> None:
    """The lake and the archive give the same reason, and it quotes no value."""
    archived({"content": '{"n": "secret"}'}, {"content": '{"n": 1}', "routing_key": "k" * 256}, {"content": '{"n": 2}'})
    export(lake, database)
    sql("ALTER TABLE queue_message ADD CONSTRAINT rule CHECK ((content ->> 'n')::int > 0)")

    theirs = sql(
        "SELECT id::text, refused FROM queue_message_replay_many(exchange => 'orders', dry_run => false) WHERE refused IS NOT NULL"
    )

    assert theirs == [(refusal.id, refusal.reason) for refusal in run(job="job").refusals]
    assert "a value is refused: invalid text representation, SQLSTATE 22P02" == theirs[0][1]


def test_what_is_no_message_s_fault_ends_a_replay(lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any) -> None:
    """Nothing of its transaction is enqueued, and the same job does it when the cause is gone."""
    archived(*({"routing_key": str(number)} for number in range(3)))
    export(lake, database)
    sql("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'not now' USING ERRCODE = 'lock_not_available'; END $$;
        CREATE TRIGGER z AFTER INSERT ON queue_message FOR EACH ROW WHEN (NEW.routing_key = '2') EXECUTE FUNCTION refuse()""")

    with pytest.raises(PipelineError, match="not now"):
        run(job="job")

    assert [] == keys(sql)
    sql("DROP TRIGGER z ON queue_message")
    assert 3 == run(job="job").enqueued


def test_what_matches_nothing_is_said_and_an_id_that_is_not_there_refused(
    lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any
) -> None:
    """A filter may have nothing to do today; who names messages means all of them, also with the rest of the filter."""
    archived({}, {"exchange": "audit"})
    export(lake, database)
    here, other = (sql("SELECT id::text FROM queue_message_archive WHERE exchange = %s", name)[0][0] for name in ("orders", "audit"))
    nobody = "00000000-0000-7000-8000-000000000009"
    said: list[str] = []

    assert (0, 0) == ((result := run(selection=Selection(exchange="order"), say=said.append)).found, result.exit_code)
    assert [True] == [line.startswith("Nothing matches: the lake has no such message") for line in said]
    with pytest.raises(PipelineError, match=f"Nothing matches {nobody}: the lake has no such message"):
        run(selection=Selection(ids=(here, nobody)))
    with pytest.raises(PipelineError, match=other):
        run(selection=Selection(ids=(here.upper(), other), exchange="orders"))
    assert [] == keys(sql)
    assert [1, 0] == [run(selection=Selection(ids=(here.upper(),)), job="job").enqueued for _ in range(2)]


def test_an_id_that_several_messages_have_is_refused_until_one_is_left(
    lake: Lake, database: Database, archived: Archived, run: Replay, sql: Any
) -> None:
    """A producer may choose the id of another's message. A replay that has kept the id is not another message."""
    one = "00000000-0000-7000-8000-000000000009"
    archived({"id": one}, {"id": one, "exchange": "audit"}, {"id": one, "replay_of": one})
    export(lake, database)

    with pytest.raises(PipelineError, match=f"Several messages have the id {one}, and nothing was enqueued: narrow the filter"):
        run(selection=Selection(ids=(one,)))

    assert 2 == run(selection=Selection(ids=(one,), exchange="orders")).enqueued


def test_nothing_is_replayed_without_a_filter_or_a_lake(run: Replay, database: Database, lake: Lake, archived: Archived) -> None:
    """One sentence each."""
    with pytest.raises(PipelineError, match="Say what to replay"):
        run(selection=Selection())
    with pytest.raises(PipelineError, match="1 to 255 bytes"):
        run(job="")
    with pytest.raises(LakeError, match="relay pipeline export"):
        run()
    archived({})
    export(lake, database)
    with Database("postgresql://127.0.0.1:1/nowhere") as away, pytest.raises(UnreachableError, match="RELAY_PIPELINE_DATABASE_URL"):
        replay.run(lake=lake, database=away, say=lambda _line: None, selection=ORDERS)


def test_a_replayers_login_replays_and_another_hears_of_its_role(
    lake: Lake, database: Database, database_url: str, archived: Archived
) -> None:
    """A real login with queue_message_replayer needs nothing else; the export's does not do."""
    archived({}, {"result": "failed"})
    export(lake, database)
    with login(database_url, "queue_message_replayer") as url, Database(url) as replayer:
        assert 2 == replay.run(lake=lake, database=replayer, say=lambda _line: None, selection=ORDERS).enqueued
        assert 0 == replay.run(lake=lake, database=replayer, say=lambda _line: None, selection=ORDERS).enqueued
    for roles in ((), ("queue_message_etl",)):
        with login(database_url, *roles) as url, Database(url) as other, pytest.raises(PipelineError, match="relay grant replayer LOGIN"):
            replay.run(lake=lake, database=other, say=lambda _line: None, selection=ORDERS, job="other")


RUN = """
import sys
from relay.pipeline.replay import job as replay
from relay.pipeline.source.database import Database
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.replay.selection import Selection
replay.BATCH = 7
replay.run(lake=Lake(sys.argv[1]), database=Database(sys.argv[2]), say=print, selection=Selection(exchange="orders"), job="job", rate=2000)
"""


@pytest.mark.faults
def test_a_replay_that_is_killed_again_and_again_enqueues_each_message_once(
    lake: Lake, database: Database, database_url: str, archived: Archived, run: Replay, sql: Any
) -> None:
    """Kill -9 wherever it is in a batch; the last run finds what is left."""
    archived(*({"routing_key": str(number)} for number in range(600)))
    export(lake, database)
    count = "SELECT count(*) FROM queue_message_replay_ledger"
    for least in (50, 200, 350):
        process = subprocess.Popen([sys.executable, "-c", RUN, lake.place.url, database_url], stdout=subprocess.DEVNULL, process_group=0)
        while sql(count)[0][0] < least:
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # A statement that was under way ends in the server all the same.
        while sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outbox-relay pipeline' AND state <> 'idle'")[0][0]:
            pass
    begun = sql(count)[0][0]

    result = run(job="job")

    assert 350 <= begun < 600
    assert (begun, 600 - begun) == (result.done_before, result.enqueued)
    assert [str(number) for number in range(600)] == keys(sql)
    assert [(600, 600)] == sql("SELECT count(*), count(DISTINCT replay_of) FROM queue_message JOIN queue_message_replay_ledger USING (id)")
