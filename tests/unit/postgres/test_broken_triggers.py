"""Whose function raised an error, by the context that PostgreSQL gives, in its languages."""

from __future__ import annotations

import pytest

from relay.postgres.errors import _is_in_a_trigger

THEIRS = [
    "PL/pgSQL function audit() line 1 at SQL statement",
    "PL/pgSQL function shop.audit() line 1 at SQL statement",
    'PL/pgSQL function "Shop"."Audit row"() line 1 at RAISE',
    "PL/pgSQL function public.audit_queue_message() line 1 at SQL statement",
    "PL/pgSQL function audit_row(uuid) line 1 at RAISE\nSQL statement\nPL/pgSQL function audit() line 2 at PERFORM",
    "PL/pgSQL function audit() line 1 at SQL statement\nPL/pgSQL function queue_message_claim_one(xid8,bigint) line 4 at SQL statement",
    "PL/pgSQL-Funktion audit() Zeile 1 bei SQL-Anweisung",
    "fonction PL/pgSQL audit(), ligne 1, instruction SQL",
    "PL/pgSQL関数audit()の1行目 - SQLステートメント",
    'PL/Python function "audit"',
    "PL/Perl function audit",
    'SQL statement "' + "x" * 10_000 + '"\nPL/pgSQL function audit() line 1 at EXECUTE',
]  # fmt: skip
OURS = [
    "",
    "PL/pgSQL function queue_message_check() line 1 at IF",
    "PL/pgSQL function shop.queue_message_hint() line 1 at IF",
    "PL/pgSQL関数queue_message_hint()の1行目",
    "PL/pgSQL function queue_message_claim_one(xid8,bigint) line 4 at SQL statement",
    'SQL function "queue_message_meets_all" statement 1',
    "x" * 10_000 + " PL/pgSQL function audit()",
]


@pytest.mark.parametrize("context", THEIRS)
def test_an_application_s_function_is_known(context: str) -> None:
    """Of a trigger's form, wherever it is in the context."""
    assert _is_in_a_trigger(context)


@pytest.mark.parametrize("context", OURS)
def test_the_queue_s_own_functions_are_none(context: str) -> None:
    """Nor is a line that is too long to be a function's."""
    assert not _is_in_a_trigger(context)
