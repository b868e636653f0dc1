"""A real login of each role runs its whole path, and nothing beyond it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo

from relay import devservers
from relay.message import Archive, Result, Retry
from relay.ports import SettleRow
from relay.postgres.maintenance_store import PostgresMaintenance
from relay.postgres.schema.borders import check_roles
from relay.postgres.schema.migrate import migrate
from relay.postgres.schema.sql_files import Renderer, migrations, read
from relay.queries.statements import Statements
from tests.support.database.foreign import renumber_by
from tests.support.database.queue import MadeStore, MakeStore, Queue, unchecked, until
from tests.support.servers.logins import login, own_role

LOOK = [
    "read_status", "read_lake", "read_recent", "read_relays", "read_transactions", "read_policy", "read_floor", "list_paused",
    "list_limited", "list_settings",
]  # fmt: skip
FORBIDDEN = {
    "queue_message_producer": [
        "SELECT content FROM queue_message", "SELECT content FROM queue_message_app", "UPDATE queue_message SET available_at = now()",
        "DELETE FROM queue_message", "INSERT INTO queue_message (exchange, attempts) VALUES ('e', 1)",
        "INSERT INTO queue_message (exchange, replay_of) VALUES ('e', gen_random_uuid())", "TABLE queue_message_archive",
        "TABLE queue_message_setting", "SELECT queue_message_pause('e')", "SELECT queue_message_limit('e', 1)",
        "SELECT queue_message_sweep()", "SELECT queue_message_schedule_add('n', '@daily', 'e')", "TABLE queue_message_schedule",
        "SELECT queue_message_run_schedules()", "INSERT INTO queue_message_schedule (name, spec, exchange) VALUES ('n', '@daily', 'e')",
        "TABLE queue_message_state", "SELECT queue_message_replay(gen_random_uuid())",
        "SELECT queue_message_archive_now('{}', 'success', '', '', '')",
        "TRUNCATE queue_message",
    ],
    "queue_message_relay": [
        "INSERT INTO queue_message (exchange) VALUES ('e')", "UPDATE queue_message SET content = '{}'", "TRUNCATE queue_message",
        "UPDATE queue_message_archive SET error_code = ''", "DELETE FROM queue_message_archive", "DELETE FROM queue_message_dead",
        "SELECT content FROM queue_message_archive", "CREATE TABLE queue_message_mine ()", "UPDATE queue_message_setting SET value = '1'",
        "SELECT queue_message_config_set('max_attempts', '1')", "SELECT queue_message_drop_day('queue_message_dead', false)",
        "DELETE FROM queue_message_migration", "DELETE FROM queue_message_pause", "DELETE FROM queue_message_limit",
        "ALTER TABLE queue_message SET (fillfactor = 90)",
        "SELECT queue_message_retain('2999-01-01')", "SELECT queue_message_run_schedules('2999-01-01')",
        "SELECT content FROM queue_message_schedule", "SELECT queue_message_schedule_add('n', '@daily', 'e')",
    ],
    "queue_message_operator": [
        "TABLE queue_message", "TABLE queue_message_archive", "TABLE queue_message_dead",
        "INSERT INTO queue_message (exchange) VALUES ('e')",
        "DELETE FROM queue_message", "UPDATE queue_message_setting SET value = '1'", "DELETE FROM queue_message_dead_ack",
        "SELECT queue_message_archive_now('{}', 'success', '', '', '')", "INSERT INTO queue_message_app (exchange) VALUES ('e')",
        "DELETE FROM queue_message_audit", "INSERT INTO queue_message_audit (action, subject) VALUES ('set', 'x')",
        "SELECT queue_message_retain('2999-01-01')", "SELECT queue_message_ensure_partitions(1, '2999-01-01')",
        "SELECT queue_message_sweep('2999-01-01')", "SELECT queue_message_sweep_minute('2999-01-01')",
        "SELECT queue_message_run_schedules('2999-01-01')", "SELECT queue_message_schedule_add('n', '@daily', 'e')",
        "UPDATE queue_message_schedule SET exchange = 'e'", "DELETE FROM queue_message_schedule",
    ],
    "queue_message_etl": [
        "TABLE queue_message", "INSERT INTO queue_message_archive DEFAULT VALUES", "DELETE FROM queue_message_dead",
        "SELECT queue_message_retain()", "UPDATE queue_message_setting SET value = '1'", "SELECT queue_message_pause('e')",
        "SELECT queue_message_replay_many()", "TABLE queue_message_audit",
    ],
    "queue_message_consumer": [
        "TABLE queue_message", "INSERT INTO queue_message (exchange) VALUES ('e')", "TABLE queue_message_archive",
        "TABLE queue_message_received", "DELETE FROM queue_message_received", "UPDATE queue_message_received SET received_at = now()",
        "INSERT INTO queue_message_received (consumer, message_id, received_at) VALUES ('c', 'm', now())",
        "SELECT queue_message_retain()", "SELECT queue_message_delete_received(now())", "TABLE queue_message_setting",
    ],
    "queue_message_receiver": [
        "SELECT content FROM queue_message", "UPDATE queue_message SET attempts = 1", "DELETE FROM queue_message",
        "INSERT INTO queue_message_archive DEFAULT VALUES", "TABLE queue_message_archive", "DELETE FROM queue_message_received",
        "UPDATE queue_message_received SET received_at = now()", "UPDATE queue_message_setting SET value = '1'",
        "INSERT INTO queue_message (id, exchange) VALUES (gen_random_uuid(), 'e')", "SELECT queue_message_replay(gen_random_uuid())",
    ],
    "queue_message_replayer": [
        "TABLE queue_message", "TABLE queue_message_archive", "INSERT INTO queue_message (exchange) VALUES ('e')",
        "SELECT queue_message_replay(gen_random_uuid())", "SELECT queue_message_replay_many()", "TABLE queue_message_setting",
        "DELETE FROM queue_message_replay_ledger",
    ],
}  # fmt: skip


@pytest.fixture
def login_of(database_url: str) -> Iterator[Callable[[str], str]]:
    """Make logins of a role; yields connection strings."""
    made = []

    def make(role: str) -> str:
        made.append(login(database_url, role))
        return made[-1].__enter__()

    yield make
    for one in made:
        one.__exit__(None, None, None)


@pytest.mark.parametrize(("role", "statement"), [(role, statement) for role, statements in FORBIDDEN.items() for statement in statements])
def test_a_role_does_nothing_beyond_its_own(login_of: Callable[[str], str], role: str, statement: str) -> None:
    """What it was not granted is refused by PostgreSQL itself."""
    with psycopg.connect(login_of(role)) as connection, pytest.raises(errors.InsufficientPrivilege):
        connection.execute(statement.encode())


@pytest.mark.ids("A23", "C2")
@pytest.mark.parametrize("table", ["queue_message", "queue_message_app"])
async def test_a_producer_inserts(queue: Queue, login_of: Callable[[str], str], table: str) -> None:
    """Every column that an application may write, in every mode of hints, with its id back, and once for an id."""
    columns = "id, exchange, routing_key, content, options, ordering_key, available_at, expires_at"
    values = """gen_random_uuid(), 'e', 'k', '{"n": 1}', '{"headers": {"a": [1, "x"]}, "CC": "b"}', 'o', now(), '2999-01-01'"""
    async with await psycopg.AsyncConnection.connect(login_of("queue_message_producer"), autocommit=True) as app:
        for mode in ("idle", "always", "off"):
            await queue.sql("SELECT queue_message_config_set('notify', %s)", mode)
            await app.execute(f"INSERT INTO {table} (exchange, routing_key, content) VALUES ('e', 'k', '{{}}')".encode())
            cursor = await app.execute(f"INSERT INTO {table} ({columns}) VALUES ({values}) RETURNING id".encode())
            [(id_,)] = await cursor.fetchall()
            await app.execute(f"INSERT INTO {table} (id, exchange, body) VALUES (%s, 'e', '') ON CONFLICT (id) DO NOTHING".encode(), (id_,))
        with pytest.raises(errors.CheckViolation, match="persistant"):
            await app.execute(f"INSERT INTO {table} (exchange, options) VALUES ('e', '{{\"persistant\": true}}')".encode())
    assert 6 == await queue.waiting()


@pytest.mark.ids("A23")
async def test_a_relay_claims_settles_and_tends(queue: Queue, login_of: Callable[[str], str], make_store: MakeStore) -> None:
    """Every statement of the relay's runs with the relay's role: claims, settles, releases, lanes, sweeps, archive."""
    store = make_store("relay-of-a-role", url=login_of("queue_message_relay"))
    await store.register()
    await queue.insert(4)
    await queue.insert(2, ordering_key="k")
    await _claim_and_settle(store)
    await store.keep_lanes()
    await store.heartbeat("{}")

    upkeep = PostgresMaintenance(store=store, needs=migrations()[-1].version, adopt=lambda _policy, _settings: None)
    await upkeep.check_schema()
    await queue.expire()
    for chore in (
        store.sweep,
        upkeep.sweep_minute,
        upkeep.ensure_partitions,
        upkeep.retain,
        upkeep.renotify,
        upkeep.run_schedules,
        upkeep.refresh_policy,
    ):
        await chore()
    await store.unregister(holds_locks=False)
    assert {"success", "failed"} == set((await queue.results()).values())


async def _claim_and_settle(store: MadeStore) -> None:
    await store.due()
    for kind in ("waiting", "suspect"):
        await store.found(kind)
    batch = await store.batch(limit=4)
    rows = [SettleRow(claim, Archive(Result.SUCCESS), None, None) for claim in batch.claims[:1]]
    rows += [SettleRow(claim, Archive(Result.FAILED, "x", "x"), None, None) for claim in batch.claims[1:2]]
    assert [] == await store.archive(batch, rows, again=False)
    assert [] == await store.archive(batch, rows, again=True)
    for again in (False, True):
        assert [] == await store.release(batch, [SettleRow(batch.claims[2], Retry(0, "x", "x"), None, None)], again=again)
    assert 1 == await store.renew(batch, [batch.claims[3].position])


async def test_a_relay_renumbers_foreign_messages_and_changes_no_place_otherwise(queue: Queue, login_of: Callable[[str], str]) -> None:
    """Its role may call the function alone, whatever it sets in its session."""
    async with unchecked(queue):
        await queue.sql("INSERT INTO queue_message (xid, exchange) VALUES ('99999999999', 'e')")
    async with await psycopg.AsyncConnection.connect(login_of("queue_message_relay"), autocommit=True) as relay:
        await relay.execute("SET relay.renumber = 'on'")
        with pytest.raises(errors.InsufficientPrivilege):
            await relay.execute("UPDATE queue_message SET xid = '2'")
        assert 1 == await renumber_by(relay)


async def test_a_relay_listens_and_holds_the_gate(login_of: Callable[[str], str]) -> None:
    """The wake-up needs no more than the relay's role."""
    statements = Statements("public")
    async with await psycopg.AsyncConnection.connect(login_of("queue_message_relay"), autocommit=True) as connection:
        for name in ("listen_hints", "take_gate", "release_gate"):
            await connection.execute(statements[name])


