"""The locks that pending migrations take, all at once and before anything changes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from psycopg import sql

from relay.postgres.schema.sql_files import Migration, read

UNHELD = re.compile(r"\$body\$.*?\$body\$|--[^\n]*", re.DOTALL)
"""Parts of a migration that lock nothing: bodies of functions, and comments."""
NAME = re.compile(r"\bqueue_message\w*")


def lock(migrations: Iterable[Migration]) -> str:
    """SQL that locks the tables and views which migrations name outside the bodies of functions; those that they make are not there yet."""
    names = sorted({name for migration in migrations for name in NAME.findall(UNHELD.sub("", migration.text))})
    return read("locks.sql").replace("@relations@", sql.Literal(names).as_string(None))
