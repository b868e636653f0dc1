"""Producers choose ids: a replay belongs to the message that it was made from, and to no other message with that id."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.support.relays.cli import Seeded

pytestmark = pytest.mark.ids("B13")

AT = "FROM queue_message_archive WHERE routing_key = %(key)s ORDER BY archived_at DESC LIMIT 1"
LAKE = """
    SELECT queue_message_replay_rows(%(job)s, ARRAY[xid], ARRAY[seq], ARRAY[id], ARRAY[exchange], ARRAY[routing_key], ARRAY[content::text],
        ARRAY[body], ARRAY[options::text], ARRAY[ordering_key], ARRAY[expires_at], %(same_id)s)
"""
WAYS = {
    "by place": "SELECT queue_message_replay_at(id, xid, seq, %(same_id)s) " + AT,
    "by filter": "SELECT queue_message_replay_many(routing_key => %(key)s, same_id => %(same_id)s, dry_run => false)",
    "by a job": """
        SELECT queue_message_replay_many(routing_key => %(key)s, same_id => %(same_id)s, dry_run => false, job => %(job)s)""",
    "from the lake": LAKE + AT,
    "by a rule": "SELECT queue_message_dead_replay(id, xid, seq, 5) " + AT,
}
DEAD = [(way, same_id) for way in WAYS for same_id in (False, True) if not (same_id and way == "by a rule")]
SENT = [case for case in DEAD if case[0] != "by a rule"]
FOUND = """
    SELECT routing_key, count(*) FROM queue_message_find(result => %s) JOIN queue_message_archive USING (id, xid, seq) GROUP BY 1 ORDER BY 1
"""
COUNT = """
    SELECT queue_message_replays_before(id, xid, seq, 9) FROM queue_message_archive WHERE routing_key = %s ORDER BY archived_at DESC LIMIT 1
"""


def settle(seeded: Seeded, result: str) -> None:
    """Archive what waits."""
    seeded.run("SELECT queue_message_archive_now(array_agg(id), %s, NULL, NULL, 'relay-1') FROM queue_message", result)


def replay(seeded: Seeded, way: str, *, same_id: bool, key: str = "ours", result: str) -> None:
    """Replay the newest archived message with a routing key in one of the ways, and archive the replay."""
    seeded.named(WAYS[way], {"key": key, "same_id": same_id, "job": str(uuid4())})
    assert [(1,)] == seeded.run("SELECT count(*) FROM queue_message")
    settle(seeded, result)


def newest(seeded: Seeded) -> str:
    """The id of our message that was archived last."""
    [(id_,)] = seeded.run("SELECT id::text FROM queue_message_archive WHERE routing_key = 'ours' ORDER BY archived_at DESC LIMIT 1")
    return str(id_)


def stranger(seeded: Seeded, result: str) -> None:
    """Another producer's message with that id, which is archived now."""
    seeded.archive(result, id=newest(seeded), exchange="other", routing_key="theirs")


@pytest.mark.parametrize(("way", "same_id"), DEAD)
def test_a_message_with_the_id_keeps_no_replay_from_going_out_again(seeded: Seeded, way: str, *, same_id: bool) -> None:
    """Only failures were replayed, so the replay that went out is a success like any other."""
    seeded.archive("failed", routing_key="ours")
    stranger(seeded, "success")
    replay(seeded, way, same_id=same_id, result="success")
    assert ("ours", 1) in seeded.run(FOUND, "success")


@pytest.mark.parametrize(
    "notes", ["queue_message_audit", "queue_message_replay_ledger", "queue_message_audit, queue_message_replay_ledger"]
)
@pytest.mark.parametrize(("way", "same_id"), DEAD)
def test_what_was_replayed_does_not_go_out_again_where_its_notes_are_deleted(
    seeded: Seeded, way: str, *, same_id: bool, notes: str
) -> None:
    """An archived replay counts for all with the id then, also beside one whose note is there."""
    seeded.archive("failed", routing_key="ours")
    replay(seeded, way, same_id=same_id, result="success")
    seeded.run(f"TRUNCATE {notes}")
    stranger(seeded, "failed")
    assert ("ours", 1) not in seeded.run(FOUND, "failed")

    replay(seeded, "by place", same_id=False, key="theirs", result="success")
    assert ("ours", 1) not in seeded.run(FOUND, "failed")


def test_what_is_replayed_again_while_it_waits_is_not_enqueued_twice_where_its_note_is_deleted(seeded: Seeded) -> None:
    """A stranger's message with the id, whose replay is noted, says nothing of it."""
    seeded.archive("failed", routing_key="ours")
    seeded.named(WAYS["by place"], {"key": "ours", "same_id": False})
    seeded.run("TRUNCATE queue_message_audit")
    stranger(seeded, "failed")
    seeded.named(WAYS["by place"], {"key": "theirs", "same_id": False})
    assert [] == seeded.run(FOUND, "failed")


