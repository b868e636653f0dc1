"""relay check --queue: what no relay will find, and what is left in peace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from relay.cli.check_walk import PAGE
from relay.cli.check_watch import MOST
from tests.support.broker import Declared
from tests.support.cli import Cli, Seeded
from tests.support.logins import login
from tests.support.lost import assert_nothing_is_lost
from tests.support.queue import Queue, until
from tests.support.relays import Relays

RELAY = "INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-1', '1.0', 'h', 1, %s) RETURNING id"
LOCKED = "UPDATE queue_message SET lock_expires_at = now() + %s::interval, lock_token = gen_random_uuid(), locked_by = %s WHERE id = %s"
CLAIM = "UPDATE queue_message SET lock_expires_at = now() + interval '1 min', lock_token = gen_random_uuid(), attempts = 1 WHERE id = %s"
BACKLOG = "INSERT INTO queue_message (exchange) SELECT 'bulk' FROM generate_series(1, %s)"
ARCHIVE = "SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', NULL, NULL, 'relay-1')"
UP = "SELECT count(*) > 0 FROM queue_message_relay WHERE state->>'broker' = 'up'"
KEY_INDEX = "UPDATE pg_index SET indisready = %s, indisvalid = %s WHERE indexrelid = 'queue_message_ordering_key_idx'::regclass"
LANE_OF = "SELECT pg_get_functiondef('queue_message_lane_of'::regproc)"
Between = Callable[[Callable[[], object]], None]


@pytest.fixture
def beside(seeded: Seeded) -> Iterator[Seeded]:
    """The database, beside the triggers."""
    seeded.run("SET session_replication_role = replica")
    yield seeded
    seeded.run("RESET session_replication_role")


@pytest.fixture
def relay_row(seeded: Seeded) -> int:
    """A relay that lives and reaches its broker, by its row."""
    [(id_,)] = seeded.run(RELAY, '{"broker": "up"}')
    return int(id_)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Makes something happen between the two looks, in place of the time that passes there."""

    def instead(happens: Callable[[], object]) -> None:
        monkeypatch.setattr("relay.cli.check.time.sleep", lambda _seconds: happens())

    return instead


def lost(cli: Cli, *args: str) -> dict[str, str]:
    """Reasons of the lost messages by id, of which there must be some."""
    return {row["id"]: row["reason"] for row in cli.json("check", "--queue", *args, code=1)["lost_messages"]}


def kept(cli: Cli, *args: str) -> Any:
    """What the command says where no message is lost."""
    found = cli.json("check", "--queue", *args)
    assert [] == found["lost_messages"]
    return found


def test_an_id_of_another_cluster_is_named(cli: Cli, beside: Seeded) -> None:
    """A transaction id that this cluster has not given out yet; its own are not."""
    beside.insert()
    id_ = beside.insert(xid="9000000000")

    found = lost(cli)

    assert [id_] == list(found)
    assert "its transaction id 9000000000 is of another cluster and lies in this one's future: run `relay migrate`" == found[id_]


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        ("infinity", "for ever"),
        ("2999-01-01T00:00:00Z", "until 2999-01-01 00:00:00Z"),
        ("12000-01-01T00:00:00Z", "until the year 10000 or later"),
    ],
)
def test_a_time_that_never_comes_is_named(cli: Cli, beside: Seeded, moment: str, words: str) -> None:
    """Of a message that waits and of a lock; a time within years is waited for."""
    waits, locked = beside.insert(available_at=moment), beside.insert(lock_expires_at=moment)
    beside.run("INSERT INTO queue_message (exchange, available_at) VALUES ('orders', now() + interval '9 years')")

    found = lost(cli)

    assert {
        waits: f"it is to wait {words}: cancel it, or as the owner set available_at to NULL",
        locked: f"it is locked {words}: as the owner, set lock_expires_at and lock_token to NULL in this row",
    } == found


def test_a_lock_that_a_dead_relay_took_for_long_is_named(cli: Cli, seeded: Seeded, relay_row: int) -> None:
    """One of a living relay is not, nor one that ends within the lock time, nor one that somebody set by hand for an hour."""
    dead, living, soon, by_hand = (seeded.insert() for _ in range(4))
    seeded.run(LOCKED, "1 hour", relay_row + 1, dead)
    seeded.run(LOCKED, "1 hour", relay_row, living)
    seeded.run(LOCKED, "20 seconds", relay_row + 1, soon)
    seeded.run("UPDATE queue_message SET lock_expires_at = now() + interval '1 hour' WHERE id = %s", by_hand)

    [(id_, reason)] = lost(cli).items()

    assert dead == id_
    assert f"by relay {relay_row + 1}, which is not alive: as the owner, set lock_expires_at and lock_token to NULL in this row" in reason
    seeded.run("UPDATE queue_message SET lock_expires_at = NULL, lock_token = NULL WHERE id = %s", dead)
    assert 3 == kept(cli, "--wait", "0")["locked"]


