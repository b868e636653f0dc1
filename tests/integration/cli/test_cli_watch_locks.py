"""The watch over dead messages where another session's open transaction holds what it needs."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import psycopg
import pytest

from relay.cli.common.support import session
from relay.cli.dead_watch import lock_waits
from relay.cli.dead_watch.actions import Dead, Handled, Outcome
from relay.cli.dead_watch.loop import DeadWatch
from relay.cli.dead_watch.plan import WatchPlan
from relay.devservers.process import poll
from relay.errors import StoreError
from relay.postgres.operator_session import BusyError, OperatorSession
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.webhook_receiver import Hook, hook

HOLD = "SELECT queue_message_dead_answer(id, xid, seq) FROM queue_message_dead WHERE id = %s"
UNANSWERED = "SELECT id::text FROM queue_message_dead_list WHERE acknowledged_at IS NULL ORDER BY archived_xid, xid, seq"
WATCH = ("dead", "watch", "--poll", "3600")


@pytest.fixture
def holder(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Another session, whose transaction stays open."""
    with psycopg.connect(database_url) as connection:
        yield connection


@pytest.fixture
def receiver() -> Iterator[Hook]:
    """Who gets webhooks."""
    with hook() as running:
        yield running


def _posts_to(receiver: Hook) -> tuple[str, ...]:
    return ("--ack", "--webhook", receiver.url, "--unsigned", "--allow-private")


