"""relay check --queue: what no relay will find, and what is left in peace."""

from __future__ import annotations

import pytest

from tests.support.database.checking import RELAY, Between, kept, lost
from tests.support.database.lost import assert_nothing_is_lost
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

LOCKED = "UPDATE queue_message SET lock_expires_at = now() + %s::interval, lock_token = gen_random_uuid(), locked_by = %s WHERE id = %s"
KEY_INDEX = "UPDATE pg_index SET indisready = %s, indisvalid = %s WHERE indexrelid = 'queue_message_ordering_key_idx'::regclass"
LANE_OF = "SELECT pg_get_functiondef('queue_message_lane_of'::regproc)"


def test_an_id_of_another_cluster_is_named(cli: Cli, beside: Seeded) -> None:
    """A transaction id that this cluster has not given out yet; its own are not."""
    beside.insert()
    id_ = beside.insert(xid="9000000000")

    found = lost(cli)

    assert [id_] == list(found)
    says = "its transaction id 9000000000 is of another cluster: run `relay migrate`, which renumbers it or says what prevents that"
    assert says == found[id_]


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

    assert {id_: f"queue_message_lane has no row for this message's lane: as the owner, insert lane {lane} there"} == lost(cli)


def test_a_message_that_its_index_does_not_lead_to_is_named(cli: Cli, seeded: Seeded) -> None:
    """This happens after an upgrade of the system that changes the sort order of texts. Following the advice repairs it."""
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

    assert ["its position lies before the start of every scan: insert it again and delete this row"] == list(lost(cli).values())


def test_what_waits_for_somebody_is_counted_and_not_named(cli: Cli, seeded: Seeded, relay_row: int, between: Between) -> None:
    """Paused exchanges, held keys, messages behind a key's head and limited exchanges each have a figure. None of them is watched."""
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
