"""What each design does: its schema, its claims, and how it finds what a claim has passed over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, Protocol

import psycopg

from relay.memory import KEPT, WIDEST
from relay.message import Position
from relay.postgres.array_literal import literal
from relay.queries import statements
from tests.bench.designs.meter import Session

TOKEN = "00000000-0000-4000-8000-000000000001"
RELAY_ID = 1
LOCK = {"lock_seconds": 60, "token": TOKEN, "relay_id": RELAY_ID}
PLENTY = 1 << 30
LIMIT = 500
"""Messages of one claim."""
Held = Sequence[str]
"""Exchanges that are paused."""


class Design(Protocol):
    """One relay of a design, on its connection; what it remembers begins with it."""

    name: ClassVar[str]
    table: ClassVar[str]
    schema: ClassVar[str]
    """Name of the file that changes the migrated schema; empty for none."""

    def __init__(self, session: Session) -> None: ...

    async def fresh(self, held: Held = ()) -> list[Position]:
        """Claim messages that were never claimed: all statements until some are found or none is left."""

    async def due(self, held: Held = ()) -> list[Position]:
        """Claim messages whose wait is over."""

    async def left(self, held: Held = ()) -> list[Position]:
        """Claim what an earlier claim has passed over."""

    async def rotate(self) -> None:
        """Whatever has to be done now and then."""


@cache
def text(name: str) -> str:
    """A file of `queries`."""
    return (files("tests.bench.designs") / "queries" / f"{name}.sql").read_text(encoding="utf-8").rstrip()


@cache
def size() -> str:
    """The relay's own expression for the size of a message."""
    return statements.text("size").strip().replace("@kept@", str(KEPT)).replace("@widest@", str(WIDEST))


def composed(name: str, **parts: str) -> bytes:
    """A statement of `queries` with its parts put in."""
    columns = text("columns")
    names = "id::text, exchange, routing_key, payload, is_binary, options, ordering_key, replay_of::text, attempts, expires_at, lane"
    found = text(name)
    for place, part in {**parts, "size": size(), "columns": columns, "names": names}.items():
        found = found.replace(f"@{place}@", part)
    return found.encode()


async def lay(url: str, design: type[Design]) -> None:
    """Change the migrated schema of a database into the design's."""
    if design.schema:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute(text(design.schema).encode())


async def insert(run: Session, design: type[Design], count: int, *, exchange: str = "orders", delay: float | None = None) -> list[Position]:
    """Insert messages in one statement, as an application."""
    rows = await run.run(composed("insert", table=design.table), {"exchange": exchange, "delay": delay, "count": count})
    return [Position(*row) for row in rows]


async def settle(run: Session, design: type[Design], positions: Sequence[Position]) -> None:
    """Remove claimed messages."""
    slot = " AND message.slot = ANY(ARRAY[(named.seq / 20000 % 8)::smallint])" if design.table == "ring" else ""
    values = {"xids": literal([one.xid for one in positions]), "seqs": literal([one.seq for one in positions]), "token": TOKEN}
    slot = slot.replace("%", "%%")
    await run.run(composed("settle", table=design.table, slot=slot), values)


def positions_of(rows: Sequence[tuple[Any, ...]]) -> list[Position]:
    """Where claimed messages stand; the first two columns."""
    return [Position(row[0], row[1]) for row in rows if row[0] is not None]
