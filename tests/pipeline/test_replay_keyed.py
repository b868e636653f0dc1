"""Replay from the lake of what was taken back, or sent as or within another message."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
import pytest

from relay.client import enqueue_many
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.replay import job as replay
from relay.pipeline.replay.job import Replayed
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.database import Database
from tests.support.lake.exporting import export


class Past(NamedTuple):
    """Ids of messages with a key, all of them archived and in the lake, and none in the queue."""

    older: str
    newest: str
    part: str
    bundle: str
    cancelled: str


@pytest.fixture
def past(lake: Lake, database: Database, database_url: str) -> Past:
    """A replaced message, a bundle of one and a cancelled message, together with the messages that were sent for them."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        older, newest, part, cancelled = [str(id_) for id_ in enqueue_many(owner, [
            {"exchange": "stock", "content": 1, "coalesce_key": "k"}, {"exchange": "stock", "content": 2, "coalesce_key": "k"},
            {"exchange": "stock", "content": 3, "bundle_key": "b"}, {"exchange": "stock", "content": 4, "coalesce_key": "c"},
        ])]  # fmt: skip
        owner.execute("SELECT queue_message_cancel(%s)", [cancelled])
        owner.execute("SELECT queue_message_fold(now() + interval '1 min')")
        sent = [id_ for (id_,) in owner.execute("SELECT id FROM queue_message ORDER BY seq")]
        owner.execute("SELECT queue_message_archive_now(%s::uuid[], 'success', NULL, NULL, 'a relay')", [sent])
    export(lake, database)
    [bundle] = {str(id_) for id_ in sent} - {newest}
    return Past(older, newest, part, bundle, cancelled)


def _replayed(lake: Lake, database: Database, **given: Any) -> Replayed:
    return replay.run(lake=lake, database=database, say=lambda _line: None, selection=Selection(**given), job="job")


def _waiting(url: str) -> dict[str, Any]:
    """Content of what waits by what it replays."""
    with psycopg.connect(url) as other:
        return {str(origin): content for origin, content in other.execute("SELECT replay_of, content FROM queue_message")}


@pytest.mark.ids("B13", "D7")
def test_who_sends_an_hour_again_sends_what_was_sent(lake: Lake, database: Database, past: Past, database_url: str) -> None:
    """Neither what was taken back nor what went out as, or within, another message."""
    assert (2, 2) == ((done := _replayed(lake, database, exchange="stock")).found, done.enqueued)

    assert {past.newest: 2, past.bundle: [3]} == _waiting(database_url)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"error_code": "superseded"}, {"older": 1}),
        ({"error_code": "bundled"}, {"part": [3]}),
        ({"result": "discarded", "exchange": "stock"}, {"older": 1, "part": [3], "cancelled": 4}),
    ],
    ids=str,
)
def test_what_is_named_is_sent_after_all(
    lake: Lake, database: Database, past: Past, database_url: str, given: dict[str, Any], names: dict[str, Any]
) -> None:
    """By its result or its code."""
    _replayed(lake, database, **given)

    assert {getattr(past, name): content for name, content in names.items()} == _waiting(database_url)


def test_an_id_is_sent_whatever_became_of_it(lake: Lake, database: Database, past: Past, database_url: str) -> None:
    """It is that message which is meant."""
    _replayed(lake, database, ids=(past.cancelled, past.older))

    assert {past.cancelled: 4, past.older: 1} == _waiting(database_url)
