"""`docker compose up --wait` from nothing to a delivered message, and what each container may do."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aio_pika
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.database.queue import Queue, until
from tests.support.pages import dashboard
from tests.support.servers.compose import Compose

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


@pytest.fixture
async def outbox(stack: Compose) -> AsyncIterator[Queue]:
    """The composition's database, as its owner, from the host."""
    url = f"postgresql://owner:owner@127.0.0.1:{stack.port('postgres', 5432)}/outbox"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield Queue(url, connection)


@pytest.fixture
async def orders(stack: Compose) -> AsyncIterator[aio_pika.abc.AbstractQueue]:
    """The example's queue, as its consumer, from the host."""
    connection = await aio_pika.connect(f"amqp://consumer:consumer@127.0.0.1:{stack.port('rabbitmq', 5672)}/")
    async with connection:
        channel = await connection.channel()
        yield await channel.get_queue("shop.orders")


async def next_order(orders: aio_pika.abc.AbstractQueue) -> dict[str, Any]:
    """Content of the next message that is delivered."""
    async with orders.iterator(timeout=30) as deliveries:
        delivery = await anext(deliveries)
        await delivery.ack()
    return dict(json.loads(delivery.body))


@pytest.mark.ids("A22", "A25", "D1")
def test_the_composition_ends_green(stack: Compose) -> None:
    """Servers and relay are healthy, the migration has done its work and is gone."""
    assert {"healthy"} == {stack.inspect(service)["State"]["Health"]["Status"] for service in ("postgres", "rabbitmq", "relay")}
    assert ("exited", 0) == tuple(stack.inspect("migrate")["State"][key] for key in ("Status", "ExitCode"))


@pytest.mark.ids("A2", "A8", "C1", "C2", "C18", "D10")
async def test_an_insert_in_psql_is_delivered_and_archived(stack: Compose, outbox: Queue, orders: aio_pika.abc.AbstractQueue) -> None:
    """Three columns in psql are all that it takes; the message arrives, and its success is on record."""
    insert = """INSERT INTO queue_message (exchange, routing_key, content) VALUES ('shop', 'order.placed', '{"order": 17}') RETURNING id"""
    id_ = stack.run("exec", "-T", "postgres", "psql", "-qAt", "-U", "owner", "outbox", "-c", insert)

    assert {"order": 17} == await next_order(orders)

    async def archived() -> bool:
        return bool("success" == await outbox.value("SELECT state FROM queue_message_state WHERE id = %s::uuid", id_.strip()))

    await until(archived)


@pytest.mark.ids("A17", "C8", "D9")
async def test_what_was_inserted_without_a_relay_goes_out_when_it_is_back(
    stack: Compose, outbox: Queue, orders: aio_pika.abc.AbstractQueue
) -> None:
    """A stopped relay leaves with exit code 0, messages wait, and the next start delivers them."""
    stack.run("stop", "relay")
    assert 0 == stack.inspect("relay")["State"]["ExitCode"]
    [id_] = await outbox.insert(exchange="shop", routing_key="order.placed", content='{"order": 18}')
    assert "ready" == await outbox.value("SELECT state FROM queue_message_state WHERE id = %s::uuid", id_)

    stack.run("up", "--detach", "--wait", "--no-deps", "relay")

    assert {"order": 18} == await next_order(orders)


def scraped(stack: Compose) -> set[str]:
    """Names of the time series that the running relay exports, with and without the ending that its format gives them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{stack.port('relay', 8080)}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {family.name for family in families} | {sample.name for family in families for sample in family.samples}


@pytest.mark.ids("A40")
async def test_the_relay_exports_every_metric_that_dashboard_and_alerts_ask_for(stack: Compose, outbox: Queue) -> None:
    """A scrape of the running container has each name, those of an export once one is registered."""
    queries = [panel.query for panel in dashboard.panels() if panel.source == "outbox-metrics"] + dashboard.alert_expressions()
    asked = {name.removesuffix("_total") for query in queries for name in dashboard.metric_names(query)}
    await outbox.sql("SELECT queue_message_config_set('export_registered', 'true')")
    try:
        await until(lambda: "relay_export_lag_seconds" in scraped(stack), 60)
        assert set() == asked - scraped(stack)
    finally:
        await outbox.sql("SELECT queue_message_config_set('export_registered', 'false')")


@pytest.mark.ids("C18")
def test_an_operator_has_the_command_line(stack: Compose) -> None:
    """A login without ownership sees the status, and its relay."""
    status = json.loads(stack.run("run", "--rm", "-T", "operator", "status", "--json"))

    assert 1 == status["queue"]["relays_alive"]


def test_the_relay_may_do_nothing_that_it_need_not(stack: Compose) -> None:
    """No root, no capability, no new privileges, and a file system that it cannot write to."""
    found = stack.inspect("relay")

    assert "10001:10001" == found["Config"]["User"]
    assert found["HostConfig"]["ReadonlyRootfs"]
    assert ["ALL"] == found["HostConfig"]["CapDrop"]
    assert ["no-new-privileges:true"] == found["HostConfig"]["SecurityOpt"]
    writes = "import pathlib; [pathlib.Path(name).touch() for name in ('/tmp/x', '/opt/relay/x')]"
    stack.run("exec", "-T", "relay", "python", "-c", writes, check=False)
    there = "import pathlib; print([pathlib.Path(name).exists() for name in ('/tmp/x', '/opt/relay/x')])"
    assert "[True, False]" == stack.run("exec", "-T", "relay", "python", "-c", there).strip()


def test_everything_listens_on_loopback_alone_and_every_mount_is_there(project: Compose) -> None:
    """Also with Prometheus and Grafana: no port is open to others, no mounted file is missing, what stays up has a health check."""
    services = project.config()["services"]

    assert {"postgres", "rabbitmq", "migrate", "relay", "operator", "prometheus", "grafana"} == services.keys()
    for name, service in services.items():
        assert {"127.0.0.1"} >= {port.get("host_ip") for port in service.get("ports", [])}, name
        assert all(Path(mount["source"]).exists() for mount in service.get("volumes", []) if mount["type"] == "bind"), name
        assert service.get("restart") is None or "healthcheck" in service or name == "postgres", name
    for folder in ("prometheus", "grafana"):
        assert any(mount["source"].startswith(str(dashboard.DOCKER / folder)) for mount in services[folder]["volumes"])