class _Complaints:
    """What a process says on standard error, line by line, but for the warning about webhooks in plain text."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(process.stderr,), daemon=True).start()

    def next(self) -> str:
        """The next line."""
        return self._lines.get(timeout=20)

    def is_silent(self) -> bool:
        """Whether nothing more was said so far."""
        return self._lines.empty()

    def _read(self, pipe: IO[str]) -> None:
        for line in pipe:
            if "plain text" not in line:
                self._lines.put(line)


def test_an_acknowledgement_that_another_holds_up_waits_beside_the_rest(
    cli: Cli, seeded: Seeded, holder: psycopg.Connection[Any], receiver: Hook
) -> None:
    """It says so, tells and acknowledges the others, and acknowledges that one when the other session lets go."""
    held, free = seeded.archive("failed"), seeded.archive("failed")
    holder.execute(HOLD, (held,))
    process = cli.start(*WATCH, *_posts_to(receiver))
    said = _Complaints(process)
    assert [held, free] == [json.loads(receiver.next().body)["data"]["id"] for _ in range(2)]
    assert f"Message {held} is not acknowledged yet, and is tried again: Another session holds a lock" in said.next()
    assert poll(lambda: seeded.run(UNANSWERED) == [(held,)], seconds=20)
    late = seeded.archive("failed")
    assert late == json.loads(receiver.next().body)["data"]["id"]
    assert poll(lambda: seeded.run(UNANSWERED) == [(held,)], seconds=20)

    holder.rollback()

    assert poll(lambda: seeded.run(UNANSWERED) == [], seconds=20)
    process.send_signal(signal.SIGTERM)
    assert "Dead messages: 3 handled.\n" == said.next()
    assert receiver.got.empty()


def test_a_replay_that_another_holds_up_waits_beside_the_rest(cli: Cli, seeded: Seeded, holder: psycopg.Connection[Any]) -> None:
    """By rule: the neighbour that died later is replayed, and that one when the other session lets go."""
    held, free = seeded.archive("failed", "nacked"), seeded.archive("failed", "nacked")
    holder.execute(HOLD, (held,))
    said = _Complaints(cli.start(*WATCH, "--replay", "code=nacked,after=0s"))
    assert f"Message {held} is not replayed yet, and is tried again: Another session holds a lock" in said.next()
    assert f"Message {free} was replayed as " in said.next()

    holder.rollback()

    assert f"Message {held} was replayed as " in said.next()
    assert [] == seeded.run(UNANSWERED)


def test_once_ends_beside_what_another_holds_up(cli: Cli, seeded: Seeded, holder: psycopg.Connection[Any], receiver: Hook) -> None:
    """With 1, for cron; all others are acknowledged and replayed."""
    held = [seeded.archive("failed"), seeded.archive("failed", "nacked")]
    free = [seeded.archive("failed"), seeded.archive("failed", "nacked")]
    for one in held:
        holder.execute(HOLD, (one,))

    cli(*WATCH, "--once", *_posts_to(receiver), "--replay", "code=nacked,after=0s", code=1)

    assert {*held, *free} == {json.loads(receiver.next().body)["data"]["id"] for _ in range(4)}
    assert [(one,) for one in held] == seeded.run(UNANSWERED)
    assert "Dead messages: 4 handled, 1 replayed, 2 wait for another try." in cli.stderr


@pytest.mark.parametrize("table", ["queue_message_dead_ack", "queue_message_archive"])
def test_a_locked_table_is_waited_for_a_bounded_time(
    cli: Cli, seeded: Seeded, holder: psycopg.Connection[Any], receiver: Hook, table: str
) -> None:
    """The watch says so, is still there when the lock is gone, and tells what died meanwhile."""
    said = _Complaints(cli.start(*WATCH, *_posts_to(receiver)))
    seeded.archive("failed")
    receiver.next()
    assert poll(lambda: seeded.run(UNANSWERED) == [], seconds=20)
    holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
    late = seeded.insert()
    holder.execute("SELECT queue_message_archive_now(ARRAY[%s]::uuid[], 'failed', NULL, NULL, 'relay-1')", (late,))
    seeded.run("NOTIFY dead_message")
    assert "Another session holds a lock that this needs" in said.next()

    holder.commit()

    assert late == json.loads(receiver.next().body)["data"]["id"]
    assert poll(lambda: seeded.run(UNANSWERED) == [], seconds=20)


def test_a_locked_list_of_watches_is_waited_for_over_one_connection(
    cli: Cli, seeded: Seeded, holder: psycopg.Connection[Any], receiver: Hook
) -> None:
    """It is said once, and each try takes the connection that is there."""
    sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'outbox-relay console'"
    dead = seeded.archive("failed")
    holder.execute("LOCK TABLE queue_message_watch IN ACCESS EXCLUSIVE MODE")
    said = _Complaints(cli.start("dead", "watch", "--poll", "0.2", *_posts_to(receiver)))
    assert "Another session holds a lock that this needs" in said.next()
    before = seeded.run(sessions)
    tries = f"{sessions} AND query_start > now() - interval '0.1 s'"
    for _ in range(3):
        assert poll(lambda: seeded.run(tries) != [], seconds=20)
    assert before == seeded.run(sessions)

    holder.rollback()

    assert dead == json.loads(receiver.next().body)["data"]["id"]
    assert poll(lambda: seeded.run(UNANSWERED) == [], seconds=20)
    assert said.is_silent()


def test_a_locked_list_of_watches_ends_a_watch_for_cron(cli: Cli, seeded: Seeded, holder: psycopg.Connection[Any], receiver: Hook) -> None:
    """With 1, since it did not look."""
    seeded.archive("failed")
    holder.execute("LOCK TABLE queue_message_watch IN ACCESS EXCLUSIVE MODE")

    cli(*WATCH, "--once", *_posts_to(receiver), code=1)

    assert "Another session holds a lock that this needs" in cli.stderr


def test_a_connection_by_a_pooler_keeps_its_own_patience(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    """Otherwise the next client that gets it from the pooler would fail after a second of waiting."""
    monkeypatch.setenv("RELAY_DATABASE_URL", database_url)
    monkeypatch.setenv("RELAY_PREPARE", "false")
    with session() as opened:
        assert {"lock_timeout": "0"} == opened.connection.execute("SHOW lock_timeout").fetchone()


def test_a_connection_whose_settings_fail_is_closed(database_url: str) -> None:
    """A watch tries again and again, and would take every connection that the server has."""
    opened = OperatorSession(database_url, schema="public", limits={"lock_timeout": "never"})
    with pytest.raises(StoreError), opened:
        pass
    assert opened.connection.closed


def test_what_meets_a_lock_puts_off_no_other_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits is tried again after its pause, however many meet a lock meanwhile."""
    now, tried = 0.0, list[str]()
    monkeypatch.setattr("relay.cli.dead_watch.lock_waits.time.monotonic", lambda: now)

    def act(_: OperatorSession, place: Mapping[str, Any]) -> None:
        tried.append(place["id"])
        raise BusyError("A lock.")

    line = lock_waits.LockWaits(act, what="is not done")
    opened: Any = None
    for number in range(10):
        now = float(number)
        line.do(opened, {"id": f"{number}", "xid": 1, "seq": number})
        line.again(opened, lambda: False)

    assert ["0", "1", "2", "3", "4", "5", "0", "6", "7", "8", "9"] == tried


