"""`relay work`: handlers over a real inbox, each message once to its end, whatever the handler does."""

from __future__ import annotations

import json
import signal
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.database.inboxes import received
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays, seconds_between
from tests.support.servers.logins import login

HANDLERS = """
import asyncio, os, signal, time
import psycopg
from pathlib import Path
from relay.worker import Message, Reject, Retry

seen = Path("seen.txt")


def note(*words):
    with seen.open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")


async def handle(message: Message) -> None:
    content = message.content
    note(message.id, message.attempts)
    if content.get("do") == "reject":
        raise Reject("no such order", code="order_unknown")
    if content.get("do") == "fail":
        raise ValueError("broken\\nline")
    if content.get("do") == "fail once" and message.attempts == 1:
        raise ValueError("not yet")
    if content.get("do") == "hang":
        await asyncio.sleep(600)
    if content.get("do") == "cancel":
        raise asyncio.CancelledError
    if content.get("do") == "quote":
        float(content["card"])
    if content.get("do") == "retry":
        raise Retry("the bank is closed")


def plain(message: Message) -> None:
    note(message.id, message.exchange, message.routing_key, message.relay_id, message.headers.get("tenant"))


def deaf(message: Message) -> None:
    note(message.id)
    time.sleep(600)


async def many(messages: list[Message]) -> None:
    note(len(messages))
    if any(message.content.get("do") == "fail" for message in messages):
        raise ValueError("one of them")


async def book(message: Message, connection) -> None:
    await connection.execute("INSERT INTO booking VALUES (%s)", (message.content["order"],))
    if message.content.get("do") == "fail":
        raise ValueError("broken")
    if message.content.get("do") == "lose the lock":
        note("waits", message.id)
        while not Path("go").exists():
            await asyncio.sleep(0.01)


async def rolled(message: Message, connection) -> None:
    raise psycopg.Rollback


def decorated(message: Message):
    return handle(message)


async def endless(message: Message):
    yield


async def body(message: Message) -> None:
    note(len(message.body), message.body[:2].hex())
    message.content
"""
Start = Callable[..., Awaitable[RelayProcess]]


@pytest.fixture
def start_work(relays: Relays, inbox_queue: Queue, tmp_path: Path) -> Start:
    """Starts `relay work` for one of the handlers above."""
    (tmp_path / "handlers.py").write_text(textwrap.dedent(HANDLERS))

    async def start(
        handler: str, *words: str, name: str = "worker", settings: Mapping[str, str] | None = None, **more: Any
    ) -> RelayProcess:
        values = {"database": inbox_queue.url, "broker": "amqp://nobody:x@127.0.0.1:1/", "settings": settings, **more}
        return await relays.start(name, command=("work", f"handlers:{handler}", *words), **values)

    return start


def seen(folder: Path) -> list[list[str]]:
    """What handlers have noted."""
    path = folder / "seen.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


async def archived(queue: Queue, count: int) -> list[tuple[Any, ...]]:
    """Wait until so many are archived; return result, code and detail by content."""

    async def there() -> bool:
        return bool(await queue.value("SELECT count(*) >= %s FROM queue_message_archive", count))

    await until(there)
    return await queue.sql("SELECT content->>'do', result, error_code, error_detail, attempts FROM queue_message_archive ORDER BY seq")


async def given(queue: Queue, *contents: Mapping[str, Any], **columns: Any) -> list[str]:
    """Insert messages with these contents."""
    return [(await queue.insert(content=json.dumps(content), **columns))[0] for content in contents]


@pytest.mark.ids("A24", "B13")
async def test_what_a_handler_does_is_what_becomes_of_the_message(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """Returning is success, Reject is rejected at once, any other exception an attempt, and the last one is failed."""
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '2'), queue_message_config_set('backoff_base', '0.05')")
    ids = await given(inbox_queue, {"do": "nothing"}, {"do": "reject"}, {"do": "fail"}, {"do": "fail once"}, {"do": "cancel"})
    worker = await start_work("handle")
    number = next(place for place, text in enumerate((tmp_path / "handlers.py").read_text().splitlines(), 1) if "broken" in text)

    assert [
        ("nothing", "success", None, None, 1),
        ("reject", "rejected", "order_unknown", "no such order", 1),
        ("fail", "failed", "handler_failed", f"ValueError (handlers:{number}) (attempt 2 of 2)", 2),
        ("fail once", "success", None, None, 2),
        ("cancel", "failed", "handler_failed", f"CancelledError (handlers:{number + 6}) (attempt 2 of 2)", 2),
    ] == await archived(inbox_queue, 5)
    assert [ids[2], "2"] in seen(tmp_path)
    line = await worker.logged("handler_failed")
    assert (ids[2], "ValueError", f"handlers:{number}") == (line["id"], line["kind"], line["where"])


