"""relay check --queue: what relays could claim, or free, and left alone, is named; what they have not come to is not."""

from __future__ import annotations

import json
from itertools import count

import psycopg
import pytest

from relay.cli.queue_check.recheck import MAX_OF_GROUP
from relay.cli.queue_check.scan import PAGE
from tests.support.broker.topology import Declared
from tests.support.database.checking import RELAY, Between, kept, lost
from tests.support.database.queue import Queue, until
from tests.support.relays.cli import Cli, Seeded
from tests.support.relays.processes import Relays

LOCKED = "UPDATE queue_message SET lock_expires_at = now() + %s::interval, lock_token = gen_random_uuid(), locked_by = %s WHERE id = %s"
CLAIM = "UPDATE queue_message SET lock_expires_at = now() + interval '1 min', lock_token = gen_random_uuid(), attempts = 1 WHERE id = %s"
BACKLOG = "INSERT INTO queue_message (exchange) SELECT 'bulk' FROM generate_series(1, %s)"
ARCHIVE = "SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', NULL, NULL, 'relay-1')"
UP = "SELECT count(*) > 0 FROM queue_message_relay WHERE state->>'broker' = 'up'"


class Report:
    """A relay that reports each second when its last walk of the queue began, and ends another one after some."""

    def __init__(self, seeded: Seeded, relay: int, ago: float | None, ends_at: int = 0) -> None:
        self._seeded, self._relay, self._ago, self._ends_at = seeded, relay, ago, ends_at
        self.seconds = 0

    def __call__(self) -> None:
        """A second has passed."""
        self.seconds += 1
        if self._ago is not None:
            self._ago = 1 if self.seconds == self._ends_at else self._ago + 1
        state = json.dumps({"broker": "up", "walked_ago": self._ago})
        self._seeded.run("UPDATE queue_message_relay SET heartbeat_at = now(), state = %s WHERE id = %s", state, self._relay)


@pytest.mark.usefixtures("relay_row")
@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"ordering_key": "k"},
        {"available_at": "2020-01-01T00:00:00Z"},
        {"available_at": "2020-01-01T00:00:00Z", "locked_by": 7},
        {"lock_expires_at": "2020-01-01T00:00:00Z"},
    ],
    ids=["fresh", "key", "waiting", "suspect", "lock"],
)
def test_what_a_living_relay_leaves_alone_is_named(cli: Cli, beside: Seeded, between: Between, columns: dict[str, object]) -> None:
    """It could be claimed, or freed, all the time, and nothing was done."""
    id_ = beside.insert(**columns)
    between(lambda: None)

    what = "freed it (its lock ended 2020-01-01 00:00:00Z) since" if "lock_expires_at" in columns else "claimed it since"
    assert f"nothing has {what}" in lost(cli)[id_]


@pytest.mark.parametrize("ago", [None, 5], ids=["its first walk", "a later one"])
def test_what_a_relay_has_not_looked_at_is_not_named(cli: Cli, seeded: Seeded, relay_row: int, between: Between, ago: float | None) -> None:
    """Its walk of the queue lasts for longer than anybody waits, as it may on a busy server."""
    seeded.insert()
    report = Report(seeded, relay_row, ago)
    between(report)
    report()

    assert 1 == kept(cli)["unwatched"]
    assert report.seconds > 60


def test_a_relay_that_is_away_for_a_moment_is_waited_for(cli: Cli, seeded: Seeded, relay_row: int, between: Between) -> None:
    """Back again, it has still not walked the queue."""
    seeded.insert()
    looks = count(1)

    def report() -> None:
        """The broker is down at the second look alone."""
        look = next(looks)
        state = {"broker": "down or blocked" if look == 2 else "up", "walked_ago": 1000 + look}
        seeded.run("UPDATE queue_message_relay SET state = %s WHERE id = %s", json.dumps(state), relay_row)

    between(report)
    report()

    assert 1 == kept(cli)["unwatched"]


