"""What PostgreSQL counts of the claims of new messages; it needs the extension pg_stat_statements."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from psycopg import errors

from tests.support.database.queue import Queue

COSTS = """
    SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8, coalesce(sum(rows), 0)::float8
    FROM pg_stat_statements JOIN pg_database AS mine ON mine.oid = dbid
    WHERE datname = current_database() AND query NOT LIKE '%pg_stat_statements%'
        AND query LIKE '%range AS MATERIALIZED (%' AND query LIKE '%claimed AS (%'
"""
"""Pages that claims of new messages looked at, and messages that they returned.

The question itself is left out. PostgreSQL forgets the statements that are called least if there are too many. If a forgotten one is
prepared, its next call notes it with its constants, among them the patterns here.
"""
LOOKS = """
    SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements JOIN pg_database AS mine ON mine.oid = dbid
    WHERE datname = current_database() AND query NOT LIKE '%pg_stat_statements%'
        AND (query LIKE '%range.from_xid%' AND query LIKE '%SKIP LOCKED%' OR query LIKE '%bool_or(fresh)%')
"""
"""Claims of new messages, whether they found any or not, and looks for them."""


class Cost(NamedTuple):
    """What claims have cost since the beginning."""

    pages: float
    messages: float

    def each(self, before: Cost) -> float:
        """Pages for a message since then; how many come at once is not what is asked."""
        return (self.pages - before.pages) / (self.messages - before.messages)


async def count_statements(queue: Queue) -> None:
    """Have PostgreSQL count statements and what they cost, or skip the test."""
    try:
        await queue.sql("CREATE EXTENSION pg_stat_statements")
        await queue.sql("SELECT count(*) FROM pg_stat_statements")
    except (errors.UndefinedFile, errors.FeatureNotSupported, errors.ObjectNotInPrerequisiteState):
        pytest.skip("this PostgreSQL has no pg_stat_statements")


async def cost(queue: Queue) -> Cost:
    """What claims have cost so far."""
    [row] = await queue.sql(COSTS)
    return Cost(*row)


async def looks(queue: Queue) -> int:
    """How often relays have looked for new messages."""
    return int(await queue.value(LOOKS))