@pytest.mark.ids("A23", "D10")
async def test_an_operator_looks_and_acts(queue: Queue, login_of: Callable[[str], str]) -> None:
    """Views without contents, and every function of the control plane."""
    [dead, *_] = await queue.insert(3, ordering_key="k")
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'x', 'x', 'r')", dead)
    statements = Statements("public")
    async with await psycopg.AsyncConnection.connect(login_of("queue_message_operator"), autocommit=True) as operator:
        for name in LOOK:
            assert (await operator.execute(statements[name])).description
        await queue.sql("INSERT INTO queue_message_schedule (name, spec, exchange) VALUES ('n', '@daily', 'e')")
        for view in ("schedule", "state", "dead_list", "blocked_key", "relay_state", "key_hold", "dead_ack", "export"):
            await operator.execute(f"TABLE queue_message_{view}".encode())
        for call in (
            "pause('e')", "resume('e')", "limit('e', 5)", "unlimit('e')",
            "key_park('k')", "key_resume('k')", "key_skip('k')", "config_set('notify', 'always')",
            "next_tick('30 2 * * *', 'Europe/Berlin', '2031-03-29')",
            "renotify()", "schedule_pause('n')", "schedule_resume('n')", "schedule_run_now('n')", "schedule_remove('n')", "run_schedules()",
            f"dead_acknowledge('{dead}')", f"replay('{dead}')", "replay_many(dry_run => false, again => true)", "sweep()", "sweep_minute()",
            "ensure_partitions()", "retain()",
        ):  # fmt: skip
            await operator.execute(f"SELECT queue_message_{call}".encode())
        user = operator.info.user
    assert [(user,)] == await queue.sql("SELECT acknowledged_by FROM queue_message_dead_ack WHERE note = ''")


