"""What runs as it should shows nothing that an alert would fire on for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker.topology import Declared
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.relays.scrape import HTTP, READ_AT, page

HANDLERS = "def handle(message):\n    pass\n"
PROCESSES = {
    "run": ("outbox", {"broker_up", "database_up", "listen_up"}),
    "receive": ("inbox", {"broker_up", "database_up"}),
    "work": ("inbox", {"database_up", "listen_up"}),
}


def levels(text: str) -> dict[str, float]:
    """The page's samples of what is up or down, and when the queue was read."""
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("relay_"))
    return {name: float(value) for name, value in samples.items() if name.endswith("_up") or name == READ_AT}


@pytest.mark.parametrize("command", PROCESSES)
async def test_a_process_shows_what_it_works_with_as_up_and_nothing_else(
    relays: Relays, queue: Queue, inbox: Declared, amqp_url: str, tmp_path: Path, command: str
) -> None:
    """A relay, a receiver and a worker, each as soon as it has begun."""
    direction, expected = PROCESSES[command]
    await queue.sql("SELECT queue_message_config_set('direction', %s)", direction)
    (tmp_path / "handlers.py").write_text(HANDLERS, encoding="utf-8")
    words = (command, "handlers:handle") if command == "work" else (command,)
    process = await relays.start(
        database=queue.url, broker=amqp_url, command=words, ready=False, settings={**HTTP, "RELAY_RECEIVE_QUEUES": inbox.queue}
    )

    await until(lambda: shows(process, {f"relay_{name}" for name in expected}))

    assert (READ_AT in levels(await page(process))) == (command != "receive")


async def shows(process: RelayProcess, up: set[str]) -> bool:
    """Whether this is up, the figures are fresh, and nothing is down."""
    seen = levels(await page(process))
    return set(seen) - {READ_AT} == up and all(seen.values())
