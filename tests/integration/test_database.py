"""What the relay says of a statement that did not get through."""

from __future__ import annotations

import psycopg
import pytest

from relay.database import Session
from relay.errors import StoreError


async def test_a_lock_in_the_way_says_that_it_is_tried_again_and_whom_to_look_for(database_url: str) -> None:
    """With the server's own words, and as something that passes."""
    session = Session(database_url, application_name="relay", settings={"lock_timeout": "50ms"})
    async with await psycopg.AsyncConnection.connect(database_url) as other:
        await other.execute("LOCK TABLE queue_message_lane")
        with pytest.raises(
            StoreError, match=r"^Another session holds a lock on the queue; it is tried again\..* pg_stat_activity"
        ) as caught:
            await session.fetch(b"TABLE queue_message_lane", {})
    await session.aclose()

    assert caught.value.in_passing
    assert "lock timeout" in str(caught.value)
