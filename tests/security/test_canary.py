"""One payload and one password go through every path that there is, errors and level debug included, and come out nowhere."""

from __future__ import annotations

import asyncio
import json
import traceback
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from relay import devservers
from relay.cli.main import app
from relay.client import enqueue, enqueue_async
from relay.config.settings import load
from relay.errors import RelayError
from tests.support.broker.topology import Topology
from tests.support.database.queue import Queue, unchecked, until
from tests.support.relays.canary import PASSWORD, PAYLOAD, silent
from tests.support.relays.cli import Cli
from tests.support.relays.processes import RelayProcess, Relays
from tests.support.servers.logins import login

CONTENT = json.dumps({"secret": PAYLOAD, "more": [PAYLOAD] * 3})
HELD = {"headers": {"x-secret": PAYLOAD}}
WRONG = [
    {"priority": PAYLOAD}, {"expiration": PAYLOAD}, {"timestamp": PAYLOAD}, {"headers": PAYLOAD}, {"mandatory": PAYLOAD},
    {"deliveryMode": PAYLOAD}, {"CC": {"a": PAYLOAD}}, {"headers": {"a": {"b": [PAYLOAD, 1e300, 2**70]}}}, [PAYLOAD], PAYLOAD,
    {"type": PAYLOAD * 30}, {"replyTo": {"a": PAYLOAD}}, {"headers": {"a" * 300: PAYLOAD}}, {"immediate": PAYLOAD},
]  # fmt: skip
"""Options that cannot be sent; the canary is a value in each, because a name is shown on purpose."""
UNPRINTABLE = "SELECT %s, 'key', jsonb_build_array(%s::text) || jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000)"
"""A content that is little as it is stored, and more than a gigabyte as text."""
MISCAST = "CHECK (routing_key <> 'miscast' OR (content ->> 'secret')::int > 0) NOT VALID"
"""PostgreSQL quotes in the message of its error, and not in DETAIL, the value that is no number."""
PAGES = ("metrics", "readyz", "livez", "nothing")
TABLES = (
    "archive",
    "relay",
    "setting",
    "pause",
    "key_hold",
    "dead_ack",
    "audit",
    "export",
    "replay_ledger",
    "state",
    "dead_list",
    "status",
)


ENDS = {
    "access_refused", "body_too_large", "content_unprintable", "exchange_missing", "nacked", "option_too_long", "option_type", "unroutable",
}  # fmt: skip
"""How messages of `_fill` end."""


@pytest.fixture
def broker_login(own_broker: devservers.RabbitMQ, unique: str) -> Iterator[str]:
    """A user of the broker whose password is the canary, who may write to this test's exchanges but for one."""
    own_broker.ctl("add_user", unique, PASSWORD)
    own_broker.ctl("set_permissions", "-p", "/", unique, "", f"^{unique}\\.(?!barred)", "")
    yield own_broker.url.replace("guest:guest", f"{unique}:{PASSWORD}")
    own_broker.ctl("delete_user", unique)


async def _insert(queue: Queue, exchange: str, routing_key: str = "key", options: object = HELD, content: str = CONTENT) -> None:
    statement = "INSERT INTO queue_message (exchange, routing_key, content, options) VALUES (%s, %s, %s, %s)"
    await queue.sql(statement, exchange, routing_key, content, json.dumps(options))


async def _insert_what_is_refused(queue: Queue, exchange: str) -> None:
    """As an older schema, or a superuser, would have let it pass."""
    await queue.sql("SET session_replication_role = replica")
    for options in WRONG:
        await _insert(queue, exchange, options=options)
    await queue.sql("RESET session_replication_role")


