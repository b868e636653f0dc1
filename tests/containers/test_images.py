"""The two images by themselves: what they hold, how they start and stop, and pg_cron at work where no relay runs."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HealthcheckWaitStrategy

from relay.postgres.schema.migrate import migrate
from tests.support.servers.compose import IMAGES, Compose, docker
from tests.support.servers.shared import Say

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
RELAY = IMAGES["OUTBOX_IMAGE"]
POSTGRES = IMAGES["OUTBOX_POSTGRES_IMAGE"]
LARGEST = 90
"""Megabytes above python:3.13-slim; 64 were seen, of which uvloop 16, pydantic 9, pygments 9, psycopg's libraries 9."""


def _image(name: str) -> dict[str, Any]:
    [found] = json.loads(docker("image", "inspect", name))
    return dict(found)


def _healthy() -> HealthcheckWaitStrategy:
    return HealthcheckWaitStrategy().with_startup_timeout(120)


@pytest.fixture
def lonely_relay(project: Compose) -> Iterator[DockerContainer]:
    """A relay without servers, under the same locks as in the composition."""
    locked = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
    made = DockerContainer(RELAY).with_env("RELAY_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none").with_kwargs(**locked)
    with made.with_exposed_ports(8080).waiting_for(_healthy()) as running:
        yield running


@pytest.fixture
def cron_url(project: Compose) -> Iterator[str]:
    """A database of PostgreSQL with pg_cron, under names of its own, with the schema and without any relay."""
    given = {"POSTGRES_USER": "boss", "POSTGRES_PASSWORD": "a b'c", "POSTGRES_DB": "till"}
    with DockerContainer(POSTGRES).with_envs(**given).with_exposed_ports(5432).waiting_for(_healthy()) as server:
        url = f"postgresql://boss:a%20b'c@{server.get_container_host_ip()}:{server.get_exposed_port(5432)}/till"
        migrate(url)
        yield url


def test_the_image_is_small_and_says_how_it_is_run(project: Compose, say: Say) -> None:
    """A number for the user, the signal to stop, the health check, and nothing but what the relay needs."""
    image = _image(RELAY)
    config = image["Config"]
    own = (image["Size"] - _image("python:3.13-slim")["Size"]) / 1e6

    say(f"containers: image of the relay {image['Size'] / 1e6:.0f} MB, {own:.0f} MB of it above python:3.13-slim")
    assert own < LARGEST
    assert ("10001:10001", "SIGTERM", ["relay"], ["run"]) == tuple(config[key] for key in ("User", "StopSignal", "Entrypoint", "Cmd"))
    assert "/livez" in config["Healthcheck"]["Test"]
    assert "Apache-2.0" == config["Labels"]["org.opencontainers.image.licenses"]


def test_the_image_holds_the_wheel_and_no_source_tree(project: Compose) -> None:
    """The command runs from an empty place, prints the SQL of the schema, and is the built package."""
    free = ["run", "--rm", "--read-only", "--network", "none", "--cap-drop", "ALL"]
    where = docker(*free, "--entrypoint", "python", RELAY, "-c", "import relay; print(relay.__file__)")

    assert where.strip().endswith("/site-packages/relay/__init__.py")
    assert "outbox-relay" in docker(*free, RELAY, "--version")
    assert "" == docker(*free, "--entrypoint", "sh", RELAY, "-c", "ls -A / | grep -E 'source|wheel|tests' || true")


@pytest.mark.ids("A25", "D9")
def test_a_relay_without_servers_lives_is_not_ready_and_leaves_at_once(lonely_relay: DockerContainer) -> None:
    """The image's health check passes although the servers are missing. SIGTERM ends the relay with 0 before the grace period is over."""
    address = f"http://{lonely_relay.get_container_host_ip()}:{lonely_relay.get_exposed_port(8080)}/readyz"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address, timeout=10)
    assert 503 == refused.value.code
    assert {"database", "broker"} == json.loads(refused.value.read())["reasons"].keys()
    refused.value.close()

    container = lonely_relay.get_wrapped_container()
    before = time.monotonic()
    container.stop(timeout=20)
    container.reload()
    assert 0 == container.attrs["State"]["ExitCode"]
    assert time.monotonic() - before < 10


@pytest.mark.slow
@pytest.mark.ids("A12", "A13", "A21", "A22", "A30")
def test_pg_cron_sweeps_where_no_relay_runs(cron_url: str) -> None:
    """A message whose holder died is free again, and waiting ones are notified again, within a minute, from the database alone."""
    with psycopg.connect(cron_url, autocommit=True) as watcher:
        assert [("queue_message public sweep",)] == watcher.execute(
            "SELECT jobname FROM cron.job WHERE active AND database = 'till' AND jobname LIKE '%sweep'"
        ).fetchall()
        watcher.execute("SELECT queue_message_config_set('notify', 'always')")
        watcher.execute("INSERT INTO queue_message (exchange) VALUES ('held'), ('waiting')")
        watcher.execute("UPDATE queue_message SET lock_expires_at = now() - interval '10 min' WHERE exchange = 'held'")
        waited_for = {str(id_) for (id_,) in watcher.execute("SELECT id FROM queue_message")}
        watcher.execute("LISTEN queue_message_notify")

        for notice in watcher.notifies(timeout=75):
            waited_for.discard(json.loads(notice.payload)["id"])
            if not waited_for:
                break

        runs = watcher.execute("SELECT start_time, command, status, return_message FROM cron.job_run_details ORDER BY runid").fetchall()
        assert not waited_for, f"not notified within 75 s; pg_cron ran {runs}"
        states = watcher.execute("SELECT exchange, state, attempts FROM queue_message_state ORDER BY exchange").fetchall()
        assert [("held", "ready", 1), ("waiting", "ready", 0)] == states


@pytest.mark.slow
@pytest.mark.ids("A20", "A21", "A36")
def test_pg_cron_carries_schedules_out_where_no_relay_runs(cron_url: str) -> None:
    """What is due is inserted within a minute, from the database alone."""
    with psycopg.connect(cron_url, autocommit=True) as watcher:
        watcher.execute("SELECT queue_message_config_set('notify', 'always')")
        watcher.execute("LISTEN queue_message_notify")
        watcher.execute("SELECT queue_message_schedule_add('n', 'EVERY 1 second', 'scheduled')")

        told = any(True for _ in watcher.notifies(timeout=75, stop_after=1))

        runs = watcher.execute("SELECT start_time, command, status, return_message FROM cron.job_run_details ORDER BY runid").fetchall()
        assert told, f"not inserted within 75 s; pg_cron ran {runs}"
        assert watcher.execute("SELECT FROM queue_message WHERE exchange = 'scheduled'").fetchall()