def test_a_wrong_lane_is_named_and_the_advice_mends_it(cli: Cli, seeded: Seeded) -> None:
    """As of a row that was written while another function computed lanes."""
    [(right,)] = seeded.run(LANE_OF)
    seeded.run(right.replace("(pg_catalog.&) 63)", "(pg_catalog.&) 63 OPERATOR(pg_catalog.#) 1)"))
    id_ = seeded.insert(ordering_key="k")
    seeded.run(right)

    assert "as the owner, set ordering_key = ordering_key in this row" in lost(cli)[id_]

    seeded.run("UPDATE queue_message SET ordering_key = ordering_key")
    kept(cli)


def test_a_lane_that_nobody_can_own_is_named(cli: Cli, seeded: Seeded) -> None:
    """Its row is missing, so that no relay takes it."""
    id_ = seeded.insert(ordering_key="k")
    [(lane,)] = seeded.run("DELETE FROM queue_message_lane WHERE lane = (SELECT lane FROM queue_message) RETURNING lane")

    assert {id_: f"queue_message_lane has no row for its lane: as the owner, insert lane {lane} there"} == lost(cli)


def test_a_message_that_its_index_does_not_lead_to_is_named(cli: Cli, seeded: Seeded) -> None:
    """As after an upgrade of the system that sorts texts otherwise; the advice mends it."""
    seeded.run(KEY_INDEX, False, True)
    id_ = seeded.insert(ordering_key="k")
    seeded.run(KEY_INDEX, True, True)

    assert {id_: "the index of keys does not lead to it: as the owner, REINDEX INDEX CONCURRENTLY queue_message_ordering_key_idx"} == lost(
        cli
    )

    seeded.run("REINDEX INDEX CONCURRENTLY queue_message_ordering_key_idx")
    kept(cli)


def test_a_position_before_every_walk_is_named(cli: Cli, beside: Seeded) -> None:
    """No relay looks at or below (0, 0)."""
    beside.run("INSERT INTO queue_message (xid, seq, exchange) OVERRIDING SYSTEM VALUE VALUES ('0', 0, 'orders'), ('0', 1, 'orders')")

    assert ["its position lies before where every walk begins: insert it again and delete this row"] == list(lost(cli).values())


def test_what_waits_for_somebody_is_counted_and_not_named(cli: Cli, seeded: Seeded, relay_row: int, between: Between) -> None:
    """Paused exchanges, held keys, what stands behind a key's head, limited exchanges: each has a figure, none is watched."""
    seeded.run("SELECT queue_message_pause('audit'), queue_message_key_park('held'), queue_message_limit('slow', 1)")
    seeded.insert(exchange="audit")
    seeded.insert(exchange="slow")
    seeded.insert(available_at="2031-01-01T00:00:00Z")
    seeded.insert(ordering_key="open")
    for key in ("held", "held", "open"):
        seeded.insert(ordering_key=key)
    between(lambda: seeded.run("DELETE FROM queue_message WHERE ordering_key = 'open'"))

    found = kept(cli)

    assert relay_row
    figures = {"walked": 7, "claimable": 2, "locked": 0, "waiting": 1, "blocked": 3, "paused": 1, "held": 2, "held_keys": 1, "limited": 1}
    assert figures == {name: found[name] for name in figures}
    assert "1 key held by an operator, with 2 messages: `relay key list`\n" in cli("check", "--queue")


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

    what = "freed it, whose lock ended 2020-01-01 00:00:00Z, since" if "lock_expires_at" in columns else "claimed it since"
    assert f"nothing has {what}" in lost(cli)[id_]


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


