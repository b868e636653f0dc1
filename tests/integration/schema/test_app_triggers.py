"""A trigger of the application's on the queue that spoils what a relay writes of one message: every other one goes out, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import psycopg
import pytest

from relay import events
from relay.claims.cursor import LAST_XID
from relay.message import SUCCESS, Range
from relay.ports import Fresh, SettleRow
from relay.postgres.schema.migrate import migrate
from tests.support.broker.topology import Declared, Topology
from tests.support.database.app_triggers import REFUSALS
from tests.support.database.queue import MadeStore, MakeStore, Queue, busy, ids_of, positions_of
from tests.support.relays.processes import Relays

TRIGGER = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; END $$;
    CREATE TRIGGER refuse BEFORE {} ON queue_message FOR EACH ROW WHEN (OLD.expires_at = '9999-01-01') EXECUTE FUNCTION refuse();
"""
ARCHIVED = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON queue_message_archive FOR EACH ROW WHEN (NEW.id = '{}') EXECUTE FUNCTION refuse();
"""
MARK = "UPDATE queue_message SET expires_at = '9999-01-01' WHERE id = ANY(%s::uuid[])"
"""Makes these messages those that the trigger refuses."""


@pytest.fixture(params=[*REFUSALS])
def refusal(request: pytest.FixtureRequest) -> str:
    """What the trigger does."""
    return REFUSALS[str(request.param)]


async def refuse(queue: Queue, refusal: str, *ids: str, on: str = "UPDATE") -> None:
    """Have the application refuse these from now on."""
    await queue.sql(MARK, [*ids])
    await queue.sql(TRIGGER.format(refusal, on))


async def pardon(queue: Queue) -> None:
    """Have it refuse none any more."""
    await queue.sql("DROP TRIGGER refuse ON queue_message")


@pytest.fixture
async def inbox(topology: Topology) -> Declared:
    """An exchange and a queue behind it."""
    return await topology.declare()


async def _fresh(queue: Queue, to: dict[str, str]) -> str:
    return (await queue.insert(**to))[0]


async def _ordered(queue: Queue, to: dict[str, str]) -> str:
    return (await queue.insert(ordering_key="refused", **to))[0]


async def _retried(queue: Queue, to: dict[str, str]) -> str:
    [id_] = await queue.insert(**to)
    await queue.sql("UPDATE queue_message SET available_at = now() - interval '1 s', attempts = 1 WHERE id = %s", id_)
    return id_


async def _suspect(queue: Queue, to: dict[str, str]) -> str:
    [id_] = await queue.insert(**to)
    await queue.sql("UPDATE queue_message SET available_at = now() - interval '1 s', locked_by = 0, attempts = 1 WHERE id = %s", id_)
    return id_


async def _of_the_dead(queue: Queue, to: dict[str, str]) -> str:
    [id_] = await queue.insert(**to)
    await queue.sql("UPDATE queue_message SET lock_expires_at = now() - interval '1 s' WHERE id = %s", id_)
    return id_


@pytest.mark.parametrize("place", [_fresh, _ordered, _retried, _suspect, _of_the_dead])
async def test_a_message_that_a_trigger_refuses_holds_up_no_other(
    relays: Relays, queue: Queue, inbox: Declared, topology: Topology, amqp_url: str, refusal: str,
    place: Callable[[Queue, dict[str, str]], Awaitable[str]],
) -> None:  # fmt: skip
    """Its neighbours of the same state and new messages go, it follows once it may, and nothing goes twice."""
    to = {"exchange": inbox.exchange, "routing_key": inbox.routing_key}
    refused = [await place(queue, to) for _ in range(3)]
    beside = [] if place is _ordered else [await place(queue, to) for _ in range(20)]
    await refuse(queue, refusal, *refused)
    relay = await relays.start(database=queue.url, broker=amqp_url)
    for round_ in range(3):
        beside += [*await queue.insert(200, **to), *await queue.insert(ordering_key=f"key {round_}", **to)]
        await queue.settled(3, seconds=20)
    assert {*refused} == {id_ for (id_,) in await queue.sql("SELECT id::text FROM queue_message")}
    if place is not _of_the_dead:
        assert (await relay.logged("message_refused"))["id"] in refused

    await pardon(queue)
    await queue.settled(seconds=20)
    came = [str(message.message_id) for message in await topology.drain(inbox.queue)]
    assert sorted([*beside, *refused]) == sorted(came)


async def test_a_claim_passes_what_is_refused_and_takes_the_rest(queue: Queue, store: MadeStore, refusal: str) -> None:
    """At the limit, too: the next claim continues behind it, and one that finds nothing else comes to the end."""
    ids = await queue.insert(5)
    await refuse(queue, refusal, *ids[:2], ids[3])
    claimed = await store.take(limit=2)
    assert (None, True) == (claimed.batch, claimed.full)
    assert 2 == len(claimed.refused)

    taken: list[str] = []
    while claimed.full and claimed.last:
        claimed = await store.take(Fresh([Range(claimed.last, LAST_XID)], 10_000), limit=10)
        taken += ids_of(claimed.batch)
    assert [ids[2], ids[4]] == taken


async def test_a_refused_message_is_told_of_once(queue: Queue, make_store: MakeStore) -> None:
    """Not with each try: a relay tries it every two seconds."""
    [id_] = await queue.insert()
    await refuse(queue, REFUSALS["raises"], id_)
    told: list[events.Event] = []
    store = make_store(emit=told.append)
    for _ in range(3):
        assert None is (await store.take()).batch
    assert [events.MessageRefused(id_, "orders", "not this one")] == told


async def test_any_number_of_refused_messages_is_told_of_so_often_at_the_most(
    queue: Queue, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trigger that refuses thousands fills no log."""
    monkeypatch.setattr("relay.postgres.refusals.MAX_TOLD", 3)
    ids = await queue.insert(10)
    await refuse(queue, REFUSALS["raises"], *ids)
    told: list[events.Event] = []
    store = make_store(emit=told.append)
    for _ in range(2):
        await store.take()
    assert 3 == len(told)


