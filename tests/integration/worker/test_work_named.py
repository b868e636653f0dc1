"""`relay work --id`: exactly the messages that were named, each by one worker, and a sentence for each that was not handled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from relay.ports import ById
from tests.support.database.queue import MadeStore, MakeStore, Queue, until
from tests.support.relays.processes import RelayProcess, Relays

HANDLERS = """
import asyncio
from pathlib import Path
from relay.worker import Message, Reject


async def handle(message: Message) -> None:
    with Path("seen.txt").open("a") as file:
        file.write(message.id + "\\n")
    if message.content.get("do") == "reject":
        raise Reject("no such order", code="order_unknown")
    if message.content.get("do") == "fail":
        raise ValueError("broken")
    while message.content.get("do") == "wait" and not Path("go").exists():
        await asyncio.sleep(0.01)
"""
NOBODYS = "01a2072d-8162-7f84-b0b4-15d016ec6ae7"
Start = Callable[..., Awaitable[RelayProcess]]


@pytest.fixture
def start_named(relays: Relays, inbox_queue: Queue, tmp_path: Path) -> Start:
    """Starts a worker for these messages."""
    (tmp_path / "handlers.py").write_text(HANDLERS)

    async def start(*ids: str, name: str = "worker", **more: Any) -> RelayProcess:
        words = [word for id_ in ids for word in ("--id", id_)]
        values = {"database": inbox_queue.url, "broker": "amqp://nobody:x@127.0.0.1:1/", **more}
        return await relays.start(name, command=("work", "handlers:handle", *words), ready=False, **values)

    return start


def said(worker: RelayProcess) -> list[str]:
    """Sentences in addition to the log."""
    return [line["text"] for line in worker.lines if "text" in line]


def seen(folder: Path) -> list[str]:
    """What handlers got."""
    path = folder / "seen.txt"
    return path.read_text().split() if path.exists() else []


@pytest.mark.ids("B6")
async def test_what_is_named_is_handled_and_nothing_else(start_named: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """One of them waited and is due; the worker leaves with 0, more of them than it runs at once."""
    ids = await inbox_queue.insert(30, content="{}")
    due = await inbox_queue.insert(content="{}", available_at="2001-01-01")
    chosen = [*ids[3:25], *due]
    worker = await start_named(*chosen, chosen[0])
    assert (0, []) == (await worker.ended(), said(worker))
    assert sorted(chosen) == sorted(seen(tmp_path))
    assert dict.fromkeys(chosen, "success") == await inbox_queue.results()
    assert 0 == await inbox_queue.value("SELECT sum(attempts) FROM queue_message")


@pytest.mark.ids("B6", "A6")
async def test_of_two_who_name_a_message_one_gets_it(start_named: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """The other says who has it, and leaves at once; the claim by id is one statement like any other."""
    [id_] = await inbox_queue.insert(content='{"do": "wait"}')
    first = await start_named(id_, name="first")
    await until(lambda: bool(seen(tmp_path)))
    second = await start_named(id_, name="second")
    assert 1 == await second.ended()
    [sentence] = said(second)
    assert f"Message {id_} is locked by first until " in sentence
    (tmp_path / "go").touch()
    assert 0 == await first.ended()
    assert [id_] == seen(tmp_path)
    assert 1 == await inbox_queue.value("SELECT attempts FROM queue_message_archive")


@pytest.mark.ids("B6")
async def test_a_claim_by_id_locks_a_message_once(inbox_queue: Queue, store: MadeStore, make_store: MakeStore) -> None:
    """What is locked, waits or has an ordering key is left alone, and what was not named too."""
    ready, _ = await inbox_queue.insert(2)
    waits = await inbox_queue.insert(available_at="2100-01-01")
    ordered = await inbox_queue.insert(ordering_key="k")
    other = make_store("other")
    await other.register()
    asked = ById([ready, *waits, *ordered, NOBODYS])
    assert [ready] == await store.ids(asked)
    assert [] == await other.ids(asked)


@pytest.mark.ids("B6")
async def test_what_is_not_handled_is_told_in_a_sentence_each(start_named: Start, inbox_queue: Queue, tmp_path: Path) -> None:
    """They are missing, not due, ordered, archived, rejected or failed. The exit code is 1, and sentences are in the order of the ids."""
    [done] = await inbox_queue.insert(content="{}")
    assert 0 == await (await start_named(done)).ended()
    waits = (await inbox_queue.insert(available_at="2100-01-01"))[0]
    ordered = (await inbox_queue.insert(ordering_key="k"))[0]
    rejected, spoiled = [(await inbox_queue.insert(content=f'{{"do": "{do}"}}'))[0] for do in ("reject", "fail")]
    worker = await start_named(NOBODYS, waits, ordered, done, rejected, spoiled)
    assert 1 == await worker.ended()
    sentences = said(worker)
    assert [
        f"Message {NOBODYS} is neither in the queue nor in the archive.",
        f"Message {ordered} has an ordering key, and such messages are handled in turn: start relay work without --id.",
        f"Message {done} is in the archive: success.",
        f"Message {rejected} is in the archive: rejected (order_unknown).",
    ] == [sentences[place] for place in (0, 2, 3, 4)]
    assert sentences[1].startswith(f"Message {waits} is in the queue, due at 2100-01-01")
    assert sentences[5].startswith(f"Message {spoiled} is in the queue, due at ")
    assert [done, rejected, spoiled] == [seen(tmp_path)[0], *[id_ for id_ in (rejected, spoiled) if id_ in seen(tmp_path)[1:]]]


async def test_what_is_no_id_is_refused(start_named: Start) -> None:
    """Before anything is claimed."""
    worker = await start_named("17")
    assert 2 == await worker.ended()
    assert "--id must be an id such as" in said(worker)[-1]