def test_what_a_relay_has_looked_at_is_named_at_once(cli: Cli, seeded: Seeded, relay_row: int, between: Between) -> None:
    """As soon as a walk has ended that began after the first look, and some seconds later."""
    id_ = seeded.insert()
    report = Report(seeded, relay_row, 5, ends_at=7)
    between(report)
    report()

    assert [id_] == list(lost(cli))
    assert 12 > report.seconds > 7


@pytest.mark.usefixtures("relay_row")
@pytest.mark.parametrize("settled", [False, True])
def test_a_message_that_younger_ones_have_passed_is_named(cli: Cli, beside: Seeded, between: Between, *, settled: bool) -> None:
    """Of fresh messages of one exchange the lowest goes first, so that a claim above it has missed it; those behind wait for their turn."""
    first, passed, claimed, behind = (beside.insert() for _ in range(4))

    def claims() -> None:
        for id_ in (first, claimed):
            beside.run(CLAIM, id_)
            if settled:
                beside.run(ARCHIVE, id_)
        beside.run("UPDATE queue_message_archive SET claimed_at = now()")

    between(claims)

    found = lost(cli)

    assert [passed] == list(found)
    assert behind not in found


@pytest.mark.usefixtures("relay_row")
def test_a_cancelled_message_has_passed_nobody(cli: Cli, seeded: Seeded, between: Between) -> None:
    """It left the queue by another way than a claim."""
    first, _, cancelled = (seeded.insert() for _ in range(3))

    def happens() -> None:
        seeded.run(CLAIM, first)
        seeded.run("SELECT queue_message_cancel(%s)", cancelled)

    between(happens)

    assert 3 == kept(cli)["claimable"]


@pytest.mark.usefixtures("relay_row")
def test_a_backlog_waits_for_its_turn(cli: Cli, seeded: Seeded, between: Between) -> None:
    """Of more than a page one message went: the others are behind it."""
    seeded.run(BACKLOG, PAGE + 10)
    between(lambda: seeded.run(CLAIM, seeded.run("SELECT id FROM queue_message ORDER BY xid, seq LIMIT 1")[0][0]))

    assert PAGE + 10 == kept(cli)["walked"]


@pytest.mark.parametrize(
    "state", ['{"broker": "down or blocked"}', '{"broker": "up", "silent": {"orders": 12.5}, "walked_ago": -1000}', None]
)
def test_nothing_is_blamed_on_relays_that_cannot_send(cli: Cli, seeded: Seeded, between: Between, state: str | None) -> None:
    """No relay is alive, the broker is down, or the exchange does not answer. In each case claimable messages wait."""
    if state:
        seeded.run(RELAY, state)
    seeded.insert()
    between(lambda: None)

    assert 1 == kept(cli)["claimable"]
    said = cli("check", "--queue")
    assert (state is None or "down" in state) == ("what can be claimed was not watched" in said)


@pytest.mark.usefixtures("relay_row")
def test_a_session_that_keeps_a_row_locked_is_named(cli: Cli, seeded: Seeded, between: Between, database_url: str) -> None:
    """With the number by which it can be found and ended."""
    id_ = seeded.insert()
    between(lambda: None)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM queue_message FOR UPDATE")

        words = f"session {other.info.backend_pid} (pg_stat_activity) keeps the row locked: end that transaction"
        assert {id_: words} == lost(cli)


