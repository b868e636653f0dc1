"""A schedule that fails is reported: by the view, by `relay status`, in the log and as a metric."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue
from tests.support.relays.cli import Cli, Seeded
from tests.support.relays.processes import Relays
from tests.support.relays.scrape import HTTP, counted, metric

pytestmark = pytest.mark.ids("A20")
ADD = "SELECT queue_message_schedule_add(%s, 'EVERY 1 hour', %s)"
RUN = "SELECT queue_message_run_schedules(now() + interval '61 min')"
FAILING = "SELECT name, why FROM queue_message_schedule_failing ORDER BY name"
REFUSED = 'it sent nothing: new row for relation "queue_message" violates check constraint "no_odd"'
DEAD = "its last message is dead, rejected (contract_violated): content breaks it"
ARCHIVE = "SELECT queue_message_archive_now(array_agg(id), %s, %s, %s, 'r') FROM queue_message"


def _break(seeded: Seeded) -> None:
    """One schedule's INSERT is refused, another's message is dead, a third's and a fourth's are well."""
    for name in ("refused", "dead", "well", "waits"):
        seeded.run(ADD, name, "odd" if name == "refused" else name)
    seeded.run("ALTER TABLE queue_message ADD CONSTRAINT no_odd CHECK (exchange <> 'odd')")
    seeded.run(RUN)
    seeded.run(f"{ARCHIVE} WHERE exchange = 'dead'", "rejected", "contract_violated", "content breaks it")
    seeded.run(f"{ARCHIVE} WHERE exchange = 'well'", "success", None, None)


def test_status_names_schedules_that_fail_and_why(cli: Cli, seeded: Seeded) -> None:
    """Not those that are paused or whose dead message was acknowledged, nor one whose next message went."""
    _break(seeded)
    assert [("dead", DEAD), ("refused", REFUSED)] == seeded.run(FAILING)

    lines = [line for line in cli("status").splitlines() if line.startswith("schedule ")]
    assert [f"schedule 'dead' fails: {DEAD}", f"schedule 'refused' fails: {REFUSED}"] == [line.rstrip() for line in lines]
    assert 2 == cli.json("status")["queue"]["schedules_failing"]
    listed = {row["name"]: row["fails"] for row in cli.json("schedule", "list")}
    assert {"dead": DEAD, "refused": REFUSED, "waits": None, "well": None} == listed
    assert "its last message is dead" in cli("schedule", "list")

    cli("dead", "ack", *(id_ for (id_,) in seeded.run("SELECT id::text FROM queue_message_dead")))
    cli("schedule", "pause", "refused")
    assert "violates check constraint" in cli.refused("schedule", "resume", "refused", code=1)
    assert [] == cli.json("status")["failing_schedules"]
    seeded.run("ALTER TABLE queue_message DROP CONSTRAINT no_odd")
    cli("schedule", "resume", "refused")
    assert [] == seeded.run(FAILING)


def test_a_message_with_the_id_of_a_schedules_last_one_makes_no_schedule_fail(seeded: Seeded) -> None:
    """Producers choose their ids. Also not before the schedule's own one has left, nor after another tick; its own death still shows."""
    seeded.run(ADD, "well", "well")
    taken: list[Any] = []
    for hours in (1, 2):
        seeded.run(f"SELECT queue_message_run_schedules(now() + interval '{hours * 61} min')")
        taken += seeded.run("SELECT last_id FROM queue_message_schedule")[0]
        seeded.run(f"{ARCHIVE} WHERE exchange = 'well'", "success", None, None)
        for id_ in taken:
            seeded.run("INSERT INTO queue_message (id, exchange) VALUES (%s, 'strange')", id_)
        seeded.run(f"{ARCHIVE} WHERE exchange = 'strange'", "rejected", "expired", "an attacker's words")
        assert [] == seeded.run(FAILING)
    seeded.run("SELECT queue_message_run_schedules(now() + interval '183 min')")
    seeded.run(f"{ARCHIVE} WHERE exchange = 'well'", "rejected", "contract_violated", "content breaks it")
    assert [("well", DEAD)] == seeded.run(FAILING)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE queue_message_schedule SET last_xid = NULL, last_seq = NULL",
        "SELECT set_config('relay.renumber', 'on', false), queue_message_renumber_move(array_agg(xid), array_agg(seq)) FROM queue_message",
    ],
    ids=["before the upgrade", "renumbered"],
)
def test_a_schedule_fails_by_what_it_sent_before(seeded: Seeded, change: str) -> None:
    """Where it has noted no place yet, and where its message has been given another one since, as one of another cluster."""
    seeded.run(ADD, "dead", "dead")
    seeded.run(RUN)
    seeded.run(change)
    seeded.run(f"{ARCHIVE} WHERE exchange = 'dead'", "rejected", "contract_violated", "content breaks it")
    assert [("dead", DEAD)] == seeded.run(FAILING)


