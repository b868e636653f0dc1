"""Fences of the store that matter when a relay loses something and does not notice at once."""

from __future__ import annotations

from relay.message import Position
from relay.ports import Due
from tests.support.queue import MadeStore, Queue, positions_of


async def test_a_message_that_lost_its_lock_keeps_its_old_deadline(queue: Queue, store: MadeStore) -> None:
    """It may not be written after the time that was certain; what was claimed with it may."""
    await queue.insert(2)
    batch = await store.batch()
    deadline = batch.deadline
    await queue.sql("UPDATE queue_message SET lock_expires_at = NULL, lock_token = NULL WHERE seq = %s", batch.claims[0].seq)

    assert 1 == await store.renew(batch, positions_of(batch))

    assert [True, False] == [batch.is_overdue(claim, deadline) for claim in batch.claims]


async def test_who_got_a_lane_back_claims_nothing_under_its_former_epoch(queue: Queue, store: MadeStore) -> None:
    """Another relay owned it meanwhile: what is known of its keys is from before."""
    former = await store.keep_lanes()
    await queue.insert(ordering_key="k")
    await queue.sql("UPDATE queue_message_lane SET epoch = epoch + 2")

    assert (await store.claim_heads("k", lanes=former)).batch is None

    assert (await store.claim_heads("k", lanes=await store.keep_lanes())).batch is not None


async def test_a_report_keeps_what_a_claim_has_lowered_that_it_does_not_know_of(queue: Queue, store: MadeStore) -> None:
    """As after a claim that got through although its answer was lost: its locks are swept from there."""
    high = Position(2**40, 0)
    assert await store.heartbeat(low=high, head=high, top=high, state="{}")
    await queue.sql("UPDATE queue_message_relay SET low_xid = '5', low_seq = 7")

    assert await store.heartbeat(low=high, head=high, top=high, state="{}")

    assert [("5", 7)] == await queue.sql("SELECT low_xid::text, low_seq FROM queue_message_relay")


async def test_a_suspect_behind_the_head_of_its_key_is_left_there(queue: Queue, store: MadeStore) -> None:
    """Its head waits for another attempt: whoever sent the suspect first would turn the order round."""
    await queue.insert(2, ordering_key="k")
    await queue.sql(
        "UPDATE queue_message SET available_at = now() - interval '1 s', locked_by = 0 WHERE seq = (SELECT max(seq) FROM queue_message)"
    )
    lanes = await store.keep_lanes()
    where = {"lanes": list(lanes), "epochs": list(lanes.values()), "except": []}

    assert [] == await store.ids(Due.SUSPECT, where)

    await queue.sql("DELETE FROM queue_message WHERE available_at IS NULL")
    assert 1 == len(await store.ids(Due.SUSPECT, where))