@pytest.mark.parametrize(("way", "same_id"), SENT)
def test_a_message_with_the_id_has_no_replay_go_out_twice(seeded: Seeded, way: str, *, same_id: bool) -> None:
    """A success was replayed, and neither it nor its replay goes out again."""
    seeded.archive("success", routing_key="ours")
    stranger(seeded, "failed")
    replay(seeded, way, same_id=same_id, result="success")
    assert [] == seeded.run(FOUND, "success")


@pytest.mark.parametrize(("way", "same_id"), SENT)
def test_messages_with_the_ids_change_nothing_for_a_replay_of_a_replay(seeded: Seeded, way: str, *, same_id: bool) -> None:
    """It repeats the success that was replayed first."""
    seeded.archive("success", routing_key="ours")
    stranger(seeded, "failed")
    replay(seeded, way, same_id=same_id, result="failed")
    stranger(seeded, "failed")
    replay(seeded, way, same_id=same_id, result="success")
    assert [] == seeded.run(FOUND, "success")


@pytest.mark.parametrize(("way", "same_id"), SENT)
def test_a_replay_whose_origin_was_dropped_repeats_it_beside_another_message_with_the_id(
    seeded: Seeded, way: str, *, same_id: bool
) -> None:
    """Retention has dropped what was replayed, so it counts as selected."""
    id_ = seeded.archive("success", routing_key="ours")
    stranger(seeded, "failed")
    replay(seeded, way, same_id=same_id, result="success")
    seeded.run("SET relay.retention = 'on'")
    seeded.run("DELETE FROM queue_message_archive WHERE id = %s AND routing_key = 'ours' AND replay_of IS NULL", id_)
    assert [] == seeded.run(FOUND, "success")


@pytest.mark.parametrize(("way", "same_id"), DEAD)
@pytest.mark.parametrize("theirs", [False, True], ids=["sent", "replayed with the same id"])
def test_a_message_with_the_id_changes_no_count_of_replays(seeded: Seeded, way: str, *, same_id: bool, theirs: bool) -> None:
    """A rule counts the replays that led to its own message."""
    seeded.archive("failed", routing_key="ours")
    for led in (1, 2):
        stranger(seeded, "failed")
        if theirs:
            replay(seeded, "by place", same_id=True, key="theirs", result="failed")
        replay(seeded, way, same_id=same_id, result="failed")
        assert [(led,)] == seeded.run(COUNT, "ours")


@pytest.mark.parametrize(("way", "same_id"), DEAD)
def test_a_message_with_the_id_of_a_dropped_one_is_no_origin(seeded: Seeded, way: str, *, same_id: bool) -> None:
    """Retention has dropped what was replayed, so the count of replays stays unknown."""
    id_ = seeded.archive("failed", routing_key="ours")
    stranger(seeded, "failed")
    replay(seeded, way, same_id=same_id, result="failed")
    seeded.run("SET relay.retention = 'on'")
    seeded.run("DELETE FROM queue_message_archive WHERE id = %s AND routing_key = 'ours' AND replay_of IS NULL", id_)
    assert [(None,)] == seeded.run(COUNT, "ours")


@pytest.mark.parametrize("fate", ["waiting", "success", "failed"])
@pytest.mark.parametrize(("way", "same_id"), DEAD)
def test_a_filter_leaves_out_the_message_that_was_replayed_alone(seeded: Seeded, way: str, fate: str, *, same_id: bool) -> None:
    """The other message with the id is found, whatever becomes of that replay."""
    seeded.archive("failed", routing_key="ours")
    stranger(seeded, "failed")
    seeded.named(WAYS[way], {"key": "theirs", "same_id": same_id, "job": "a"})
    if fate != "waiting":
        settle(seeded, fate)
    again = [("theirs", 1)] if fate == "failed" else []
    assert [("ours", 1), *again] == seeded.run(FOUND, "failed")


def test_without_places_a_count_of_replays_goes_by_the_ids(seeded: Seeded) -> None:
    """Of several messages with an id it takes a replay, because only the database writes of what."""
    seeded.archive("failed", routing_key="ours")
    replay(seeded, "by place", same_id=False, result="failed")
    stranger(seeded, "failed")
    replay(seeded, "by place", same_id=False, result="failed")
    seeded.run("UPDATE queue_message_audit SET became = became - 'place'")
    assert [(2,)] == seeded.run(COUNT, "ours")


def test_a_note_without_a_place_counts_for_every_message_with_the_id(seeded: Seeded) -> None:
    """Before migration 44 the audit noted no places."""
    seeded.archive("failed", routing_key="ours")
    stranger(seeded, "failed")
    replay(seeded, "by place", same_id=False, key="theirs", result="success")
    seeded.run("UPDATE queue_message_audit SET became = became - 'place'")
    assert [] == seeded.run(FOUND, "failed")