@pytest.mark.parametrize("state", ['{"broker": "down or blocked"}', '{"broker": "up", "silent": {"orders": 12.5}}', None])
def test_nothing_is_blamed_on_relays_that_cannot_send(cli: Cli, seeded: Seeded, between: Between, state: str | None) -> None:
    """Nobody is alive, the broker is down, or the exchange does not answer: what can be claimed waits."""
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
    """A living relay has claimed it, and settles it as soon as the named session ends; that of a dead relay can be freed by nobody."""
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
    seeded.run(BACKLOG, MOST + 500)
    for _ in range(2):
        seeded.insert()
    between(lambda: None)

    found = cli.json("check", "--queue", code=1)

    assert (MOST + 2, 500) == (found["lost"], found["unwatched"])
    said = cli("check", "--queue", code=1).splitlines()
    assert said[-3] == "at least 2 more lost messages are not listed"
    assert said[-2].endswith(f", at least {MOST + 2} lost")
    assert said[-1] == f"500 messages were not watched: the first {MOST} of each exchange and kind are, and 100000 in all"


@pytest.mark.usefixtures("relay_row")
def test_where_all_were_watched_the_lost_ones_are_so_many(cli: Cli, seeded: Seeded, between: Between) -> None:
    """Up to the last one that is watched."""
    seeded.run(BACKLOG, MOST)
    between(lambda: None)

    said = cli("check", "--queue", code=1)

    assert f", {MOST} lost\n" in said
    assert "at least" not in said
    assert "were not watched" not in said


@pytest.mark.parametrize(
    ("state", "direction", "first"),
    [
        (None, "outbox", "no relay is alive, so nothing is sent: start one with `relay run`"),
        (None, "inbox", "no worker is alive, so nothing is handled: start one with `relay work`"),
        ('{"broker": "down or blocked"}', "outbox", "no relay reaches its broker, so nothing is sent: `relay status` says why"),
        ('{"broker": "up"}', "outbox", "no message is lost"),
    ],
)
def test_that_nobody_is_at_work_is_said_first(cli: Cli, seeded: Seeded, state: str | None, direction: str, first: str) -> None:
    """Before anything about messages: nothing will be sent, lost or not."""
    cli("config", "set", "direction", direction)
    if state:
        seeded.run(RELAY, state)
    seeded.insert()

    assert first == cli("check", "--queue", "--wait", "0").splitlines()[0]
    assert int(state is not None) == cli.json("check", "--queue", "--wait", "0")["relays_alive"]
    seeded.run("SET session_replication_role = replica")
    seeded.insert(xid="9000000000")
    assert (first != "no message is lost") == (first == cli("check", "--queue", "--wait", "0", code=1).splitlines()[0])


def test_many_lost_messages_are_counted_and_the_first_are_named(cli: Cli, beside: Seeded) -> None:
    """A thousand with their reason, the others by their number."""
    beside.run("INSERT INTO queue_message (xid, exchange) SELECT '9000000000', 'orders' FROM generate_series(1, 1200)")

    found = cli.json("check", "--queue", code=1)

    assert (1200, 1000) == (found["lost"], len(found["lost_messages"]))
    assert "200 more lost messages are not listed\n" in cli("check", "--queue", code=1)


def test_an_operator_may_check_and_writes_nothing(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """By the function of the schema, in a session that can only read."""
    seeded.insert()
    with login(database_url, "queue_message_operator") as operator:
        said = cli("check", "--queue", RELAY_DATABASE_URL=operator, PGOPTIONS="-c default_transaction_read_only=on")

    assert "no relay is alive" in said
    assert "\nno message is lost\n1 message in schema public: 1 claimable, 0 locked" in said


def test_fault_runs_end_with_the_same_rules(beside: Seeded, database_url: str) -> None:
    """A message that no relay would find fails the run that left it."""
    beside.insert()
    assert_nothing_is_lost(database_url)
    id_ = beside.insert(xid="9000000000")

    with pytest.raises(AssertionError, match=id_):
        assert_nothing_is_lost(database_url)


def test_what_is_to_be_checked_is_asked_for(cli: Cli) -> None:
    """More checks may come."""
    assert "Say what to check: `relay check --queue` or `relay check --borders`" == cli.refused("check", code=2)


async def test_a_real_relay_leaves_nothing_but_what_is_named(
    relays: Relays, queue: Queue, cli: Cli, inbox: Declared, amqp_url: str
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

        found = cli.json("check", "--queue", "--wait", "4", code=1)

        assert [kept_back] == [row["id"] for row in found["lost_messages"]]
        assert 2000 == found["paused"]
    await queue.settled(left=2000)

    assert [] == cli.json("check", "--queue", "--wait", "1")["lost_messages"]
