"""A trigger of the application's refuses one message: the others that are due are sent, and that one is reported and tried again."""

from __future__ import annotations

import pytest

from relay.errors import StoreError
from relay.message import SUCCESS
from relay.ports import SettleRow
from tests.support.broker.topology import Topology
from tests.support.database.keyed import contents, fold, keyed, queued
from tests.support.database.queue import MadeStore, Queue
from tests.support.relays.processes import Relays

REFUSES = """
    CREATE FUNCTION refuse_thirteen() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.content @> '13' OR NEW.content @> '[13]' THEN
            {};
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse_thirteen BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION refuse_thirteen();
"""
FAILING = "SELECT exchange, key, why FROM queue_message_keyed_failing"


RAISES = ("RAISE EXCEPTION 'thirteen is not sold'", "thirteen is not sold")
SKIPS = ("RETURN NULL", "A trigger of {} skips the INSERT without an error.")
EITHER = pytest.mark.parametrize("refusal", [RAISES, SKIPS], ids=["raises", "skips"])
"""What the trigger does, and how that is reported."""


async def refuse(queue: Queue, table: str = "queue_message", refusal: tuple[str, str] = RAISES) -> str:
    """Have the application refuse the content 13 there; return how that is reported."""
    await queue.sql(REFUSES.format(refusal[0], table))
    return refusal[1].format(table)


@EITHER
@pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
@pytest.mark.ids("D7")
async def test_a_key_that_cannot_be_sent_holds_up_no_other(queue: Queue, kind: str, refusal: tuple[str, str]) -> None:
    """The same fold sends the others. The reason of the failure is reported, and no message under the key is lost."""
    why = await refuse(queue, refusal=refusal)
    for n in (12, 13, 14):
        await keyed(queue, **{kind: f"k{n}"}, content=n)
    bad = await queue.value("SELECT id::text FROM queue_message_keyed WHERE content = '13'")

    assert 2 == await fold(queue, "1 min")

    assert [12, 14] == [content[0] if kind == "bundle_key" else content for content in await contents(queue)]
    assert [("orders", "k13", why)] == await queue.sql(FAILING)
    state, detail = (await queue.sql("SELECT state, error_detail FROM queue_message_state WHERE id = %s", bad))[0]
    assert ("keyed", True) == (state, detail.endswith(f"; {why}"))


async def test_it_is_tried_again_after_as_long_as_it_has_waited_and_goes_when_it_may(queue: Queue) -> None:
    """Not at once, for each try folds what is due key by key; and no later than the longest backoff."""
    await refuse(queue)
    await keyed(queue, coalesce_key="c", content=13)
    waits = "SELECT extract(epoch FROM due_at - created_at)::float8 FROM queue_message_keyed_row"
    for after, wait in (("1 s", 2), ("4 s", 8), ("1 hour", 4200)):
        assert 0 == await fold(queue, after)
        assert wait == pytest.approx(await queue.value(waits), abs=1)
    assert await queue.value("SELECT next_at > now() + interval '1 hour' FROM queue_message_fold()")

    await queue.sql("DROP TRIGGER refuse_thirteen ON queue_message")
    assert (0, 1) == (await fold(queue, "1 hour"), await fold(queue, "2 hours"))
    assert ([13], []) == (await contents(queue), await queue.sql(FAILING))


async def test_a_newer_version_goes_in_place_of_one_that_cannot_be_sent(queue: Queue) -> None:
    """Also while that one waits for its next try."""
    await refuse(queue)
    await keyed(queue, coalesce_key="c", content=13)
    assert 0 == await fold(queue)
    good = await keyed(queue, coalesce_key="c", content=15)

    assert 1 == await fold(queue)
    assert [(good, 15)] == await queued(queue)
    assert 1 == await fold(queue, "1 hour")
    assert ([(good, 15)], []) == (await queued(queue), await queue.sql(FAILING))


async def test_parts_of_a_bundle_that_cannot_be_sent_stay_together(queue: Queue) -> None:
    """A new part of the key is due with them, and nothing is sent twice."""
    await refuse(queue)
    for n in (1, 13, 2):
        await keyed(queue, bundle_key="b", content=n)
    assert 0 == await fold(queue, "1 min")
    await keyed(queue, bundle_key="b", content=3)
    assert 0 == await fold(queue, "2 min")
    assert 1 == len(await queue.sql(FAILING))

    await queue.sql("DROP TRIGGER refuse_thirteen ON queue_message")
    assert 4 == await fold(queue, "1 hour")
    assert [[1, 13, 2, 3]] == await contents(queue)


@EITHER
async def test_what_the_archive_refuses_holds_up_no_other_key(queue: Queue, refusal: tuple[str, str]) -> None:
    """An older version cannot be archived; the newer one is not sent without that."""
    why = await refuse(queue, "queue_message_archive", refusal)
    for n in (13, 14):
        await keyed(queue, coalesce_key="c", content=n)
    await keyed(queue, coalesce_key="d", content=1)
    assert 1 == await fold(queue)
    assert [1] == await contents(queue)
    assert [("orders", "c", why)] == await queue.sql(FAILING)


@EITHER
async def test_a_schedule_whose_message_is_refused_says_so_and_stops_no_other(queue: Queue, refusal: tuple[str, str]) -> None:
    """In the words of the trigger, where it has any."""
    for n in (12, 13, 14):
        await queue.sql("SELECT queue_message_schedule_add(%s, 'EVERY 1 day', 'orders', content => to_jsonb(%s::int))", f"s{n}", n)
    why = await refuse(queue, refusal=refusal)
    assert 2 == await queue.value("SELECT inserted FROM queue_message_run_schedules(now() + interval '1 day')")
    assert [("s13", f"it sent nothing: {why}")] == await queue.sql("SELECT name, why FROM queue_message_schedule_failing")


@EITHER
async def test_a_row_that_a_trigger_keeps_from_the_archive_does_not_hold_its_batch(
    queue: Queue, store: MadeStore, refusal: tuple[str, str]
) -> None:
    """The refusal counts as that row's own, so that its batch is settled in halves."""
    why = await refuse(queue, "queue_message_archive", refusal)
    await queue.insert(1, content="13")
    batch = await store.batch()
    with pytest.raises(StoreError, match=why) as caught:
        await store.archive(batch, [SettleRow(batch.claims[0], SUCCESS, None, 1)], again=False)
    assert caught.value.row_is_guilty


async def test_a_relay_tells_of_a_key_that_cannot_be_sent_and_sends_the_others(
    relays: Relays, queue: Queue, topology: Topology, amqp_url: str
) -> None:
    """It logs each reason once, and logs again when the key recovers."""
    inbox = await topology.declare()
    to = {"exchange": inbox.exchange, "routing_key": inbox.routing_key}
    await refuse(queue)
    relay = await relays.start(database=queue.url, broker=amqp_url)
    for n in (12, 13, 14):
        await keyed(queue, coalesce_key=f"k{n}", content=n, **to)

    assert {b"12", b"14"} == {message.body for message in await topology.drain(inbox.queue, 2)}
    line = await relay.logged("key_fails")
    assert ("k13", "thirteen is not sold") == (line["key"], line["error"])

    await queue.sql("DROP TRIGGER refuse_thirteen ON queue_message")
    assert [b"13"] == [message.body for message in await topology.drain(inbox.queue, 1)]
    assert "k13" == (await relay.logged("key_recovered"))["key"]
    assert 1 == len(relay.of("key_fails"))
    assert [] == relay.of("maintenance_failed")
