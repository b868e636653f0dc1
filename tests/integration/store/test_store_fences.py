"""Fences of the store that matter when a relay loses something and does not notice at once."""

from __future__ import annotations

from tests.support.database.claimers import Claimer
from tests.support.database.queue import MadeStore, Queue, positions_of


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


async def test_a_suspect_behind_the_head_of_its_key_is_left_there(queue: Queue, claimer: Claimer) -> None:
    """Its head waits for another attempt. Sending the suspect first would reverse the order."""
    head, suspect = await queue.insert(2, ordering_key="k")
    await queue.sql("UPDATE queue_message SET available_at = now() - interval '1 s', locked_by = 0 WHERE id = %s", suspect)
    await queue.sql("UPDATE queue_message SET available_at = now() + interval '1 h' WHERE id = %s", head)
    assert [] == await claimer.found()

    await queue.sql("DELETE FROM queue_message WHERE id = %s", head)
    assert [suspect] == await claimer.found()