def test_a_message_whose_settle_waits_for_another_session_is_not_lost(
    cli: Cli, seeded: Seeded, relay_row: int, between: Between, database_url: str
) -> None:
    """The living relay settles its message as soon as the named session ends. No relay can free the message of a dead one."""
    settling, abandoned = seeded.insert(), seeded.insert()
    seeded.run(LOCKED, "-1 min", relay_row, settling)
    seeded.run(LOCKED, "-1 min", relay_row + 1, abandoned)
    between(lambda: None)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM queue_message FOR UPDATE")

        found = cli.json("check", "--queue", code=1)

        reason = f"session {other.info.backend_pid} (pg_stat_activity) keeps the row locked: end that transaction"
        assert [(settling, reason)] == [(row["id"], row["reason"]) for row in found["settling_messages"]]
        assert [(abandoned, reason)] == [(row["id"], row["reason"]) for row in found["lost_messages"]]
        assert (1, 1) == (found["settling"], found["lost"])
    assert 0 == cli.json("check", "--queue", code=1)["settling"]


def test_where_only_settles_wait_no_message_is_lost(cli: Cli, seeded: Seeded, relay_row: int, between: Between, database_url: str) -> None:
    """The summary names the session once, with the number of messages that wait for it."""
    for _ in range(2):
        seeded.run(LOCKED, "-1 min", relay_row, seeded.insert())
    between(lambda: None)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM queue_message FOR UPDATE")

        said = cli("check", "--queue").splitlines()

        pid = other.info.backend_pid
        assert f"2 messages wait for the settle: session {pid} (pg_stat_activity) keeps the row locked: end that transaction" in said
        assert "no message is lost" == said[0]


@pytest.mark.usefixtures("relay_row")
def test_of_more_than_are_watched_the_lost_ones_are_at_least_so_many(cli: Cli, seeded: Seeded, between: Between) -> None:
    """Of each exchange and kind the first thousand are watched, so that there may be more; it says how many were not."""
    seeded.run(BACKLOG, MAX_OF_GROUP + 500)
    for _ in range(2):
        seeded.insert()
    between(lambda: None)

    found = cli.json("check", "--queue", code=1)

    assert (MAX_OF_GROUP + 2, 500) == (found["lost"], found["unwatched"])
    said = cli("check", "--queue", code=1).splitlines()
    assert said[-3] == "at least 2 more lost messages are not listed"
    assert said[-2].endswith(f", at least {MAX_OF_GROUP + 2} lost")
    assert said[-1] == f"500 messages were not watched: the first {MAX_OF_GROUP} of each exchange and kind are, and 100000 in all"


@pytest.mark.usefixtures("relay_row")
def test_where_all_were_watched_the_lost_ones_are_so_many(cli: Cli, seeded: Seeded, between: Between) -> None:
    """Up to the last one that is watched."""
    seeded.run(BACKLOG, MAX_OF_GROUP)
    between(lambda: None)

    said = cli("check", "--queue", code=1)

    assert f", {MAX_OF_GROUP} lost\n" in said
    assert "at least" not in said
    assert "were not watched" not in said


@pytest.mark.parametrize("wait", [(), ("--wait", "4")])
async def test_a_real_relay_leaves_nothing_but_what_is_named(
    relays: Relays, queue: Queue, cli: Cli, inbox: Declared, amqp_url: str, wait: tuple[str, ...]
) -> None:
    """Messages of every kind go out while the command watches; of those that stay it names the one that another session locks."""
    where = {"exchange": inbox.exchange, "routing_key": inbox.routing_key}
    await queue.sql("SELECT queue_message_pause('audit')")
    await queue.insert(2000, exchange="audit")
    await queue.insert(500, **where)
    await queue.insert(100, **where, ordering_key="k")
    await queue.insert(100, **where, available_at="2020-01-01T00:00:00Z")
    [kept_back] = await queue.insert(**where)
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT FROM queue_message WHERE id = %s FOR UPDATE", [kept_back])
        await relays.start(database=queue.url, broker=amqp_url)
        await until(lambda: queue.value(UP))

        found = cli.json("check", "--queue", *wait, code=1)

        assert [kept_back] == [row["id"] for row in found["lost_messages"]]
        assert 2000 == found["paused"]
    await queue.settled(left=2000)

    assert [] == cli.json("check", "--queue", "--wait", "1")["lost_messages"]
