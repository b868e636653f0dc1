"""What the tests count in pg_stat_statements: the relay's statements, and never the question."""

from __future__ import annotations

import pytest

from tests.support.database.costs import COSTS, LOOKS, count_statements
from tests.support.database.queue import Queue

FORGET = "SELECT pg_stat_statements_reset(0, oid, 0) FROM pg_database WHERE datname = current_database()"


@pytest.mark.parametrize("question", [COSTS, LOOKS])
async def test_a_question_that_postgres_had_forgotten_does_not_count_itself(queue: Queue, question: str) -> None:
    """A prepared statement that is noted again is noted with its constants."""
    await count_statements(queue)
    await queue.connection.execute(question.encode(), prepare=True)
    await queue.sql(FORGET)
    await queue.connection.execute(question.encode(), prepare=True)

    [counted] = await (await queue.connection.execute(question.encode(), prepare=True)).fetchall()

    assert not any(counted)
