"""relay show: what a message of the queue waits for, and the command that ends the wait."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

RELAY = "INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-1', '1.0', 'h', 1, %s) RETURNING id"
SINCE = "SELECT to_char({0}_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SSZ'), session_user::text FROM queue_message_{1}"
PAUSED, LIMITED, PARKED = (SINCE.format(*names) for names in (("paused", "pause"), ("limited", "limit"), ("held", "key_hold")))
CLAIMED = """UPDATE queue_message SET lock_expires_at = now() + %s::interval, lock_token = gen_random_uuid(), locked_by = %s, attempts = 1
    WHERE id = %s"""
TURN = "its turn; if it stays, `relay check --queue` says why"


@pytest.fixture
def relay_row(seeded: Seeded) -> int:
    """A relay that lives and reaches its broker, by its row."""
    [(id_,)] = seeded.run(RELAY, '{"broker": "up"}')
    return int(id_)


@pytest.fixture
def beside(seeded: Seeded) -> Iterator[Seeded]:
    """The database, with its triggers bypassed."""
    seeded.run("SET session_replication_role = replica")
    yield seeded
    seeded.run("RESET session_replication_role")


def waits_for(cli: Cli, id_: str) -> str | None:
    """What the command says that the message waits for, the same to people and to scripts."""
    said: str | None = cli.json("show", id_)["waits_for"]
    assert [f"waits for: {said}"] * (said is not None) == [line for line in cli("show", id_).splitlines() if line.startswith("waits for")]
    return said


def test_a_message_of_a_paused_exchange_waits_for_its_resumption(cli: Cli, seeded: Seeded) -> None:
    """With since when, by whom and why, in the words of the status."""
    id_ = seeded.insert()
    seeded.run("SELECT queue_message_pause('orders', 'upgrade', 'ann')")
    [(since, user)] = seeded.run(PAUSED)

    said = waits_for(cli, id_)

    assert f"exchange 'orders' has been paused since {since} by {user} (as ann): upgrade; `relay resume orders`" == said
    assert said in cli("status")


@pytest.mark.usefixtures("relay_row")
def test_a_message_behind_another_names_the_first_of_its_key(cli: Cli, seeded: Seeded) -> None:
    """With its id, its state and what that one waits for; the first one has no other in front of it."""
    head = seeded.insert(ordering_key="k", available_at="2031-01-01T00:00:00Z")
    id_ = seeded.insert(ordering_key="k")
    first = "which goes first under key 'k' and itself waits for:"

    assert f"message {head} (delayed), {first} its time, 2031-01-01 00:00:00Z; `relay show {head}`" == waits_for(cli, id_)
    assert "its time, 2031-01-01 00:00:00Z" == waits_for(cli, head)

    seeded.run("UPDATE queue_message SET available_at = NULL")
    assert f"message {head} (ready), {first} {TURN}; `relay show {head}`" == waits_for(cli, id_)


def test_behind_the_first_message_of_a_paused_exchange_both_are_named(cli: Cli, seeded: Seeded) -> None:
    """The output names the head and its exchange, which may be a different one. The head's state shows that it is delayed."""
    head = seeded.insert(ordering_key="k", exchange="audit", available_at="2031-01-01T00:00:00Z")
    id_ = seeded.insert(ordering_key="k")
    seeded.run("SELECT queue_message_pause('audit')")

    said = str(waits_for(cli, id_))

    assert said.startswith(
        f"message {head} (delayed), which goes first under key 'k' and itself waits for: exchange 'audit' has been paused since "
    )
    assert said.endswith(f"; `relay resume audit`; `relay show {head}`")


@pytest.mark.usefixtures("relay_row")
def test_what_waits_under_a_key_of_its_own_is_not_the_first_of_an_ordering_key(cli: Cli, seeded: Seeded) -> None:
    """It is not in the queue yet, so the queue's first message goes."""
    cli("enqueue", "orders", "paid", "1", "--bundle-key", "b", "--ordering-key", "k", "--available-at", "2031-01-01T00:00:00Z")
    head, id_ = (seeded.insert(ordering_key="k") for _ in range(2))

    assert str(waits_for(cli, id_)).startswith(f"message {head} (ready), ")
    assert TURN == waits_for(cli, head)


