"""Every door of an outbox, tried by a login of each role; `python -m tests.support.pages.borders` writes the table of SECURITY.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import errors, sql

from relay import devservers
from relay.devservers.borrowed import database_at
from relay.postgres.schema.migrate import migrate
from tests import ROOT
from tests.support.pages.grants import ROLES
from tests.support.servers.logins import login

SCHEMA: Final = "one"
OTHER_SCHEMA: Final = "two"
OTHER_DATABASE: Final = "borders_far"
OPEN_SCHEMA: Final = "public"
"""Every login of a database may use it."""
NO_ROLE: Final = "no role"
"""A login that was granted nothing and may connect."""
WHO: Final = (*(role.removeprefix("queue_message_") for role in ROLES), NO_ROLE)
PLACES: Final = ("own outbox", "other schema", "schema public", "other database")
WAITING: Final = "00000000-0000-7000-8000-000000000001"
DEAD: Final = "00000000-0000-7000-8000-000000000002"
_BEGIN, _END = "<!-- borders -->\n", "<!-- /borders -->"
_PAGE = ROOT / "SECURITY.md"


class Door(NamedTuple):
    """One thing to try: what the table calls it, and the statement with the schema as `{0}`."""

    name: str
    statement: str
    beside: str | None = None
    """What a second session of the same login does before, in a transaction that stays open: then the door is to wait for its lock."""


DOORS: Final = (
    Door("insert a message", "INSERT INTO {0}.queue_message (exchange) VALUES ('e')"),
    Door("insert a message under a key", "INSERT INTO {0}.queue_message_keyed (exchange, dedup_key) VALUES ('e', 'k')"),
    Door("insert a message as if it was locked", "INSERT INTO {0}.queue_message (exchange, attempts, locked_by) VALUES ('e', 1, 1)"),
    Door("see the ids of waiting messages", "SELECT id FROM {0}.queue_message"),
    Door("read the contents of waiting messages", "SELECT content, body FROM {0}.queue_message"),
    Door("read a waiting message under a key", "SELECT content FROM {0}.queue_message_keyed_row"),
    Door("lock a waiting message (`FOR UPDATE`)", "SELECT id FROM {0}.queue_message FOR UPDATE"),
    Door("change the lock of a message", "UPDATE {0}.queue_message SET lock_expires_at = lock_expires_at"),
    Door("change the content of a message", "UPDATE {0}.queue_message SET content = content"),
    Door("delete a waiting message", "DELETE FROM {0}.queue_message"),
    Door("read the contents of the archive", "SELECT content FROM {0}.queue_message_archive"),
    Door(
        "add to the archive",
        "INSERT INTO {0}.queue_message_archive (id, exchange, result) SELECT gen_random_uuid(), 'e', 'success' WHERE false",
    ),
    Door("change the archive", "UPDATE {0}.queue_message_archive SET result = result WHERE false"),
    Door("delete from the archive", "DELETE FROM {0}.queue_message_archive WHERE false"),
    Door("see where a message is, without its content", "SELECT * FROM {0}.queue_message_state"),
    Door("cancel a message", f"SELECT {{0}}.queue_message_cancel('{WAITING}')"),
    Door("replay an archived message", f"SELECT {{0}}.queue_message_replay('{DEAD}')"),
    Door(
        "enqueue by replay from the lake",
        "SELECT * FROM {0}.queue_message_replay_rows('j', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}')",
    ),
    Door(
        "erase an archived message's content",
        f"SELECT {{0}}.queue_message_erase('{{0}}.queue_message_dead', ARRAY['{DEAD}'::uuid], dry_run => false)",
    ),
    Door("acknowledge a dead message", f"SELECT {{0}}.queue_message_dead_acknowledge('{DEAD}')"),
    Door("pause an exchange", "SELECT {0}.queue_message_pause('e')"),
    Door("limit an exchange", "SELECT {0}.queue_message_limit('e', 1)"),
    Door("park or skip an ordering key", "SELECT {0}.queue_message_key_park('k'), {0}.queue_message_key_skip('k')"),
    Door("set policy", "SELECT {0}.queue_message_config_set('max_attempts', '3')"),
    Door("read policy", "SELECT * FROM {0}.queue_message_setting"),
    Door("write policy past its function", "UPDATE {0}.queue_message_setting SET value = value"),
    Door(
        "carry out maintenance (fold, sweep, retention)",
        "SELECT {0}.queue_message_fold(), {0}.queue_message_sweep(), {0}.queue_message_retain()",
    ),
    Door("register as a relay", "INSERT INTO {0}.queue_message_relay (name, version, host, pid) VALUES ('n', 'v', 'h', 1)"),
    Door("take a lane of ordered messages", "UPDATE {0}.queue_message_lane SET epoch = epoch"),
    Door("answer a request row", f"SELECT {{0}}.queue_message_answer('{WAITING}', '{DEAD}', '{{{{}}}}')"),
    Door("answer a request row past its function", "DELETE FROM {0}.queue_message_request_row"),
    Door("lock the turn of a maintenance task", "SELECT task FROM {0}.queue_message_turn FOR UPDATE"),
    Door("mark a message as received", f"INSERT INTO {{0}}.queue_message_received (consumer, message_id) VALUES ('c', '{WAITING}')"),
    Door("see whose marks there are", "SELECT consumer FROM {0}.queue_message_received"),
    Door("remove a mark", "DELETE FROM {0}.queue_message_received"),
    Door("add to the dead side of an inbox", "SELECT {0}.queue_message_reject_delivery('q', 'i', 'e', 'r', '', 'c', 's', 'h')"),
    Door("call a day exported and verified", "INSERT INTO {0}.queue_message_export SELECT * FROM {0}.queue_message_export WHERE false"),
    Door("write numbers of the pipeline", "DELETE FROM {0}.queue_message_stats_day"),
    Door("add a schedule (needs `operator` and `producer`)", "SELECT {0}.queue_message_schedule_add('s', '* * * * *', 'e')"),
    Door("read message contracts", "SELECT * FROM {0}.queue_message_contract"),
    Door("remove a message contract", "SELECT {0}.queue_message_contract_remove('e', 'r', 1)"),
    Door("read the audit", "SELECT * FROM {0}.queue_message_audit"),
    Door("change the audit", "DELETE FROM {0}.queue_message_audit"),
    Door("admit a login", "SELECT {0}.queue_message_grant('queue_message_relay', 'public')"),
    Door("make itself a member of another role", "SELECT {0}.queue_message_admit('relay', current_user)"),
    Door("give the outbox's roles other names", "SELECT {0}.queue_message_name_roles('mine')"),
    Door("see which logins reach the outbox", "SELECT * FROM {0}.queue_message_logins()"),
    Door("make a table in the schema", "CREATE TABLE {0}.mine ()"),
    Door("take the advisory lock of the gate", "SELECT pg_try_advisory_lock(hashtextextended('queue_message gate of {1}', 0))"),
    Door("notify and listen on the channels", "NOTIFY queue_message_notify; LISTEN queue_message_notify"),
    Door(
        "hold up all who use the queue, for as long as it likes",
        "CREATE RULE mine AS ON INSERT TO {0}.queue_message DO INSTEAD NOTHING",
        beside="PREPARE mine AS DELETE FROM {0}.queue_message",
    ),
    Door(
        "hold up all who connect to the server, for as long as it likes",
        "CREATE RULE mine AS ON INSERT TO pg_catalog.pg_authid DO INSTEAD NOTHING",
        beside="SELECT FROM pg_catalog.pg_roles",
    ),
)


class Outboxes(NamedTuple):
    """Four outboxes of one server."""

    url: str
    """A database with the schemas `SCHEMA`, `OTHER_SCHEMA` and `OPEN_SCHEMA`."""
    far_url: str
    """Another database with the schema `SCHEMA`."""

    def place(self, name: str, url: str) -> tuple[str, str]:
        """The connection string of a login at one of `PLACES`, and the schema there."""
        if name == "other database":
            return _elsewhere(url, self.far_url), SCHEMA
        return url, {"other schema": OTHER_SCHEMA, "schema public": OPEN_SCHEMA}.get(name, SCHEMA)


def _elsewhere(url: str, far_url: str) -> str:
    """The same login at another database of the server."""
    found = psycopg.conninfo.conninfo_to_dict(far_url)
    return psycopg.conninfo.make_conninfo(url, dbname=str(found["dbname"]))


def furnish(url: str, far_url: str) -> Outboxes:
    """Make the four outboxes in two empty databases, each with a waiting and a dead message."""
    for place, schema in ((url, SCHEMA), (url, OTHER_SCHEMA), (url, OPEN_SCHEMA), (far_url, SCHEMA)):
        migrate(place, schema=schema)
        with psycopg.connect(place, autocommit=True) as owner:
            for id_ in (WAITING, DEAD):
                owner.execute(_in(schema, "INSERT INTO {0}.queue_message (id, exchange, ordering_key) VALUES (%s, 'e', 'k')"), (id_,))
            owner.execute(_in(schema, "SELECT {0}.queue_message_archive_now(ARRAY[%s::uuid], 'failed', 'c', 's', 'h')"), (DEAD,))
    return Outboxes(url, far_url)


def _in(schema: str, statement: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(schema), sql.SQL(schema))


@contextmanager
def member(outboxes: Outboxes, who: str) -> Iterator[str]:
    """A login with a role of the outbox `SCHEMA`, or with none."""
    if who == NO_ROLE:
        with login(outboxes.url) as url:
            yield url
        return
    with login(outboxes.url, f"queue_message_{who}", schema=SCHEMA) as url:
        yield url


def passed(url: str, schema: str) -> set[str]:
    """Names of the doors that a login gets through; what it does there is undone."""
    with psycopg.connect(url, autocommit=True) as connection, psycopg.connect(url, autocommit=True) as other:
        connection.execute("SET lock_timeout = '100ms'")
        return {door.name for door in DOORS if _may(connection, other, schema, door)}


def _may(connection: psycopg.Connection[Any], other: psycopg.Connection[Any], schema: str, door: Door) -> bool:
    try:
        with connection.transaction(force_rollback=True), other.transaction(force_rollback=True):
            if door.beside:
                other.execute(_in(schema, door.beside))
            connection.execute(_in(schema, door.statement))
    except errors.InsufficientPrivilege:
        return False
    except errors.LockNotAvailable:
        return True
    return True


def found(outboxes: Outboxes, who: str) -> dict[str, set[str]]:
    """Doors that a login of the outbox `SCHEMA` gets through, by place."""
    with member(outboxes, who) as url:
        return {name: passed(*outboxes.place(name, url)) for name in PLACES}


def table(outboxes: Outboxes) -> str:
    """The block of the page."""
    by_who = {who: found(outboxes, who) for who in WHO}
    rows = [
        "| door | who may, in their own outbox | in another schema | in the schema `public` | in another database |",
        "|---|---|---|---|---|",
    ]
    for door in DOORS:
        cells = [_cell([who for who in WHO if door.name in by_who[who][place]]) for place in PLACES]
        rows.append(f"| {' | '.join([door.name, *cells])} |")
    return "\n".join(rows)


def _cell(who: list[str]) -> str:
    if NO_ROLE in who:
        assert who == [*WHO], "a role takes nothing away"
        return "any login"
    return ", ".join(f"`{one}`" for one in who) or "no login"


def documented(who: str) -> dict[str, set[str]]:
    """What the page says of a login."""
    block = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)[2].partition(_END)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]]
    return {
        place: {row[0] for row in rows if row[number] == "any login" or who in re.findall(r"`(\w+)`", row[number])}
        for number, place in enumerate(PLACES, 1)
    }


def write() -> None:
    """Put the table of four fresh outboxes into the page."""
    with devservers.postgres(say=lambda _line: None, private=True) as server:
        with psycopg.connect(server.url, autocommit=True) as owner:
            owner.execute(f"CREATE DATABASE {OTHER_DATABASE}".encode())
        made = table(furnish(server.url, database_at(server.url, OTHER_DATABASE)))
    before, begin, rest = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    _PAGE.write_text(f"{before}{begin}{made}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    write()
