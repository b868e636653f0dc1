"""Every job of the pipeline, one after the other, as an operator runs them, wherever the lake is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from relay.pipeline.lake.delta_lake import Lake
from tests.support.database import archives
from tests.support.lake.contents import in_lake, in_postgres
from tests.support.lake.erasing import erase_in_postgres
from tests.support.relays.cli import Cli

EVERYTHING = ("--from", "2024-05-01T00:00:00Z", "--to", "2024-05-03T00:00:00Z")


def play(pipeline: Cli, lake: Lake, url: str, report: Path) -> None:
    """Run, export once more, compact, verify, count again, report, replay, reconcile with receipts next to the tables, and erase."""
    _archive(url, {"exchange": "a"}, {"exchange": "b", "result": "failed"})
    first = pipeline.json("pipeline", "run")
    assert (2, 1, 0) == (first["export"]["rows"], first["metrics"]["days"], first["verify"]["exit_code"])
    _archive(url, {"exchange": "c"})
    assert 1 == pipeline.json("pipeline", "export")["rows"]

    assert (["2024-05-01"], 2, 1) == _values(pipeline.json("pipeline", "compact"), "days", "files_before", "files_after")
    assert (3, 0) == _values(pipeline.json("pipeline", "verify", "--again"), "rows", "exit_code")
    assert in_postgres(url) == in_lake(lake)
    assert (1, 3) == _values(pipeline.json("pipeline", "metrics"), "days", "messages")
    assert (3, 1) == _values(pipeline.json("pipeline", "report", str(report), *EVERYTHING), "messages", "dead")
    assert (2, 0) == _values(pipeline.json("pipeline", "replay", *EVERYTHING, "--result", "success"), "enqueued", "left")

    receipts = f"{lake.place.url}/receipts.csv"
    with lake.place.filesystem().open_output_stream(lake.place.path(receipts)) as stream:
        stream.write(_receipts(url))
    found = pipeline.json("pipeline", "reconcile", *EVERYTHING, "--receipts", receipts, code=5)
    assert (2, 1, 1) == _values(found, "messages", "received", "lost")

    erase_in_postgres(url, f"id = '{_id(url)}'")
    found = pipeline.json("pipeline", "erase", _id(url), "--at-once")
    assert (1, 1, 2, None) == _values(found, "messages", "files", "removed", "left")
    assert in_postgres(url) == in_lake(lake)


def _archive(url: str, *rows: archives.Row) -> None:
    with psycopg.connect(url) as connection:
        archives.insert(connection, *rows)


def _values(done: Any, *names: str) -> tuple[Any, ...]:
    return tuple(done[name] for name in names)


def _id(url: str) -> str:
    """The id of the message of exchange a."""
    with psycopg.connect(url) as connection:
        [id_] = connection.execute("SELECT id::text FROM queue_message_archive WHERE exchange = 'a'").fetchone() or ()
    return str(id_)


def _receipts(url: str) -> bytes:
    """One queue has got the message of exchange a."""
    return f"message_id,queue,received_at\n{_id(url)},q,2024-05-01T12:00:01+00:00\n".encode()