async def test_an_operator_signs_with_the_login(queue: Queue, login_of: Callable[[str], str]) -> None:
    """In every function that takes one, a name that the caller gives is recorded next to the login, never in its place."""
    ids = await queue.insert(4, ordering_key="k")
    await queue.sql("SELECT queue_message_archive_now(%s::uuid[], 'failed', 'x', 'x', 'r')", ids[:3])
    async with await psycopg.AsyncConnection.connect(login_of("queue_message_operator"), autocommit=True) as operator:
        for call in (
            "pause('e', by => 'boss')", "key_park('k', by => 'boss')", "key_skip('k', by => 'boss')",
            f"dead_acknowledge('{ids[0]}', 'boss')",
            f"replay('{ids[1]}', by => 'boss')", "replay_many(again => true, dry_run => false, by => E'bo\nss')", "pause('f', by => NULL)",
        ):  # fmt: skip
            await operator.execute(f"SELECT queue_message_{call}".encode())
        user = operator.info.user
    boss, broken = f"{user} (as boss)", f"{user} (as bo ss)"

    assert [("e", boss), ("f", user)] == await queue.sql("SELECT exchange, paused_by FROM queue_message_pause ORDER BY 1")
    assert [(boss,)] == await queue.sql("SELECT held_by FROM queue_message_key_hold")
    assert boss == (await queue.archived(ids[3]))["handled_by"]
    answered = "SELECT acknowledged_by FROM queue_message_dead_ack JOIN queue_message_dead USING (xid, seq) WHERE id = %s"
    assert [boss, boss, broken] == [await queue.value(answered, id_) for id_ in ids[:3]]