@pytest.mark.parametrize(("by", "signed"), [("", ""), ("ann", " (as ann)")])
def test_a_message_of_a_parked_key_names_who_parked_it(cli: Cli, seeded: Seeded, by: str, signed: str) -> None:
    """It also gives the reason and the command that resumes the key. The head and a message of a paused exchange show the same."""
    head, id_ = (seeded.insert(ordering_key="customer 7") for _ in range(2))
    seeded.run("SELECT queue_message_key_park('customer 7', 'broken address', %s)", by or None)
    [(since, user)] = seeded.run(PARKED)

    parked = f"key 'customer 7' has been parked since {since} by {user}{signed}: broken address; `relay key resume 'customer 7'`"
    assert [parked, parked] == [waits_for(cli, head), waits_for(cli, id_)]

    seeded.run("SELECT queue_message_pause('orders')")
    both = str(waits_for(cli, id_))
    assert both.startswith("exchange 'orders' has been paused since")
    assert both.endswith(f"`relay resume orders`, and {parked}")


def test_a_key_that_a_relay_parked_names_the_relay(cli: Cli, seeded: Seeded) -> None:
    """By the policy on_dead_key, with the code of what died."""
    id_ = seeded.insert(ordering_key="k")
    seeded.run("INSERT INTO queue_message_key_hold (ordering_key, held_by, reason) VALUES ('k', 'relay-1', 'unroutable')")

    assert " by relay-1: unroutable; `relay key resume k`" in str(waits_for(cli, id_))


@pytest.mark.usefixtures("relay_row")
def test_a_message_of_a_limited_exchange_says_so(cli: Cli, seeded: Seeded) -> None:
    """While it could go; in the words of the status, and whether relays say that messages wait for the limit."""
    id_, later = seeded.insert(), seeded.insert(available_at="2031-01-01T00:00:00Z")
    seeded.run("SELECT queue_message_limit('orders', 0.5, 'old consumer')")
    [(since, user)] = seeded.run(LIMITED)
    limited = f"exchange 'orders' has been limited to 0.5 messages a second since {since} by {user}: old consumer"

    assert f"{limited}; `relay unlimit orders`" == waits_for(cli, id_)
    assert "its time, 2031-01-01 00:00:00Z" == waits_for(cli, later)

    seeded.run("""UPDATE queue_message_relay SET state = '{"broker": "up", "behind": ["orders"]}'""")
    assert f"{limited}, and messages wait for it; `relay unlimit orders`" == waits_for(cli, id_)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, "no relay is alive, so nothing is sent: start one with `relay run`"),
        ('{"broker": "down or blocked"}', "no relay reaches its broker, so nothing is sent: `relay status` says why"),
        (
            '{"broker": "up", "silent": {"orders": 12.5}}',
            "the broker, which has not answered for exchange 'orders' for 12 s: `relay status`",
        ),
        ('{"broker": "up"}', TURN),
    ],
)
def test_a_message_that_can_be_claimed_waits_for_a_relay(cli: Cli, seeded: Seeded, state: str | None, words: str) -> None:
    """No relay is alive, the broker is down, the exchange does not answer, or the message is next."""
    if state:
        seeded.run(RELAY, state)

    assert words == waits_for(cli, seeded.insert())


def test_a_claimed_message_waits_for_its_settle(cli: Cli, seeded: Seeded, relay_row: int, database_url: str) -> None:
    """Of the relay that has it, by its name; once the lock is over it is freed, and a session in the way is named."""
    claimed, ended, orphan = (seeded.insert() for _ in range(3))
    by_hand = seeded.insert()
    seeded.run("UPDATE queue_message SET lock_expires_at = '2031-01-01T00:00:00Z' WHERE id = %s", by_hand)
    for ends, relay, id_ in (("20 s", relay_row, claimed), ("-1 min", relay_row, ended), ("20 s", relay_row + 1, orphan)):
        seeded.run(CLAIMED, ends, relay, id_)

    assert str(waits_for(cli, claimed)).startswith("relay-1, which has claimed it; its lock ends ")
    assert str(waits_for(cli, ended)).startswith("a relay, which frees it: its lock ended ")
    assert str(waits_for(cli, orphan)).endswith(f"Z, which was taken by relay {relay_row + 1}, which is not alive")
    assert "the end of its lock, 2031-01-01 00:00:00Z, which was taken by hand" == waits_for(cli, by_hand)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM queue_message FOR UPDATE")
        pid = other.info.backend_pid
        assert f"session {pid} (pg_stat_activity), which has the row locked: if that lasts, end its transaction" == waits_for(cli, ended)


def test_a_message_that_no_relay_will_find_says_why(cli: Cli, beside: Seeded) -> None:
    """In the words of the check."""
    id_ = beside.insert(xid="9000000000")

    [row] = cli.json("check", "--queue", code=1)["lost_messages"]
    assert f"nothing, for no relay will find it: {row['reason']}" == waits_for(cli, id_)