async def _fill(queue: Queue, topology: Topology, unique: str) -> None:
    """A message for each way that one can end."""
    for name, value in (("max_attempts", "1"), ("backoff_base", "0"), ("max_body_bytes", "5000"), ("unroutable", "reject")):
        await queue.sql("SELECT queue_message_config_set(%s, %s)", name, value)
    await topology.declare(f"{unique}.fine")
    await topology.declare(f"{unique}.full", f"{unique}.full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    await topology.declare_exchange(f"{unique}.barred")
    await _insert_what_is_refused(queue, f"{unique}.fine")
    for exchange in ("fine", "full", "full", "full", "missing", "barred"):
        await _insert(queue, f"{unique}.{exchange}")
    await _insert(queue, f"{unique}.fine", "leads.nowhere")
    await _insert(queue, f"{unique}.fine", content=json.dumps(PAYLOAD * 1000))
    await _insert(queue, f"{unique}.fine", options={"userId": "somebody-else", **HELD})
    async with unchecked(queue):
        await queue.sql(f"INSERT INTO queue_message (exchange, routing_key, content) {UNPRINTABLE}", f"{unique}.fine", PAYLOAD)
    await queue.sql("INSERT INTO queue_message (exchange, routing_key, body) VALUES (%s, 'key', %s)", f"{unique}.fine", PAYLOAD.encode())


async def _told(relay: RelayProcess, port: int) -> list[str]:
    """Everything that a relay says to the outside."""
    return [json.dumps(relay.lines), *[await asyncio.to_thread(_page, f"http://127.0.0.1:{port}/{name}") for name in PAGES]]


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - of the relay alone
            return str(answer.headers) + str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return str(error.headers) + error.read().decode()


async def _kept(queue: Queue) -> list[str]:
    """Everything that the database has of it but for the columns that hold payloads."""
    rows = [
        await queue.sql(f"SELECT (to_jsonb(t) - '{{content,body,options}}'::text[])::text FROM queue_message_{name} t") for name in TABLES
    ]
    rows += [await queue.sql("SELECT (to_jsonb(t) - '{content,body,options}'::text[])::text FROM queue_message t")]
    return [json.dumps(rows)]


def _shown(cli: Cli, queue_ids: list[str], refused: str) -> list[str]:
    """What an operator's commands show."""
    told = []
    for words in (
        ["status", "--all"], ["config", "list"], ["dead", "list", "--all"], ["key", "list"], ["dead", "watch", "--once"],
        *(["show", id_] for id_ in queue_ids[::4]), *(["dead", "show", id_] for id_ in queue_ids[1::4]),
    ):  # fmt: skip
        for form in ([], ["--json"]):
            told += [cli(*words, *form), cli.stderr]
    told += [cli("dead", "replay", refused, code=1), cli.stderr, cli("replay", "--code", "unroutable", "--again"), cli.stderr]
    return told


@pytest.fixture
async def operator(queue: Queue, tmp_path: Path) -> AsyncIterator[Cli]:
    """The command line of a login whose password is the canary."""
    with login(queue.url, "queue_message_operator", "queue_message_producer", password=PASSWORD) as url:
        made = Cli(url, tmp_path)
        yield made
        made.close()


@pytest.mark.timeout(300)
@pytest.mark.slow
@pytest.mark.parametrize("log_format", ["json", "console"])
async def test_a_relay_tells_of_neither(  # noqa: PLR0913 - all that it passes through
    queue: Queue, own_broker: devservers.RabbitMQ, own_topology: Topology, broker_login: str, operator: Cli, relays: Relays, unique: str,
    log_format: str, unused_tcp_port: int, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Encoded wrong, too large, unprintable, missing, barred, returned, nacked, not to be archived, cut off on both sides, and replayed."""
    await _fill(queue, own_topology, unique)
    await queue.sql("ALTER TABLE queue_message_archive ADD CONSTRAINT canary CHECK (routing_key <> 'refused') NOT VALID")
    await queue.sql(f"ALTER TABLE queue_message_archive ADD CONSTRAINT miscast {MISCAST}")
    for routing_key in ("refused", "miscast"):
        await _insert(queue, f"{unique}.missing", routing_key)
    settings = {"RELAY_LOG_LEVEL": "debug", "RELAY_LOG_FORMAT": log_format, "RELAY_HTTP_PORT": str(unused_tcp_port)}
    with login(queue.url, "queue_message_relay", password=PASSWORD) as url:
        relay = await relays.start(database=url, broker=broker_login, settings=settings, ready=False)
        await queue.settled(2, seconds=90)
        for sqlstate in ("23514", "22P02"):
            await until(lambda sqlstate=sqlstate: f"SQLSTATE {sqlstate}" in json.dumps(relay.lines), 60)  # type: ignore[misc]
        cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/%'"
        await queue.sql(cut)
        own_broker.ctl("close_all_connections", "cut by the test")
        await _insert(queue, f"{unique}.fine")
        await queue.settled(2, seconds=90)
        said = await _told(relay, unused_tcp_port)
        ids = [id_ for (id_,) in await queue.sql("SELECT id::text FROM queue_message_dead ORDER BY archived_xid, seq")]
        [refused] = await queue.sql("SELECT id::text FROM queue_message_dead WHERE error_code = 'option_type' LIMIT 1")
        said += _shown(operator, ids, *refused) + await _kept(queue)
        await relay.stop()

    codes = {code for (code,) in await queue.sql("SELECT error_code FROM queue_message_dead")}
    assert ENDS <= codes
    silent(*said, json.dumps(relay.lines), *capfd.readouterr())
    assert PAYLOAD in await queue.value("SELECT content::text FROM queue_message_archive WHERE result = 'success' AND body IS NULL LIMIT 1")


def _raised(connection: psycopg.Connection[Any], message: dict[str, Any]) -> str:
    """The client's error as a program may log it."""
    with pytest.raises(RelayError) as raised:
        enqueue(connection, message)
    return f"{raised.value} {raised.value!r} " + "".join(traceback.format_exception_only(raised.value))


async def test_what_an_insert_refuses_is_not_repeated(queue: Queue, operator: Cli) -> None:
    """Neither by the client, nor by the command line, nor in the message of PostgreSQL's error."""
    told: list[str] = []
    with psycopg.connect(queue.url) as connection:
        given = {"exchange": "e", "routing_key": "k", "content": {"a": PAYLOAD}}
        told += [_raised(connection, {**given, "options": options}) for options in WRONG]
    for options in WRONG:
        with pytest.raises(psycopg.Error) as refused:
            await _insert(queue, "e", options=options)
        told.append(str(refused.value.diag.message_primary))
        told.append(
            operator.refused("enqueue", "e", "k", CONTENT, "--options", json.dumps(options), code=2 if not isinstance(options, dict) else 1)
        )
    for content in (f"{{{PAYLOAD}", f'"{PAYLOAD}\\u0000"', f'{{"a": "{PAYLOAD}", "b": 1e}}'):
        told.append(operator.refused("enqueue", "e", "k", content, code=1))
        operator("enqueue", "e", "k", code=1, stdin=f"{content}\n")
        told.append(operator.stderr)
    silent(*told)


async def test_the_asynchronous_client_repeats_nothing_either(queue: Queue) -> None:
    """As above."""
    with pytest.raises(RelayError) as raised:
        await enqueue_async(queue.connection, {"exchange": "e", "content": {"a": PAYLOAD}, "options": {"priority": PAYLOAD}})
    silent(str(raised.value), repr(raised.value))


BROKEN = [
    ("RELAY_DATABASE_URL", f"postgresql://relay:{PASSWORD}@127.0.0.1:1/x"),
    ("RELAY_DATABASE_URL", f"postgresql://relay:{PASSWORD}@no.such.host.invalid/x"),
    ("RELAY_DATABASE_URL", f"postgresql://relay:{PASSWORD}@127.0.0.1:{PASSWORD}/x"),
    ("RELAY_DATABASE_URL", f"postgresql://relay:a@{PASSWORD}@127.0.0.1/x"),
    ("RELAY_DATABASE_URL", f"postgresql://relay:{PASSWORD}%@127.0.0.1/x"),
    ("RELAY_DATABASE_URL", f"host=127.0.0.1 port=1 password={PASSWORD}"),
    ("RELAY_DATABASE_URL", f"host=127.0.0.1 password='{PASSWORD}"),
    ("RELAY_DATABASE_URL", f"password={PASSWORD} nonsense"),
    ("RELAY_DATABASE_URL", f"postgresql://relay:a?{PASSWORD}@127.0.0.1/x"),
    ("RELAY_AMQP_URL", f"amqp://relay:a@{PASSWORD}@127.0.0.1/"),
    ("RELAY_AMQP_URL", f"amqp://relay:{PASSWORD}@127.0.0.1:{PASSWORD}/"),
    ("RELAY_AMQP_URL", f"relay:{PASSWORD}"),
    ("RELAY_LAKE_OPTIONS", f'{{"AWS_SECRET_ACCESS_KEY": "{PASSWORD}"'),
    ("RELAY_LAKE_OPTIONS", f"[{PASSWORD!r}]"),
]


@pytest.mark.parametrize(("name", "value"), BROKEN)
def test_a_broken_setting_is_told_without_its_secret(tmp_path: Path, name: str, value: str) -> None:
    """By a command for people and by jobs of the pipeline, and where the settings themselves are printed."""
    env = {"RELAY_LAKE_URL": str(tmp_path), name: value}
    for words in (["status"], ["migrate", "--check"], ["pipeline", "verify"], ["pipeline", "replay", "--exchange", "e"]):
        ended = CliRunner().invoke(app, words, env=env)
        assert ended.exit_code in (1, 2, 4)
        silent(ended.stdout, ended.stderr)
    try:
        settings = load({name: value}, None)
    except RelayError as error:
        silent(str(error), repr(error))
    else:
        silent(repr(settings), str(settings), str(settings.model_dump()))


async def test_a_wrong_password_is_not_shown_by_a_relay(queue: Queue, amqp_url: str, relays: Relays) -> None:
    """To either server, at level debug."""
    broker = amqp_url.replace("guest:guest", f"guest:{PASSWORD}").replace("relay_test:", f"{PASSWORD}:")
    with login(queue.url, "queue_message_relay") as url:
        debug = {"RELAY_LOG_LEVEL": "debug"}
        lost = await relays.start("lost", database=make_conninfo(url, password=PASSWORD), broker=amqp_url, settings=debug, ready=False)
        alone = await relays.start("alone", database=url, broker=broker, settings=debug, ready=False)
        await lost.logged("database_down", 2)
        await alone.logged("broker_down", 2)
        silent(json.dumps(lost.lines), json.dumps(alone.lines), *await _kept(queue))
