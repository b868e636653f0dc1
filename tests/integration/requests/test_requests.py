"""Request rows: a row of the application's own is inserted, a worker does it, the answer lands in the same row with the settle."""

from __future__ import annotations

import textwrap
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay.engine.policy import Policy
from relay.events import Event
from relay.worker.transactions import SettledPositions, Transactions
from tests.support.database.queue import MadeStore, Queue, until
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.servers.logins import login

TABLE = """
CREATE SCHEMA shop;
CREATE TABLE shop.url_fetch (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, url text NOT NULL, note text,
    response_at timestamptz, response_code smallint, response_body bytea, response_text varchar(20) CHECK (response_text <> 'never'),
    error text
);
SELECT queue_message_request('shop.url_fetch', '{response_at,response_code,response_body,response_text}',
    error => 'error', own => '{note}');
"""
HANDLERS = """
import asyncio
import random
from datetime import datetime, UTC
from pathlib import Path
from relay.worker import Message, Reject

ANSWERS = {
    "good": {"response_code": 200, "response_body": b"\\x00\\xff", "response_at": datetime(2031, 1, 1, tzinfo=UTC)},
    "text": {"response_text": "a\\0b\\ud800c"},
    "unknown": {"response_code": 200, "url": "else"},
    "range": {"response_code": 200000},
    "long": {"response_text": "x" * 21},
    "check": {"response_code": 200, "response_text": "never"},
    "bytes": {"response_text": b"x"},
    "keys": {1: 2},
    "json": {"response_text": object()},
    "large": {"response_body": b"x" * 3000},
    "dense": {"response_body": random.Random(1).randbytes(6000)},
    "nothing": None,
    "empty": {},
}


def note(*words):
    with Path("seen.txt").open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")


async def answer(message: Message):
    note(message.id)
    ask = message.content["url"]
    if ask == "reject":
        raise Reject("no such page", code="page_unknown")
    if ask == "fail":
        raise ValueError("broken")
    while ask == "wait" and not Path("go").exists():
        await asyncio.sleep(0.01)
    return ANSWERS.get(ask, {"response_code": 200})


def plain(message: Message):
    return {"response_code": 201}


async def listed(messages):
    note(len(messages))
    return [{"response_code": 202} if "url" in message.content else None for message in messages]


async def either(message: Message, *connection):
    note(message.id)
    return {"response_code": 203} if "url" in message.content else None


async def inside(message: Message, connection):
    await connection.execute("INSERT INTO shop.visit VALUES (%s)", (message.content["url"],))
    return await answer(message)
"""
CLOSED = {"unknown": "answer_unknown", "keys": "answer_unknown", "nothing": "answer_missing", "empty": "answer_missing"}
Start = Callable[..., Awaitable[RelayProcess]]


@pytest.fixture
async def table(inbox_queue: Queue) -> Queue:
    """A table of requests, in a schema of the application's."""
    for statement in TABLE.split(";"):
        await inbox_queue.sql(statement)
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    return inbox_queue


@pytest.fixture
def start_work(relays: Relays, table: Queue, tmp_path: Path) -> Start:
    """Starts `relay work` for one of the handlers above."""
    (tmp_path / "handlers.py").write_text(textwrap.dedent(HANDLERS))

    async def start(
        handler: str = "answer", *words: str, name: str = "worker", settings: Mapping[str, str] | None = None, **more: Any
    ) -> RelayProcess:
        values = {"database": table.url, "broker": "amqp://nobody:x@127.0.0.1:1/", "settings": settings, **more}
        return await relays.start(name, command=("work", f"handlers:{handler}", *words), **values)

    return start


async def asked(queue: Queue, *urls: str) -> list[int]:
    """Insert requests; return their keys."""
    return [await queue.value("INSERT INTO shop.url_fetch (url) VALUES (%s) RETURNING id", url) for url in urls]


async def ended(queue: Queue, count: int) -> list[tuple[Any, ...]]:
    """Wait until so many are archived; return what was asked for, result, code and sentence."""

    async def there() -> bool:
        return bool(await queue.value("SELECT count(*) >= %s FROM queue_message_archive", count))

    await until(there)
    return await queue.sql("SELECT content->>'url', result, error_code, error_detail FROM queue_message_archive ORDER BY seq")


