"""What PostgreSQL does for a statement: the nodes of its plan and the pages it read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from relay.postgres.session import BY_INDEX

PAD = "jsonb_build_object('pad', repeat('x', 250))"
"""A content of a usual size, as SQL: nine rows to a page, which keeps room for their claims."""


@dataclass(frozen=True)
class Plan:
    """One executed plan."""

    root: dict[str, Any]

    @property
    def pages(self) -> int:
        """Pages that the statement looked at, in the cache or not."""
        return int(self.root["Shared Hit Blocks"]) + int(self.root["Shared Read Blocks"])

    def nodes(self, kind: str = "") -> list[dict[str, Any]]:
        """Nodes whose type contains `kind`, without what foreign keys and triggers run."""
        return [node for node in _walk(self.root) if kind in node["Node Type"]]

    def indexes_of(self, table: str) -> set[str]:
        """Indexes by which the plan reaches a table."""
        return {node["Index Name"] for node in self.nodes("Index") if node.get("Relation Name", table) == table}

    def sequential(self, table: str) -> bool:
        """Whether the whole table is read."""
        return any(node["Relation Name"] == table for node in self.nodes("Seq Scan"))

    def most_sorted(self) -> int:
        """Rows of the largest sort."""
        return max((int(node["Actual Rows"]) for node in self.nodes("Sort")), default=0)

    def rows_read(self, table: str | None = None) -> int:
        """Rows that the scans looked at, of a table or of anything, those that a filter threw away included."""
        return sum(
            int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
            for node in self.nodes("Scan")
            if table is None or node.get("Relation Name") == table
        )


def _walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _walk(child)


async def explain(
    connection: psycopg.AsyncConnection[Any], statement: bytes, values: Mapping[str, object], settings: Mapping[str, str] = BY_INDEX
) -> Plan:
    """Run a statement as the relay's prepared one runs, with its session's settings, take it back, and return its plan."""
    names = list(dict.fromkeys(re.findall(rb"%\((\w+)\)s", statement)))
    text = re.sub(rb"%\((\w+)\)s", lambda found: b"$%d" % (names.index(found[1]) + 1), statement).replace(b"%%", b"%")
    literals = sql.SQL(", ").join(sql.Literal(values[name.decode()]) for name in names)
    async with connection.transaction(force_rollback=True):
        await connection.execute(b"PREPARE explained AS " + text)
        for name, value in settings.items():
            await connection.execute("SELECT set_config(%s, %s, true)", [name, value])
        cursor = await connection.execute(sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained ({})").format(literals))
        [[[answer]]] = await cursor.fetchall()
    await connection.execute("DEALLOCATE ALL")
    return Plan(answer["Plan"])
