"""The programs of `examples/`, each run as its README says against real servers, by a login that may do no more than it must."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from psycopg.conninfo import conninfo_to_dict

from relay.devservers.process import plain_environment
from tests.support.applications.example_programs import EXAMPLES, PROGRAMS, MissingToolError, Program, program
from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.cli import Cli
from tests.support.relays.processes import Relays
from tests.support.servers.logins import login

every_program = pytest.mark.parametrize("name", PROGRAMS)


@pytest.fixture
def example(name: str) -> Program:
    """The program, ready to run: skipped with a reason where its tools are missing, or failed with REQUIRE_EXAMPLES=1."""
    try:
        return program(name)
    except MissingToolError as error:
        (pytest.fail if os.environ.get("REQUIRE_EXAMPLES") == "1" else pytest.skip)(f"{error} (REQUIRE_EXAMPLES=1 makes this a failure)")


@pytest.fixture
async def environment(queue: Queue, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """What an application has: DATABASE_URL for a login that may insert messages and invoices."""
    await queue.sql((EXAMPLES / "schema.sql").read_text(encoding="utf-8"))
    with login(queue.url, "queue_message_producer") as application:
        parts = {name: str(value) for name, value in conninfo_to_dict(application).items()}
        await queue.sql(f"GRANT SELECT, INSERT ON invoice TO {parts['user']}")
        yield {**plain_environment(tmp_path), "DATABASE_URL": url_of(parts)}


def url_of(parts: dict[str, str]) -> str:
    """The form that every driver takes."""
    user = f"{quote(parts.pop('user'))}:{quote(parts.pop('password'))}"
    place = f"{parts.pop('host')}:{parts.pop('port', '5432')}/{quote(parts.pop('dbname'))}"
    return f"postgresql://{user}@{place}?{urlencode({'sslmode': 'disable', **parts})}"


@every_program
@pytest.mark.ids("A2", "A39")
async def test_one_transaction_commits_and_one_leaves_nothing(example: Program, environment: dict[str, str], queue: Queue) -> None:
    """The committed invoice and its message are there, under the id that was printed; of the other, only what sequences never take back."""
    printed = example.run(environment)

    assert re.fullmatch(r"[0-9a-f-]{36}\n", printed)
    [(invoice, total)] = await queue.sql("TABLE invoice")
    found = await queue.sql("SELECT id::text, exchange, routing_key, content FROM queue_message")
    assert [(printed.strip(), "shop", "order.paid", {"invoice": invoice, "total": total})] == found
    assert [(2, 2)] == await queue.sql("SELECT (SELECT last_value FROM invoice_id_seq), (SELECT last_value FROM queue_message_seq_seq)")


@pytest.mark.parametrize("name", ["django", "go"])
@pytest.mark.ids("A2", "A39", "C1")
async def test_what_was_committed_is_delivered_once(
    example: Program, environment: dict[str, str], queue: Queue, relays: Relays, vhost_url: str
) -> None:
    """A relay sends the one message, whatever language inserted it, and nothing of the transaction that was rolled back."""
    async with Topology(vhost_url, "shop") as topology:
        shop = await topology.declare("shop", "shop.orders", routing_key="order.paid")
        await relays.start(database=queue.url, broker=vhost_url)
        printed = example.run(environment).strip()
        await queue.settled()

        [delivered] = await topology.drain(shop.queue)
        assert (printed, printed) == (delivered.message_id, delivered.headers["x-relay-id"])
        assert {printed: "success"} == await queue.results()


@pytest.mark.slow
@pytest.mark.ids("A24")
async def test_a_worker_ends_each_message_as_its_handler_does(cli: Cli, queue: Queue, relays: Relays, vhost_url: str) -> None:
    """Through RabbitMQ into the inbox: one succeeds, one is rejected, one fails at every try, one does not end in time."""
    policy = {"RELAY_MAX_ATTEMPTS": "2", "RELAY_BACKOFF_BASE": "0.1", "RELAY_LOCK_SECONDS": "2", "RELAY_ON_LOCK_EXPIRED": "archive"}
    inbox = {"RELAY_SCHEMA": "inbox", "RELAY_DIRECTION": "inbox", "RELAY_RECEIVE_QUEUES": "shop.orders", "RELAY_WORK_SECONDS": "1"}
    inbox["PYTHONPATH"] = str(EXAMPLES / "worker")
    start = partial(relays.start, database=queue.url, broker=vhost_url)
    async with Topology(vhost_url, "shop") as topology:
        await topology.declare("shop", "shop.orders", routing_key="order.#", kind="topic")
        await relays.command("migrate", database=queue.url, settings={**inbox, **policy})
        await start("relay")
        await start("receiver", command="receive", settings=inbox)
        await start("worker", command=("work", "handlers:book"), settings=inbox)
        cli("enqueue", "shop", "order.paid", stdin=(EXAMPLES / "worker" / "messages.jsonl").read_bytes())

        async def all_ended() -> bool:
            return bool(await queue.value("SELECT count(*) = 4 FROM inbox.queue_message_archive"))

        await until(all_ended)
    assert [
        (1, "success", None),
        (2, "rejected", "nothing_to_pay"),
        (3, "failed", "handler_failed"),
        (4, "lock_expired", "lock_expired"),
    ] == await queue.sql("SELECT (content->'invoice')::int, result, error_code FROM inbox.queue_message_archive ORDER BY 1")


def test_the_packages_of_the_node_example_are_locked_by_their_hashes() -> None:
    """And by no address, so that whatever registry somebody uses serves them."""
    lock = json.loads((EXAMPLES / "node" / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}

    assert "node_modules/pg" in packages
    assert all(package["integrity"].startswith("sha512-") and "resolved" not in package for package in packages.values())