async def test_locks_are_renewed_past_a_message_whose_update_is_refused(queue: Queue, store: MadeStore, refusal: str) -> None:
    """The others have a new deadline; the refused one keeps its own."""
    ids = await queue.insert(5)
    batch = await store.batch()
    await refuse(queue, refusal, ids[2])
    batch.deadline = 0.0

    await store.renew(batch, positions_of(batch))

    assert [False, False, True, False, False] == [batch.is_overdue(claim, 1.0) for claim in batch.claims]


async def test_what_a_trigger_keeps_in_the_queue_is_no_lost_lock(queue: Queue, store: MadeStore) -> None:
    """It is ours still and was delivered: it is settled again, and never sent again meanwhile."""
    ids = await queue.insert(3)
    batch = await store.batch()
    await refuse(queue, REFUSALS["skips"], ids[1], on="DELETE")

    assert busy(ids[1]) == await store.archive(batch, [SettleRow(claim, SUCCESS, 1, 2) for claim in batch.claims], again=False)

    assert {ids[0], ids[2]} == {*await queue.results()}


async def test_a_message_that_the_archive_refuses_stays_and_goes_once(
    relays: Relays, queue: Queue, inbox: Declared, topology: Topology, amqp_url: str, refusal: str
) -> None:
    """Its neighbours are archived, and it follows once it may: it was sent, and is not sent again meanwhile."""
    ids = await queue.insert(20, exchange=inbox.exchange, routing_key=inbox.routing_key)
    await queue.sql(ARCHIVED.format(refusal, ids[7]))
    relay = await relays.start(database=queue.url, broker=amqp_url)
    await queue.settled(1, seconds=20)
    await relay.logged("settle_failed")
    assert [(ids[7],)] == await queue.sql("SELECT id::text FROM queue_message")

    await queue.sql("DROP TRIGGER refuse ON queue_message_archive")
    await queue.settled(seconds=20)
    assert sorted(ids) == sorted(await queue.results())
    assert sorted(ids) == sorted(str(message.message_id) for message in await topology.drain(inbox.queue))


AUDIT = """
    CREATE TABLE audit (id uuid);
    CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO audit VALUES (NEW.id); RETURN NEW; END$$;
    CREATE TRIGGER audit BEFORE UPDATE ON queue_message FOR EACH ROW EXECUTE FUNCTION audit();
    GRANT INSERT ON audit TO PUBLIC;
"""


async def test_a_trigger_that_counts_on_a_search_path_is_named_and_may_pin_one(queue: Queue, make_store: MakeStore) -> None:
    """With the message that it keeps, and by the migration that ended the path; the function's own path helps."""
    told: list[events.Event] = []
    store = make_store(emit=told.append)
    await queue.insert()
    await queue.sql(AUDIT)
    said: list[str] = []
    await queue.sql("DELETE FROM queue_message_migration WHERE version = 66")
    migrate(queue.url, say=said.append)
    [sentence] = [line for line in said if "search path" in line]
    assert "Relays run the trigger audit of public.queue_message with pg_catalog alone on the search path." in sentence
    assert None is (await store.take()).batch
    [refused] = told
    assert isinstance(refused, events.MessageRefused)
    assert refused.error.startswith("A trigger of yours names something without its schema: ")
    assert 'SET search_path for its function (relation "audit" does not exist).' in refused.error

    await queue.sql("ALTER FUNCTION audit() SET search_path = public")
    assert 1 == len((await store.batch()).claims)
    await queue.sql("DELETE FROM queue_message_migration WHERE version = 66")
    said.clear()
    migrate(queue.url, say=said.append)
    assert [] == [line for line in said if "search path" in line]


@pytest.mark.parametrize("state", ["insufficient_privilege", "undefined_column", "invalid_authorization_specification", "syntax_error"])
async def test_what_a_trigger_says_of_rights_and_names_is_no_outage(queue: Queue, make_store: MakeStore, state: str) -> None:
    """For every SQLSTATE of those classes, the others are claimed. The refused message is reported with what to do."""
    ids = await queue.insert(3)
    await refuse(queue, f"RAISE EXCEPTION 'not this one' USING ERRCODE = '{state}'", ids[1])
    told: list[events.Event] = []
    assert [ids[0], ids[2]] == ids_of((await make_store(emit=told.append).take()).batch)
    sentence = "A trigger of yours fails: correct its function, or GRANT to the login what it needs (not this one)."
    assert [events.MessageRefused(ids[1], "orders", sentence)] == told


async def test_a_login_that_lacks_its_right_is_told_so_of_no_message(queue: Queue, unique: str) -> None:
    """Also one by one: no trigger has a part in it."""
    await queue.insert()
    await queue.sql(f'CREATE ROLE "{unique}"')
    try:
        await queue.sql(f'GRANT SELECT ON queue_message TO "{unique}"')
        await queue.sql(f'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO "{unique}"')
        async with await psycopg.AsyncConnection.connect(queue.url) as connection:
            await connection.execute(f'SET ROLE "{unique}"'.encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="queue_message"):
                await connection.execute(
                    "SELECT one.* FROM queue_message, queue_message_claim_one(xid, seq, now(), gen_random_uuid(), 1) AS one"
                )
    finally:
        await queue.sql(f'DROP OWNED BY "{unique}"')
        await queue.sql(f'DROP ROLE "{unique}"')
