"""What every role may do, as the catalogue has it and as docs/grants.md says it: `python -m tests.support.pages.grants` writes the page."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg

from relay import devservers
from relay.postgres.schema.migrate import migrate
from tests import ROOT
from tests.support.pages.doc_tables import put
from tests.support.servers.logins import KINDS, own_role

SCHEMA = "outbox"
ROLES = KINDS
_ALL = "all"
"""The page's word for what every role has."""
_PAGE = ROOT / "docs" / "grants.md"
_FOUND = """
WITH place AS (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s), given AS (
    SELECT n.nspname::text AS object, '' AS columns, acl.* FROM pg_namespace n, aclexplode(n.nspacl) acl WHERE n.oid IN (TABLE place)
    UNION ALL
    SELECT c.relname, '', acl.* FROM pg_class c, aclexplode(c.relacl) acl WHERE c.relnamespace IN (TABLE place)
    UNION ALL
    SELECT c.relname, a.attname, acl.* FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid, aclexplode(a.attacl) acl
    WHERE c.relnamespace IN (TABLE place)
    UNION ALL
    SELECT p.proname || '()', '', acl.* FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) acl
    WHERE p.pronamespace IN (TABLE place)
    UNION ALL
    SELECT d.defaclobjtype::text, '', acl.* FROM pg_default_acl d, aclexplode(d.defaclacl) acl
)
SELECT coalesce(r.rolname::text, 'PUBLIC'), privilege_type || CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END, object, columns
FROM given LEFT JOIN pg_roles r ON r.oid = grantee WHERE grantee <> grantor
"""
"""Everything that somebody other than the owner was given in the schema."""


class Grant(NamedTuple):
    """One privilege on the schema, a table, a column (`table.column`) or a function (`name()`)."""

    role: str
    privilege: str
    object: str


def found(connection: psycopg.Connection[Any]) -> set[Grant]:
    """What the catalogue has for the schema `outbox`, which represents any schema; its own roles by their kinds."""
    kinds = {own_role(connection, kind, SCHEMA): kind for kind in KINDS}
    rows = connection.execute(_FOUND.encode(), {"schema": SCHEMA}).fetchall()
    return {
        Grant(kinds.get(role, role), privilege, f"{name}.{column}" if column else name.replace(SCHEMA, "the schema"))
        for role, privilege, name, column in rows
    }


def documented() -> set[Grant]:
    """What the page says."""
    rows = re.findall(r"^\| `(\w+)` \| ([A-Z ]+) \| (.*) \|$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        Grant(each, privilege, one) for role, privilege, on in rows for one in _objects(on) for each in (ROLES if role == _ALL else [role])
    }


def table(grants: set[Grant]) -> str:
    """Grants as the page has them: a line for each role and privilege, columns behind their table."""
    lines: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    common = {Grant(_ALL, *what) for _, *what in grants if all(Grant(role, *what) in grants for role in ROLES)}
    for role, privilege, on in sorted(common | {one for one in grants if one._replace(role=_ALL) not in common}):
        name, _, column = on.partition(".")
        lines[role, privilege][name] += [column] if column else []
    rows = (
        f"| `{role}` | {privilege} | {', '.join(_shown(name, columns) for name, columns in on.items())} |"
        for (role, privilege), on in lines.items()
    )
    return "\n".join(["| role | may | on |", "|---|---|---|", *rows])


def _shown(name: str, columns: list[str]) -> str:
    code = name if name == "the schema" else f"`{name}`"
    return f"{code} ({', '.join(f'`{column}`' for column in columns)})" if columns else code


def _objects(on: str) -> list[str]:
    """The objects of one line, a column with its table."""
    made = []
    for name, columns in re.findall(r"(the schema|`\w+(?:\(\))?`)(?: \(([^)]*)\))?", on):
        bare = name.strip("`")
        made += [f"{bare}.{column}" for column in re.findall(r"\w+", columns)] if columns else [bare]
    return made


@contextmanager
def fresh_schema() -> Iterator[psycopg.Connection[Any]]:
    """A connection to a server of its own, which has the schema and nothing else."""
    with devservers.postgres(say=lambda _line: None, private=True) as server:
        migrate(server.url, schema=SCHEMA)
        with psycopg.connect(server.url) as connection:
            yield connection


def write() -> None:
    """Put the table of a fresh schema into the page."""
    with fresh_schema() as connection:
        put("docs/grants.md", "grants", table(found(connection)))


if __name__ == "__main__":
    write()