async def test_an_export_reads_the_archive_and_reports(queue: Queue, login_of: Callable[[str], str]) -> None:
    """Contents too, and what it has verified."""
    [id_] = await queue.insert(content='{"n": 1}')
    await queue.sql("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'success', NULL, NULL, 'r')", id_)
    async with await psycopg.AsyncConnection.connect(login_of("queue_message_etl"), autocommit=True) as export:
        cursor = await export.execute("SELECT content FROM queue_message_archive WHERE archived_xid >= '0'")
        assert [({"n": 1},)] == await cursor.fetchall()
        for table in ("status", "dead", "dead_ack", "setting"):
            await export.execute(f"TABLE queue_message_{table}".encode())
        await export.execute("INSERT INTO queue_message_export VALUES ('p', 1, 1, '1', NULL)")
        await export.execute("UPDATE queue_message_export SET verified_at = now()")
        await export.execute("SELECT queue_message_export_progress('7'), queue_message_export_lag(), queue_message_days_unverified()")
        await export.execute("TABLE queue_message_export_position")


async def test_nobody_else_may_call_anything(queue: Queue) -> None:
    """No function of the schema is executable by PUBLIC."""
    found = "SELECT proname FROM pg_proc WHERE proname LIKE 'queue%' AND has_function_privilege('public', oid, 'EXECUTE')"
    assert [] == await queue.sql(found)


async def test_definer_functions_pin_their_search_path(queue: Queue) -> None:
    """What runs with the owner's rights resolves no name through the caller's search path."""
    pinned = "array_to_string(proconfig, ' ') LIKE '%search_path=pg_catalog, pg_temp%'"
    found = f"SELECT proname FROM pg_proc WHERE proname LIKE 'queue%' AND prosecdef AND ({pinned}) IS NOT TRUE"
    assert [] == await queue.sql(found)


