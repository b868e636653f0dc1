"""A trigger of the application's refuses an INSERT of a message, or skips it: nothing counts as done, and it is reported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import psycopg
import pytest

from relay.errors import StoreError
from relay.message import SUCCESS, Archive, Outcome, Result
from relay.ports import SettleRow
from tests.support.database.app_triggers import REFUSALS
from tests.support.database.keyed import fold, keyed
from tests.support.database.queue import MadeStore, Queue

TRIGGER = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION refuse();
"""
TABLES = (
    "queue_message", "queue_message_archive", "queue_message_keyed_row", "queue_message_dedup", "queue_message_coalesced",
    "queue_message_dead_ack", "queue_message_audit", "queue_message_received", "queue_message_replay_ledger", "queue_message_request_row",
)  # fmt: skip
COUNTS = "SELECT " + ", ".join(f"(SELECT count(*) FROM {table})" for table in TABLES)
WORDS = ("not this one", "nowhere", "skips the INSERT without an error")
LAKE = """SELECT queue_message_replay_rows('job', '{7}'::text[]::xid8[], '{1}', '{00000000-0000-7000-8000-000000000001}', '{orders}', '{k}',
    '{1}', '{null}'::bytea[], '{\"{}\"}', '{null}'::text[], '{null}'::timestamptz[], false)"""
MANY = "SELECT queue_message_replay_many(exchange => 'orders', dry_run => false, job => 'j')"
REJECT = "SELECT queue_message_reject_delivery('q', 'm', 'e', 'k', 'x', 'c', 'no JSON', 'receiver')"
REQUESTS = """CREATE TABLE IF NOT EXISTS asked (id int PRIMARY KEY, url text, answer text);
    SELECT queue_message_config_set('direction', 'inbox'); SELECT queue_message_request('asked', '{answer}')"""
SCHEDULE = "SELECT queue_message_schedule_add('s', 'EVERY 1 day', 'orders')"
DEAD = Archive(Result.REJECTED, "x", "x")


class Place(NamedTuple):
    """A queue with what an act needs."""

    queue: Queue
    store: MadeStore


Step = Callable[[Place], Awaitable[object]]


class Path(NamedTuple):
    """A way that inserts a message into a table: what comes before, and the act."""

    table: str
    before: Step
    act: Step


def run(*statements: str) -> Step:
    """The statements, one after the other."""

    async def step(place: Place) -> None:
        for statement in statements:
            await place.queue.sql(statement)

    return step


def waiting(*contents: object, **keys: str) -> Step:
    """Messages under a key."""

    async def step(place: Place) -> None:
        for content in contents:
            await keyed(place.queue, content=content, **keys)

    return step


def both(*steps: Step) -> Step:
    """One after the other."""

    async def step(place: Place) -> None:
        for each in steps:
            await each(place)

    return step


async def folding(place: Place) -> None:
    """What is due under keys, a minute later."""
    await fold(place.queue, "1 min")


def archived(result: str) -> Step:
    """A message that was settled with this result."""
    archive = f"SELECT queue_message_archive_now(ARRAY(SELECT id FROM queue_message), '{result}', NULL, NULL, 'test')"
    return run("INSERT INTO queue_message (exchange) VALUES ('orders')", archive)


def settling(outcome: Outcome) -> Step:
    """A message is claimed and settled with this outcome."""

    async def step(place: Place) -> None:
        batch = await place.store.batch()
        await place.store.archive(batch, [SettleRow(claim, outcome, 1, 2) for claim in batch.claims], again=False)

    return step


PATHS = {
    "once": Path("queue_message", run(), waiting(1, dedup_key="k")),
    "a version": Path("queue_message_keyed_row", run(), waiting(1, coalesce_key="k", dedup_key="d")),
    "a part": Path("queue_message_keyed_row", run(), waiting(1, bundle_key="k", dedup_key="d")),
    "the fold of a version": Path("queue_message", waiting(1, 2, coalesce_key="k"), folding),
    "the fold of parts": Path("queue_message", waiting(1, 2, bundle_key="k"), folding),
    "an older version": Path("queue_message_archive", waiting(1, 2, coalesce_key="k"), folding),
    "parts that were sent": Path("queue_message_archive", waiting(1, 2, bundle_key="k"), folding),
    "what a version replaces": Path(
        "queue_message_archive", both(waiting(1, coalesce_key="k"), folding, waiting(2, coalesce_key="k")), folding),
    "what a version replaces in order": Path(
        "queue_message_archive", both(waiting(1, coalesce_key="k", ordering_key="o"), folding, waiting(2, coalesce_key="k")), folding),
    "a version that the queue refuses": Path(
        "queue_message_dead",
        both(waiting(1, coalesce_key="k"), run("UPDATE queue_message_keyed_row SET options = '{\"priority\": 300}'")), folding),
    "a cancellation": Path(
        "queue_message_archive", run("INSERT INTO queue_message (exchange) VALUES ('orders')"),
        run("SELECT queue_message_cancel(id) FROM queue_message")),
    "the cancellation of a version": Path(
        "queue_message_archive", waiting(1, coalesce_key="k"), run("SELECT queue_message_cancel(id) FROM queue_message_keyed_row")),
    "a replay": Path("queue_message", archived("failed"), run("SELECT queue_message_replay(id) FROM queue_message_archive")),
    "replays": Path("queue_message", archived("failed"), run(MANY)),
    "a replay from the lake": Path("queue_message", run(), run(LAKE)),
    "a new schedule": Path("queue_message", run(), run(SCHEDULE)),
    "a schedule": Path("queue_message", run(SCHEDULE), run("SELECT queue_message_run_schedules(now() + interval '1 day')")),
    "a schedule by hand": Path("queue_message", run(SCHEDULE), run("SELECT queue_message_schedule_run_now('s')")),
    "a request": Path("queue_message", run(REQUESTS), run("INSERT INTO asked VALUES (1, 'here')")),
    "a settle": Path("queue_message_archive", run("INSERT INTO queue_message (exchange) VALUES ('orders')"), settling(SUCCESS)),
    "a dead message": Path("queue_message_dead", run("INSERT INTO queue_message (exchange) VALUES ('orders')"), settling(DEAD)),
    "a delivery that is no message": Path("queue_message_dead", run(), run(REJECT)),
}  # fmt: skip


@pytest.mark.parametrize("refusal", sorted(REFUSALS.keys() - {"breaks-a-constraint"}))
@pytest.mark.parametrize("path", PATHS)
async def test_nothing_counts_as_done_where_a_trigger_refuses_the_insert(queue: Queue, store: MadeStore, path: str, refusal: str) -> None:
    """Everything is as before, and an error or a WARNING says so. To a fold, what breaks a constraint is refused by the queue."""
    table, before, act = PATHS[path]
    place = Place(queue, store)
    await before(place)
    counts = await queue.sql(COUNTS)
    await queue.sql(TRIGGER.format(REFUSALS[refusal], table))
    said: list[str] = []
    queue.connection.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))

    try:
        await act(place)
    except (psycopg.Error, StoreError) as error:
        said.append(str(error))

    assert any(words in told for words in WORDS for told in said)
    assert counts == await queue.sql(COUNTS)