@pytest.mark.parametrize("level", ["info", "debug"])
async def test_what_an_exception_quotes_of_a_message_is_in_the_debug_log_alone(start_work: Start, inbox_queue: Queue, level: str) -> None:
    """The archive, its views and the other lines hold type and place, and the sentence of a Retry, which is meant to be read."""
    card = "4111-1111"
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    await given(inbox_queue, {"do": "quote", "card": card}, {"do": "retry", "card": card})
    worker = await start_work("handle", settings={"RELAY_LOG_LEVEL": level})

    details = [detail for _, _, _, detail, _ in await archived(inbox_queue, 2)]
    await worker.stop()
    assert details[0].startswith("ValueError (handlers:")
    assert details[1] == "Retry: the bank is closed (attempt 1 of 1)"
    for table in ("queue_message_dead", "queue_message_dead_list", "queue_message_state"):
        rows = await inbox_queue.sql(f"SELECT (to_jsonb(t) - 'content')::text FROM {table} AS t")
        assert len(rows) == 2
        assert card not in str(rows)
    assert {"debug": {"handler_raised"}, "info": set()}[level] == {line["event"] for line in worker.lines if card in str(line)}


@pytest.mark.ids("A11", "A24", "A26")
async def test_a_handler_that_does_not_end_leaves_its_message_to_the_lock(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """Its neighbours continue. Once the lock has expired too often, the message is archived as lock_expired."""
    await inbox_queue.sql("SELECT queue_message_config_set('lock_seconds', '1'), queue_message_config_set('on_lock_expired', 'archive')")
    [hangs] = await given(inbox_queue, {"do": "hang"})
    await given(inbox_queue, {"do": "nothing"}, {"do": "nothing"})
    worker = await start_work("handle", settings={"RELAY_WORK_SECONDS": "0.2"})

    results = await archived(inbox_queue, 3)
    assert ["lock_expired", "success", "success"] == sorted(result for _, result, *_ in results)
    assert 1 == len([line for line in seen(tmp_path) if line[0] == hangs])
    assert [(hangs, 0.2)] == [(line["id"], line["seconds"]) for line in worker.of("handler_overdue")]


@pytest.mark.ids("B9")
async def test_a_long_handler_keeps_its_lock(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """Its lock is renewed while it works, far beyond its own length. No other worker takes the message over."""
    await inbox_queue.sql("SELECT queue_message_config_set('lock_seconds', '1')")
    [id_] = await given(inbox_queue, {"do": "hang"})
    workers = [await start_work("handle", name=name, settings={"RELAY_WORK_SECONDS": "5"}) for name in ("one", "two")]

    await until(lambda: any(worker.of("locks_swept") for worker in workers))
    [swept, *_] = [line for worker in workers for line in worker.of("locks_swept")]
    assert 5 < seconds_between(workers[0].of("started")[0], swept)
    assert [id_, "1"] == seen(tmp_path)[0]


async def test_a_plain_function_runs_in_a_thread(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """It sees what came: exchange, routing key, headers, the id that the sending relay gave."""
    options = '{"headers": {"x-relay-id": "0190-a", "tenant": "t"}}'
    [id_] = await inbox_queue.insert(exchange="e", routing_key="k", options=options)
    await start_work("plain")
    await archived(inbox_queue, 1)
    assert [[id_, "e", "k", "0190-a", "t"]] == seen(tmp_path)


async def test_handlers_that_heed_nothing_end_the_process(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """When all that may run hang, the worker leaves with 1, so that another one is started; what it had not begun is free at once."""
    await given(inbox_queue, *[{"n": number} for number in range(3)])
    worker = await start_work("deaf", settings={"RELAY_WORK_SECONDS": "0.2", "RELAY_WORK_CONCURRENCY": "1"})
    assert 1 == await worker.ended()
    assert 1 == len(seen(tmp_path))
    assert 2 == await inbox_queue.value("SELECT count(*) FROM queue_message WHERE lock_expires_at IS NULL AND attempts = 0")


@pytest.mark.ids("B4")
async def test_a_batch_is_handed_over_together_and_one_by_one_when_it_fails(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """One bad message is found and does not spoil its neighbours."""
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    await inbox_queue.insert(4, content='{"do": "nothing"}')
    await given(inbox_queue, {"do": "fail"})
    await start_work("many", settings={"RELAY_WORK_BATCH": "5"})
    results = await archived(inbox_queue, 5)
    assert ["failed", *["success"] * 4] == sorted(result for _, result, *_ in results)
    assert ["5", "1", "1", "1", "1", "1"] == [line[0] for line in seen(tmp_path)]


@pytest.mark.ids("A24")
async def test_a_handler_in_a_transaction_commits_with_its_message(start_work: Start, inbox_queue: Queue) -> None:
    """What it wrote and the settle are there together or not at all; a failure leaves neither, and counts an attempt."""
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '2'), queue_message_config_set('backoff_base', '0.05')")
    await inbox_queue.sql("CREATE TABLE booking (number int)")
    await given(inbox_queue, {"order": 1}, {"order": 2, "do": "fail"}, {"order": 3})
    worker = await start_work("book", "--transaction")
    results = await archived(inbox_queue, 3)
    assert [("success", 1), ("failed", 2), ("success", 1)] == [(result, attempts) for _, result, _, _, attempts in results]
    assert [(1,), (3,)] == await inbox_queue.sql("SELECT number FROM booking ORDER BY 1")
    assert [] == worker.of("lock_lost") + worker.of("settle_failed")


async def test_a_handler_in_a_transaction_has_the_time_zone_of_its_database(start_work: Start, inbox_queue: Queue) -> None:
    """The relay's own sessions use UTC, but what a handler writes is the application's."""
    await inbox_queue.sql(f"ALTER DATABASE \"{inbox_queue.connection.info.dbname}\" SET timezone = 'Asia/Tokyo'")
    await inbox_queue.sql("CREATE TABLE booking (number int, zone text DEFAULT current_setting('TimeZone'))")
    await given(inbox_queue, {"order": 1})
    await start_work("book", "--transaction")
    await archived(inbox_queue, 1)
    assert [("Asia/Tokyo",)] == await inbox_queue.sql("SELECT zone FROM booking")


async def test_a_transaction_without_its_lock_is_rolled_back(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """Somebody else has the message by now: nothing that the late handler wrote is there."""
    await inbox_queue.sql("CREATE TABLE booking (number int)")
    [id_] = await given(inbox_queue, {"order": 1, "do": "lose the lock"})
    worker = await start_work("book", "--transaction")
    await until(lambda: bool(seen(tmp_path)))
    # As an operator would, and a sweep after the lock: the message is ready again, and any worker may handle it.
    await inbox_queue.sql("UPDATE queue_message SET lock_expires_at = now() - interval '1 s' WHERE id = %s", id_)
    await inbox_queue.sql("SELECT queue_message_sweep()")
    (tmp_path / "go").touch()
    await worker.logged("lock_lost")
    await archived(inbox_queue, 1)
    # Of the handler that came late nothing is there, whether it ended before or after its successor.
    assert [(1,)] == await inbox_queue.sql("TABLE booking")


async def test_a_handler_sees_payloads_that_are_no_json(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """As bytes; asking for their content is an error of the handler's."""
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    await inbox_queue.insert(body=b"\x00\xff")
    await start_work("body")
    [(_, result, _, detail, _)] = await archived(inbox_queue, 1)
    assert ("failed", [["2", "00ff"]]) == (result, seen(tmp_path))
    assert "read its body" in detail


@pytest.mark.ids("D9")
async def test_a_stop_lets_handlers_end_and_frees_what_has_not_begun(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """SIGTERM: nothing new begins."""
    await inbox_queue.sql("CREATE TABLE booking (number int)")
    await given(inbox_queue, {"order": 1, "do": "lose the lock"}, {"order": 2}, {"order": 3})
    worker = await start_work("book", "--transaction", settings={"RELAY_WORK_CONCURRENCY": "1"})
    await until(lambda: bool(seen(tmp_path)))
    worker.send(signal.SIGTERM)
    await worker.logged("stopping")
    (tmp_path / "go").touch()
    assert 0 == await worker.ended()
    assert [(1,)] == await inbox_queue.sql("TABLE booking")
    assert [(0, None), (0, None)] == await inbox_queue.sql("SELECT attempts, lock_token FROM queue_message")


@pytest.mark.ids("D9")
async def test_a_worker_leaves_when_it_has_been_idle(start_work: Start, inbox_queue: Queue) -> None:
    """After everything is handled."""
    await given(inbox_queue, {"do": "nothing"})
    worker = await start_work("handle", settings={"RELAY_EXIT_AFTER_IDLE": "0.3"})
    assert 0 == await worker.ended()
    assert [("success",)] == await inbox_queue.sql("SELECT result FROM queue_message_archive")


@pytest.mark.ids("A6", "A18")
async def test_two_workers_share_an_inbox(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """Each message goes to one of them, and those of a key one after the other."""
    await inbox_queue.insert(300, content="{}")
    for name in ("one", "two"):
        await start_work("handle", name=name)
    await archived(inbox_queue, 300)
    assert 300 == len(seen(tmp_path)) == len({line[0] for line in seen(tmp_path)})


async def test_a_worker_takes_nothing_from_an_outbox(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """The messages there are a relay's to publish."""
    await inbox_queue.sql("SELECT queue_message_config_set('direction', 'outbox')")
    await given(inbox_queue, {"do": "nothing"})
    worker = await start_work("handle", ready=False)
    line = await worker.logged("database_down", 2)
    assert "holds an outbox" in line["error"]
    assert [] == seen(tmp_path)


@pytest.mark.parametrize(
    ("name", "words"),
    [("handlers", "names no handler"), ("nowhere:handle", "cannot be imported"), ("handlers:nothing", "has no function 'nothing'")],
)
async def test_a_handler_that_is_not_there_is_named(relays: Relays, inbox_queue: Queue, tmp_path: Path, name: str, words: str) -> None:
    """One sentence, before anything is claimed; exit code 2."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    worker = await relays.start(database=inbox_queue.url, broker="amqp://x:y@127.0.0.1:1/", ready=False, command=("work", name))
    assert 2 == await worker.ended()
    assert words in worker.lines[-1]["text"]


async def test_an_empty_inbox_is_waited_for(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """A notification wakes the worker."""
    worker = await start_work("handle", settings={"RELAY_POLL_INTERVAL": "3600"})
    await worker.logged("listen_up")
    await received(inbox_queue, 0)
    await given(inbox_queue, {"do": "nothing"})
    await archived(inbox_queue, 1)
    assert 1 == len(seen(tmp_path))


@pytest.mark.ids("A23")
async def test_the_relays_role_is_enough_for_a_worker(start_work: Start, inbox_queue: Queue) -> None:
    """A login of it claims, settles and tends; with a transaction it needs what the handler writes."""
    await inbox_queue.sql("CREATE TABLE booking (number int)")
    role = await inbox_queue.value("SELECT queue_message_role('relay')")
    await inbox_queue.sql(f"GRANT INSERT ON booking TO {role}")
    await given(inbox_queue, {"order": 1})
    with login(inbox_queue.url, "queue_message_relay") as url:
        worker = await start_work("book", "--transaction", database=url)
        await archived(inbox_queue, 1)
        await worker.stop()
    await inbox_queue.sql(f"REVOKE INSERT ON booking FROM {role}")
    assert [] == worker.of("database_down") + worker.of("settle_failed") + worker.of("maintenance_failed")
    assert [(1,)] == await inbox_queue.sql("TABLE booking")


@pytest.mark.ids("B8")
async def test_a_rollback_of_the_handlers_own_settles_nothing(start_work: Start, inbox_queue: Queue) -> None:
    """Psycopg swallows its Rollback: the message is tried again, and never counted as handled."""
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    await given(inbox_queue, {"do": "nothing"})
    worker = await start_work("rolled", "--transaction")
    [(_, result, code, detail, _)] = await archived(inbox_queue, 1)
    assert ("failed", "handler_failed") == (result, code)
    assert "psycopg.Rollback" in detail
    assert [] == worker.of("lock_lost")


async def test_a_decorated_handler_is_awaited(start_work: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """A plain function around a coroutine function gives a coroutine, which is the work."""
    await inbox_queue.sql("SELECT queue_message_config_set('max_attempts', '1')")
    [id_] = await given(inbox_queue, {"do": "reject"})
    await start_work("decorated")
    assert [("reject", "rejected")] == [(do, result) for do, result, *_ in await archived(inbox_queue, 1)]
    assert [[id_, "1"]] == seen(tmp_path)


@pytest.mark.parametrize("words", [("endless",), ("plain", "--transaction"), ("handle", "--transaction")])
async def test_a_handler_that_could_do_nothing_is_refused_at_the_start(
    relays: Relays, inbox_queue: Queue, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """A generator is not run by calling it, a plain function gets nothing done with an async connection, nor a list of one message."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    settings = {"RELAY_WORK_BATCH": "5"} if words[0] == "handle" else None
    command = ("work", f"handlers:{words[0]}", *words[1:])
    worker = await relays.start(database=inbox_queue.url, broker="amqp://x:y@127.0.0.1:1/", ready=False, command=command, settings=settings)
    assert 2 == await worker.ended()
    assert 1 == len(worker.lines)
