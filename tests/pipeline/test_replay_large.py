"""Replay of large messages from the lake: some at a time, whatever it is that makes them large."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.replay import job as replay
from relay.pipeline.replay import lake_source
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.support.lake.compacting import quiet
from tests.support.lake.exporting import export

SIZES = (1_000, 1_000, 1_000, 9_000, 10)
LARGE: Sequence[Callable[[int], dict[str, Any]]] = (
    lambda size: {"body": b"x" * size},
    lambda size: {"options": json.dumps({"headers": {"x": "x" * size}})},
)
ENQUEUED = b"SELECT coalesce(length(body), length(options #>> '{headers,x}')), xid FROM queue_message ORDER BY xid, seq"


@pytest.mark.parametrize("large", LARGE, ids=["body", "options"])
def test_large_messages_are_read_piece_by_piece(
    lake: Lake, database: Database, database_url: str, archived: Archived, monkeypatch: pytest.MonkeyPatch, large: Any
) -> None:
    """Neither a read nor a transaction holds more than its bytes, but one message of any size passes."""
    monkeypatch.setattr(lake_source, "PIECE_BYTES", 2_500)
    monkeypatch.setattr(replay, "BATCH_BYTES", 2_500)
    archived(*({"content": "{}", **large(size)} for size in SIZES))
    export(lake, database)
    held, read = list[int](), lake_source.LakeSource._read

    def counted(self: Any, piece: Any) -> Any:
        held.append(piece.num_rows)
        return read(self, piece)

    monkeypatch.setattr(lake_source.LakeSource, "_read", counted)
    replay.run(lake=lake, database=database, say=quiet, selection=Selection(exchange="orders"))

    assert [2, 1, 1, 1] == held
    with psycopg.connect(database_url) as owner:
        enqueued = owner.execute(ENQUEUED).fetchall()
    assert [*SIZES] == [size for size, _ in enqueued]
    assert 4 == len({xid for _, xid in enqueued})
