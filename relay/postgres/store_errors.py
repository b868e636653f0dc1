"""Translates a statement's error into a sentence, and finds out whether a row, another session or the server is the cause."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
from psycopg import errors

from relay.errors import StoreError
from relay.postgres.errors import RIGHTS_AND_NAMES, broken_trigger, no_connection, reason, untranslatable

_MIGRATE = "The schema is missing or too old: let its owner run `relay migrate`, or correct RELAY_DATABASE_URL and RELAY_SCHEMA"
_SENTENCES: Mapping[type[psycopg.Error], str] = {
    errors.UndefinedTable: _MIGRATE,
    errors.UndefinedColumn: _MIGRATE,
    errors.UndefinedFunction: _MIGRATE,
    errors.InvalidSchemaName: _MIGRATE,
    errors.InsufficientPrivilege: "The relay's role lacks a permission: run `relay grant relay LOGIN`, or, if it has that, let the "
    "schema's owner run `relay migrate`, which grants again what is missing",
}
IN_PASSING: Mapping[str, str] = {
    "40001": "Another transaction came in between; it is tried again",
    "40P01": "Another transaction and this one waited for each other; it is tried again",
    "55P03": "Another session holds a lock on the queue; it is tried again. If this continues, let the migration, the long transaction "
    "or the VACUUM FULL end that pg_stat_activity shows",
}
"""Advice after a serialization failure, a deadlock or a lock timeout, by SQLSTATE."""
UNPRINTABLE = {"54000", "22P05", "22021"}
"""SQLSTATEs for a value above PostgreSQL's limit of a gigabyte, a character that UTF-8 lacks, and bytes that form no character."""
A_ROWS_OWN = {"22", "23", "P0"}
"""Classes of SQLSTATE that a single row may cause, by its values, a constraint or a trigger that raises an error."""
WAITS_HELP = {"08", "25", "40", "53", "55", "57", "58", *RIGHTS_AND_NAMES}
"""Classes of SQLSTATE whose cause is not the statement itself: connection, transaction, resources, locks, operators, system, rights."""


def store_error(error: psycopg.Error) -> StoreError:
    """Translate a driver's error to one sentence, without the values of rows that DETAIL may quote."""
    primary = reason(error)
    if advice := broken_trigger(error):
        return StoreError(f"{advice} ({primary}).", refused=True, broken_trigger=True)
    if advice := next((text for kind, text in _SENTENCES.items() if isinstance(error, kind)), None):
        return StoreError(f"{advice} ({primary}).")
    if error.sqlstate is None:
        return StoreError(no_connection(error))
    if _names_no_partition(error):
        return StoreError(
            f"The archive has no partition for today: run `SELECT queue_message_ensure_partitions()` ({primary}).", no_partition=True
        )
    advice = untranslatable(error) or IN_PASSING.get(error.sqlstate, f"PostgreSQL refused a statement with SQLSTATE {error.sqlstate}")
    return StoreError(
        f"{advice} ({primary}).",
        row_is_guilty=error.sqlstate[:2] in A_ROWS_OWN,
        in_passing=error.sqlstate in IN_PASSING,
        unprintable=error.sqlstate in UNPRINTABLE,
        refused=error.sqlstate[:2] not in WAITS_HELP,
    )


def _names_no_partition(error: psycopg.Error) -> bool:
    """Whether the error is a check violation that names a table but no constraint: a violation that a trigger raises names no table."""
    return isinstance(error, errors.CheckViolation) and error.diag.constraint_name is None and error.diag.table_name is not None