async def row(queue: Queue, url: str) -> dict[str, Any]:
    """A request with its answer."""
    return dict(await queue.value("SELECT to_jsonb(f) - '{id,url,note}'::text[] FROM shop.url_fetch f WHERE url = %s", url))


EMPTY = dict.fromkeys(("response_at", "response_code", "response_body", "response_text", "error"))


@pytest.mark.ids("C16", "A24", "B9")
async def test_an_answer_lands_in_the_row_with_the_settle(start_work: Start, table: Queue) -> None:
    """The message has what was asked for, and what the handler returns is in the row when the archive says success; bytes are bytes."""
    [id_] = await asked(table, "good")
    assert [("shop.url_fetch", {"id": id_, "url": "good"})] == await table.sql("SELECT exchange, content FROM queue_message")
    worker = await start_work()
    assert [("good", "success", None, None)] == await ended(table, 1)
    answer = {"response_at": "2031-01-01T00:00:00+00:00", "response_code": 200, "response_body": "\\x00ff"}
    assert {**EMPTY, **answer} == await row(table, "good")
    assert [(0,)] == await table.sql("SELECT count(*) FROM queue_message_request_row")
    assert [] == worker.of("lock_lost") + worker.of("settle_failed")


@pytest.mark.ids("C16")
async def test_what_no_column_takes_is_rejected_in_one_sentence(start_work: Start, table: Queue) -> None:
    """Unknown columns, values out of range, too long, against a CHECK, no JSON, too large, none at all: nothing of it is in the row."""
    await table.sql("SELECT queue_message_config_set('max_body_bytes', '2500')")
    kinds = ["unknown", "range", "long", "check", "bytes", "keys", "json", "nothing", "empty", "large"]
    await asked(table, *kinds)
    await start_work()
    found = {kind: (result, code, sentence) for kind, result, code, sentence in await ended(table, len(kinds))}
    for kind in kinds:
        code = "answer_too_large" if kind == "large" else CLOSED.get(kind, "answer_refused")
        result, said, sentence = found[kind]
        assert (kind, "rejected", code) == (kind, result, said)
        assert {**EMPTY, "error": f"{code}: {sentence}"} == await row(table, kind)
        assert sentence.endswith((".", "limit.", ")."))
    assert "response_code" in found["range"][2]
    assert "url" in found["unknown"][2]
    assert "response_text" in found["long"][2]
    assert "x" * 21 not in found["long"][2]


@pytest.mark.ids("C16")
async def test_an_answer_beyond_a_limit_of_postgresql_is_rejected_at_once(start_work: Start, table: Queue) -> None:
    """As where an index takes no value of that size: no other attempt would be better, so none keeps a place of the worker."""
    await table.sql("CREATE INDEX ON shop.url_fetch (response_body)")
    await asked(table, "dense", "good")
    worker = await start_work()
    results = {url: (result, code, sentence) for url, result, code, sentence in await ended(table, 2)}
    assert ("success", None, None) == results["good"]
    assert ("rejected", "answer_refused") == results["dense"][:2]
    assert "index row" in results["dense"][2]
    assert {**EMPTY, "error": f"answer_refused: {results['dense'][2]}"} == await row(table, "dense")
    assert [] == worker.of("settle_failed")


@pytest.mark.ids("C16")
async def test_a_text_is_stored_without_what_postgresql_cannot_hold(start_work: Start, table: Queue) -> None:
    """NUL and half of a surrogate pair become U+FFFD."""
    await asked(table, "text")
    await start_work()
    await ended(table, 1)
    assert {**EMPTY, "response_text": "a\ufffdb\ufffdc"} == await row(table, "text")