def test_what_is_archived_or_waits_under_a_key_waits_for_nothing_else(cli: Cli, seeded: Seeded) -> None:
    """The story itself says what became of it, or when it is due; a replay with the same id is in the queue again."""
    dead = seeded.archive("failed", "unroutable")
    assert waits_for(cli, dead) is None
    assert waits_for(cli, cli("enqueue", "orders", "paid", "1", "--bundle-key", "b").strip()) is None

    seeded.run("SELECT queue_message_replay(%s, true)", dead)
    assert "no relay is alive, so nothing is sent: start one with `relay run`" == waits_for(cli, dead)


def test_an_operator_may_ask(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """By views and functions, in a session that can only read."""
    seeded.insert(ordering_key="k")
    id_ = seeded.insert(ordering_key="k")
    with login(database_url, "queue_message_operator") as operator:
        said = cli("show", id_, RELAY_DATABASE_URL=operator, PGOPTIONS="-c default_transaction_read_only=on")

    assert "which goes first under key 'k'" in said


def test_foreign_names_are_shown_as_a_shell_takes_them(cli: Cli, seeded: Seeded) -> None:
    """Of exchanges and keys, with nothing that steers a terminal; nor does a reason."""
    head = seeded.insert(exchange="\x1b[31mx", ordering_key="k\n")
    id_ = seeded.insert(ordering_key="k\n")
    seeded.run("SELECT queue_message_pause(%s, %s)", "\x1b[31mx", "\x1b[2J")

    said = str(waits_for(cli, id_))

    assert said.startswith(
        f"message {head} (ready), which goes first under key $'k\\x0a' and itself waits for: exchange $'\\x1b[31mx' has been paused"
    )
    assert "?[2J; `relay resume $'\\x1b[31mx'`" in said
    seeded.run("SELECT queue_message_key_park(%s)", "k\n")
    assert str(waits_for(cli, id_)).endswith("no reason given; `relay key resume $'k\\x0a'`")


def test_messages_that_have_one_id_are_told_apart(cli: Cli, seeded: Seeded) -> None:
    """All are shown, oldest first, each with its place; a place shows that one with its own replays, and what it waits for."""
    id_ = seeded.archive("failed", "c", "first")
    seeded.archive("failed", "c", "second", id=id_)
    seeded.insert(id=id_)
    first, second, waiting = [part["place"] for part in cli.json("show", id_)["story"]]
    [(of_first,)] = seeded.run(
        "SELECT queue_message_replay_at(%s, split_part(%s, '/', 1)::xid8, split_part(%s, '/', 2)::bigint)", id_, first, first
    )

    whole = cli("show", id_)
    parts = {place: cli.json("show", f"{id_}@{place}") for place in (first, second, waiting)}

    assert f"Several messages have this id. `relay show {id_}@{first}` shows the one at that place." in whole
    assert f"the one at {first} was replayed as {of_first} (ready)" in whole
    assert {place: [place] for place in parts} == {place: [part["place"] for part in shown["story"]] for place, shown in parts.items()}
    assert [[str(of_first)], [], []] == [[replay["id"] for replay in shown["replays"]] for shown in parts.values()]
    assert [True, True, False] == [shown["waits_for"] is None for shown in parts.values()]
    assert "Several" not in cli("show", f"{id_}@{second}")
    cli.refused("show", f"{id_}@1/1", code=3)


def test_a_message_that_was_replayed_with_its_id_is_one(cli: Cli, seeded: Seeded) -> None:
    """Its story has two parts and no warning."""
    id_ = seeded.archive("failed", "c", "s")
    seeded.run("SELECT queue_message_replay(%s, true)", id_)

    assert 2 == len(cli.json("show", id_)["story"])
    assert "Several" not in cli("show", id_)


def test_the_newest_of_many_messages_with_one_id_are_shown(cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers choose ids. A line says that there are more."""
    monkeypatch.setattr("relay.cli.queue_check.story.SHOWN", 3)
    id_ = seeded.archive("failed")
    for number in range(4):
        seeded.run("INSERT INTO queue_message (id, exchange, routing_key) VALUES (%s, 'orders', %s)", id_, str(number))
        seeded.run("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', NULL, NULL, 'relay-1')", id_)
        seeded.run("SELECT queue_message_dead_replay(id, xid, seq, 9, 'x') FROM queue_message_dead ORDER BY archived_at DESC LIMIT 1")

    told = cli.json("show", id_)
    assert ["1", "2", "3"] == [part["routing_key"] for part in told["story"]]
    assert 3 == len(told["replays"])
    assert "Only the newest 3 are shown. ID@XID/SEQ shows an older one." in cli("show", id_)