def test_without_createrole_the_statements_are_printed(say: Callable[[str], None]) -> None:
    """Everything else is done; when somebody has made the roles, migrate grants them what they need."""
    server = devservers.postgres(say=say, private=True)
    with server, psycopg.connect(server.url, autocommit=True) as superuser:
        superuser.execute("CREATE ROLE someone LOGIN PASSWORD 'x'")
        superuser.execute("CREATE DATABASE theirs OWNER someone")
        theirs, said = make_conninfo(server.url, dbname="theirs", user="someone", password="x"), list[str]()
        assert len(migrations()) == len(migrate(theirs, say=said.append))
        [sentence] = said
        _, _, statements = sentence.partition("CREATEROLE run: ")
        statements, _, rest = statements.partition(" Then ")
        assert (7, "run relay migrate again.") == (statements.count("CREATE ROLE"), rest)
        todo = f"let somebody with CREATEROLE run `{statements}`, then run `relay migrate` again as the owner."
        assert f"Roles or their members are missing: {todo}" == check_roles(theirs)

        superuser.execute(statements.encode())
        said.clear()
        lacks = r"INSERT \(consumer, message_id\) on table public.queue_message_received, and \d+ more "
        assert re.match(f"The role queue_message_theirs_public_consumer lacks {lacks}", str(check_roles(theirs)))
        assert ([], []) == (migrate(theirs, say=said.append), said)
        assert check_roles(theirs) is None
        with login(make_conninfo(server.url, dbname="theirs"), "queue_message_producer") as app, psycopg.connect(app) as connection:
            connection.execute("INSERT INTO queue_message (exchange) VALUES ('e')")


def test_a_grant_that_is_missing_is_named(database_url: str) -> None:
    """Whatever of a role's own was taken from it: the schema, a table, a column, a function. The next migration gives it back."""
    looked_for = Renderer("public", {})(read("roles.sql"))
    with psycopg.connect(database_url) as owner:
        owner.execute("REVOKE USAGE ON SCHEMA public FROM PUBLIC")
        grants = owner.execute(
            "SELECT queue_message_role(role), privilege, columns, lower(kind), object FROM queue_message_grants()"
        ).fetchall()
        assert {"schema", "table", "function"} == {kind for *_, kind, _ in grants}
        for role, privilege, columns, kind, place in grants:
            what = f"{privilege} ({columns})" if columns else privilege
            owner.execute(f"SAVEPOINT before; REVOKE {what} ON {kind} {place} FROM {role}".encode())
            assert (role, False, f"{what} on {kind} {place}") in owner.execute(looked_for).fetchall()
            owner.execute("ROLLBACK TO before")
        assert [] == owner.execute(looked_for).fetchall()
        relay = own_role(owner, "relay")
        owner.execute(f"REVOKE UPDATE (lock_token) ON queue_message FROM {relay}".encode())

    columns = "lock_expires_at, lock_token, locked_by, attempts, available_at, last_error"
    lacks = f"The role {relay} lacks UPDATE ({columns}) on table public.queue_message"
    assert f"{lacks}: run `relay migrate` again as the owner." == check_roles(database_url)
    migrate(database_url)
    assert check_roles(database_url) is None


async def test_roles_that_another_migration_makes_meanwhile_are_taken(say: Callable[[str], None]) -> None:
    """Roles belong to the whole server, and the lock of a migration only to its database."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    server = devservers.postgres(say=say, private=True)
    with server, psycopg.connect(server.url) as other, psycopg.connect(server.url, autocommit=True) as watcher:
        other.execute("CREATE ROLE queue_message_postgres_public_etl")
        migration = asyncio.create_task(asyncio.to_thread(migrate, server.url))
        await until(lambda: migration.done() or watcher.execute(waiting).fetchone() != (0,))
        assert not migration.done()
        other.commit()
        assert len(migrations()) == len(await migration)
        granted = watcher.execute(
            "SELECT has_table_privilege('queue_message_postgres_public_etl', 'queue_message_archive', 'SELECT')"
        ).fetchone()
    assert (True,) == granted