async def test_relays_tell_of_a_schedule_that_fails_once(
    relays: Relays, queue: Queue, seeded: Seeded, topology: Topology, amqp_url: str
) -> None:
    """By one line of the log each, with the sentence, and as a metric that an alert rule reads."""
    _break(seeded)
    relay = await relays.start(database=queue.url, broker=amqp_url, settings=HTTP)
    await relay.logged("schedule_fails", 2)

    assert 2 == await metric(relay, "relay_schedules_failing")
    told = {line["name"]: (line["level"], line["error"]) for line in relay.of("schedule_fails")}
    assert {"dead": ("warning", DEAD), "refused": ("warning", REFUSED)} == told


async def test_a_fold_is_counted_by_what_became_of_its_messages(relays: Relays, queue: Queue, topology: Topology, amqp_url: str) -> None:
    """And what waits as a gauge, with how long the first of it has been due."""
    to = (await topology.declare()).exchange
    await queue.sql("INSERT INTO queue_message_keyed (exchange, coalesce_key) SELECT %s, 'k' FROM generate_series(1, 3)", to)
    await queue.sql("INSERT INTO queue_message_keyed (exchange, bundle_key) SELECT %s, 'b' FROM generate_series(1, 4)", to)
    await queue.sql("INSERT INTO queue_message_keyed (exchange, bundle_key, available_at) VALUES (%s, 'later', '2031-01-01')", to)
    relay = await relays.start(database=queue.url, broker=amqp_url, settings=HTTP)
    for outcome, messages in (("superseded", 2), ("bundled", 4), ("sent", 1)):
        assert messages == await counted(relay, messages, "relay_keys_folded_total", outcome=outcome)
    assert 0 < await metric(relay, "relay_queue_keyed")


def test_a_schedule_whose_message_waits_for_a_lock_holds_up_no_other_one(seeded: Seeded, database_url: str) -> None:
    """It is put off: whatever comes after it is sent in the same call or the next, and it is sent itself when the lock is free."""
    for number in range(20):
        seeded.run(ADD, f"held{number}", "held")
    seeded.run(ADD, "well", "well")
    seeded.run(
        "CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END'"
    )
    seeded.run(
        "CREATE TRIGGER wait BEFORE INSERT ON queue_message FOR EACH ROW WHEN (NEW.exchange = 'held') EXECUTE FUNCTION public.wait()"
    )
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(1)")
        for _ in range(3):
            seeded.run(f"SET statement_timeout = '10s'; {RUN}")
        assert [("well",)] == seeded.run("SELECT exchange FROM queue_message")
    for _ in range(3):
        seeded.run(RUN)
    assert [("held", 20), ("well", 1)] == seeded.run("SELECT exchange, count(*) FROM queue_message GROUP BY 1 ORDER BY 1")


def test_slow_schedules_are_sent_in_several_calls(seeded: Seeded) -> None:
    """What a call has sent within two seconds holds, and it says that more is due."""
    seeded.run("CREATE FUNCTION public.think() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.5); RETURN NEW; END'")
    for number in range(4):
        seeded.run(ADD, f"slow{number}", "slow")
    seeded.run("CREATE TRIGGER think BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION public.think()")
    [(inserted, more)] = seeded.run(
        "SELECT inserted, next_at < now() + interval '61 min' FROM queue_message_run_schedules(now() + interval '61 min')"
    )
    assert (2, True) == (inserted, more)