def test_a_round_of_waiting_tries_ends_at_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """And after a second, with however many left."""
    now, done = 0.0, list[str]()
    monkeypatch.setattr("relay.cli.dead_watch.lock_waits.time.monotonic", lambda: now)

    def act(_: OperatorSession, place: Mapping[str, Any]) -> None:
        nonlocal now
        if now < lock_waits.PAUSE:
            raise BusyError("A lock.")
        done.append(place["id"])
        now += 0.4

    line = lock_waits.LockWaits(act, what="is not done")
    opened: Any = None
    for number in range(9):
        line.do(opened, {"id": f"{number}", "xid": 1, "seq": number})
    now = lock_waits.PAUSE

    line.again(opened, lambda: False)
    assert 3 == len(done)
    line.again(opened, lambda: len(done) > 3)
    assert 4 == len(done)


def test_a_locked_table_ends_a_watch_for_cron(cli: Cli, seeded: Seeded, holder: psycopg.Connection[Any]) -> None:
    """With 1 and a sentence, after a second."""
    seeded.archive("failed")
    holder.execute("LOCK TABLE queue_message_dead_ack IN ACCESS EXCLUSIVE MODE")

    cli(*WATCH, "--once", "--ack", "--command", "true", code=1)

    assert "Another session holds a lock that this needs" in cli.stderr
    assert "The watch goes on" not in cli.stderr


class _Teller:
    """Handles by noting."""

    acts = True
    name = "teller"

    def __init__(self) -> None:
        self.told: list[str] = []

    def handle(self, dead: Dead) -> Outcome:
        """See `Handler`."""
        self.told.append(str(dead["id"]))
        return Handled()

    def cut(self) -> None:
        """See `Handler`."""

    def close(self) -> None:
        """See `Handler`."""


@pytest.fixture
def opened(database_url: str) -> Iterator[OperatorSession]:
    """A watch's connection."""
    with OperatorSession(database_url, schema="public", limits={"lock_timeout": "1s"}) as made:
        yield made


def _round_beside(holder: psycopg.Connection[Any], opened: OperatorSession, held: Sequence[str]) -> tuple[DeadWatch, _Teller]:
    """A watch that has met locks on these in its first round; they are gone."""
    teller = _Teller()
    watch = DeadWatch(WatchPlan(handlers=[teller], ack=True), stopped=lambda: False)
    for dead in held:
        holder.execute(HOLD, (dead,))
    watch.round(opened)
    holder.rollback()
    return watch, teller


def test_what_met_a_lock_is_told_once_and_acknowledged_in_a_later_round(
    opened: OperatorSession, seeded: Seeded, holder: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as failed until then."""
    monkeypatch.setattr(lock_waits, "PAUSE", 0.0)
    dead = [seeded.archive("failed") for _ in range(3)]
    watch, teller = _round_beside(holder, opened, dead[:1])
    assert (dead, [(dead[0],)], 1) == (teller.told, seeded.run(UNANSWERED), watch.failing)

    watch.round(opened)

    assert ([], 0, dead) == (seeded.run(UNANSWERED), watch.failing, teller.told)


def test_what_met_a_lock_is_not_tried_in_every_round(opened: OperatorSession, seeded: Seeded, holder: psycopg.Connection[Any]) -> None:
    """Each try may take a tenth of a second; the watch wakes when the next one is due."""
    dead = seeded.archive("failed")
    watch, _ = _round_beside(holder, opened, [dead])

    watch.round(opened)

    assert [(dead,)] == seeded.run(UNANSWERED)
    assert 0 < watch.until_due(3600) <= lock_waits.PAUSE


def test_messages_that_wait_for_locks_take_bounded_memory(
    opened: OperatorSession, seeded: Seeded, holder: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond the bound is left to the next watch, and counts as failed."""
    monkeypatch.setattr(lock_waits, "PAUSE", 0.0)
    monkeypatch.setattr(lock_waits, "MAX_WAITING", 1)
    watch, _ = _round_beside(holder, opened, [seeded.archive("failed") for _ in range(3)])

    watch.round(opened)

    assert (2, 2) == (len(seeded.run(UNANSWERED)), watch.failing)