@pytest.mark.ids("C16", "A24")
async def test_a_handler_in_a_transaction_commits_its_answer_with_what_it_writes(start_work: Start, table: Queue) -> None:
    """All of it with the settle; where the answer is refused nothing that the handler wrote is there."""
    await table.sql("CREATE TABLE shop.visit (url text)")
    await asked(table, "good", "range", "fail", "nothing")
    worker = await start_work("inside", "--transaction")
    results = {url: (result, code) for url, result, code, _ in await ended(table, 4)}
    assert {
        "good": ("success", None), "range": ("rejected", "answer_refused"), "fail": ("failed", "handler_failed"),
        "nothing": ("rejected", "answer_missing"),
    } == results  # fmt: skip
    assert [("good",)] == await table.sql("TABLE shop.visit")
    assert (200, None) == ((await row(table, "good"))["response_code"], (await row(table, "good"))["error"])
    assert "handler_failed: ValueError (handlers:" in (await row(table, "fail"))["error"]
    assert [] == worker.of("lock_lost") + worker.of("settle_failed")


@pytest.mark.ids("B9", "C16")
@pytest.mark.parametrize("words", [(), ("--transaction",)])
async def test_a_worker_that_lost_its_lock_answers_nothing(start_work: Start, table: Queue, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Its successor answers, and the row has one answer. The late worker learns that its lock is lost."""
    await table.sql("SELECT queue_message_config_set('max_attempts', '3')")
    await table.sql("CREATE TABLE shop.visit (url text)")
    await asked(table, "wait")
    late = await start_work("inside" if words else "answer", *words, name="late")
    await until((tmp_path / "seen.txt").exists)
    await table.sql("UPDATE queue_message SET lock_expires_at = now() - interval '1 s'")
    await table.sql("SELECT queue_message_sweep()")
    (tmp_path / "go").touch()
    await late.logged("lock_lost")
    await ended(table, 1)
    assert {**EMPTY, "response_code": 200} == await row(table, "wait")
    assert [(1,)] == await table.sql("SELECT count(*) FROM queue_message_archive")


@pytest.mark.ids("C16")
async def test_rejected_failed_and_cut_off_requests_say_why_in_the_row(start_work: Start, table: Queue) -> None:
    """The code and the sentence of the archive."""
    await table.sql("SELECT queue_message_config_set('lock_seconds', '1'), queue_message_config_set('on_lock_expired', 'archive')")
    await asked(table, "reject", "fail", "wait")
    await start_work(settings={"RELAY_WORK_SECONDS": "0.2"})
    await ended(table, 3)
    assert {**EMPTY, "error": "page_unknown: no such page"} == await row(table, "reject")
    assert (await row(table, "fail"))["error"].startswith("handler_failed: ValueError (handlers:")
    assert (await row(table, "wait"))["error"].startswith("lock_expired: ")


@pytest.mark.ids("C16", "B13")
async def test_a_replay_answers_the_row_that_failed(start_work: Start, table: Queue) -> None:
    """By another handler; a message that comes again after the answer changes nothing and is rejected."""
    await asked(table, "reject")
    first = await start_work()
    await ended(table, 1)
    await first.stop()
    id_ = await table.value("SELECT id FROM queue_message_dead")
    await table.sql("SELECT queue_message_replay(%s)", id_)
    await start_work("plain", name="second")
    await ended(table, 2)
    assert {**EMPTY, "response_code": 201} == await row(table, "reject")
    await table.sql("SELECT queue_message_replay(%s)", id_)
    assert ("reject", "rejected", "request_missing") == (await ended(table, 3))[2][:3]
    assert {**EMPTY, "response_code": 201} == await row(table, "reject")


async def test_lists_leave_requests_to_go_by_themselves(start_work: Start, table: Queue) -> None:
    """Each request goes in a list of one and gets its own answer. No attempt fails because of that."""
    await asked(table, "a", "b", "c")
    await table.insert(2)
    await start_work("listed", settings={"RELAY_WORK_BATCH": "5"})
    assert ["success"] * 5 == [result for _, result, *_ in await ended(table, 5)]
    assert [(202,), (202,), (202,)] == await table.sql("SELECT response_code FROM shop.url_fetch")


async def test_a_mapping_for_a_message_that_is_no_request_is_rejected(start_work: Start, table: Queue) -> None:
    """It says that no row waits; anything else that a handler returns is of no interest."""
    await table.insert()
    await start_work("plain")
    [(_, result, code, sentence)] = await ended(table, 1)
    assert ("rejected", "request_missing") == (result, code)
    assert "no row waits for one" in sentence


@pytest.mark.ids("C7", "C16")
async def test_an_answer_is_written_again_and_the_work_not_done_again(start_work: Start, table: Queue, tmp_path: Path) -> None:
    """The row is held by somebody for longer than the server lets a statement wait; then every session is ended: the handler ran once."""
    [id_] = await asked(table, "wait")
    worker = await start_work()
    await until((tmp_path / "seen.txt").exists)
    async with await psycopg.AsyncConnection.connect(table.url) as holder:
        await holder.execute("SELECT FROM shop.url_fetch WHERE id = %s FOR UPDATE", (id_,))
        (tmp_path / "go").touch()
        await until(lambda: table.is_held_up("%work"))
        await table.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%% work' AND wait_event_type = 'Lock'",
        )
        await worker.logged("settle_failed")
    assert [("wait", "success", None, None)] == await ended(table, 1)
    assert 1 == len((tmp_path / "seen.txt").read_text().splitlines())
    assert {**EMPTY, "response_code": 200} == await row(table, "wait")


@pytest.mark.ids("C16")
@pytest.mark.parametrize("words", [(), ("--transaction",)], ids=["answer", "transaction"])
async def test_rows_that_an_application_holds_hold_up_nobody_else(start_work: Start, table: Queue, words: tuple[str, ...]) -> None:
    """More of them than a worker has places: others are handled meanwhile; those come again after a pause, and are answered once."""
    await table.sql("SELECT queue_message_config_set('max_attempts', '100'), queue_message_config_set('backoff_max', '2')")
    held = await asked(table, *["held"] * 12)
    async with await psycopg.AsyncConnection.connect(table.url) as holder:
        await holder.execute("SELECT FROM shop.url_fetch FOR UPDATE")
        worker = await start_work("either", *words)
        await worker.logged("handler_failed", len(held))
        await asked(table, *["free"] * 12)
        await table.insert(12)
        assert {("free", "success"), (None, "success")} == {tuple(each[:2]) for each in await ended(table, 24)}
        assert len(held) == await table.waiting()
    assert ["success"] * 36 == [result for _, result, *_ in await ended(table, 36)]
    assert [(203, None, 24)] == await table.sql("SELECT response_code, error, count(*) FROM shop.url_fetch GROUP BY 1, 2")
    assert "another session holds the row" in worker.of("handler_failed")[0]["error"]


@pytest.mark.ids("A23", "C16")
async def test_the_relays_role_is_enough_to_answer(start_work: Start, table: Queue) -> None:
    """Without any right on the application's table."""
    await asked(table, "good", "reject")
    with login(table.url, "queue_message_relay") as url:
        worker = await start_work(database=url)
        await ended(table, 2)
        await worker.stop()
    assert (200, "page_unknown: no such page") == ((await row(table, "good"))["response_code"], (await row(table, "reject"))["error"])


class Unheard(Transactions):
    """Whose first COMMIT comes through, and its answer does not."""

    tries = 0

    async def _return_connection(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await super()._return_connection(connection)
        self.tries += 1
        if self.tries == 1:
            raise psycopg.OperationalError("the connection is lost")


@pytest.mark.ids("C7", "C16")
async def test_an_answer_whose_commit_was_not_heard_is_read_again(table: Queue, store: MadeStore) -> None:
    """The answer is there, so it is not written a second time, and the message is not settled again."""
    await asked(table, "good")
    batch = await store.batch()
    settled = SettledPositions()
    told: list[Event] = []
    transactions = Unheard(
        conninfo=table.url, schema="public", name="worker", prepare=True, max_bytes=1, handler=print, settled=settled,
        policy=Policy, emit=told.append,
    )  # fmt: skip
    await transactions.answer(batch, batch.claims[0], {"response_code": 200})
    await transactions.aclose()
    assert settled.pop(batch.claims[0])
    assert ["SettleFailed"] == [type(event).__name__ for event in told]
    assert {**EMPTY, "response_code": 200} == await row(table, "good")
    assert [("good", "success", None, None)] == await ended(table, 1)
