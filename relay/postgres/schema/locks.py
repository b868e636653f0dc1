"""Takes the locks that pending migrations need, all at once and before anything changes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from psycopg import sql

from relay.postgres.schema.sql_files import Migration, read

OUTSIDE = re.compile(r"\$body\$.*?\$body\$|--[^\n]*", re.DOTALL)
"""Parts of a migration that lock nothing: bodies of functions, and comments."""
CHANGED = re.compile(r"\b(?:TABLE|VIEW|INDEX|EXISTS|ON|UPDATE|DELETE FROM)\s+@schema@\.(\w+)|'(queue_message\w*)',")
"""Matches the table that a statement changes, also by an index or a trigger, and the names in a block's lists of tables."""


def lock_statement(migrations: Iterable[Migration]) -> str:
    """SQL that locks the tables and views that migrations change, except those that the migrations themselves create."""
    found = {found for migration in migrations for found in CHANGED.findall(OUTSIDE.sub("", migration.text))}
    names = sorted({table or literal for table, literal in found})
    return read("locks.sql").replace("@relations@", sql.Literal(names).as_string(None))
