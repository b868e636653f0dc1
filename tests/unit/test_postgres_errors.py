"""What is told of PostgreSQL's words."""

from __future__ import annotations

import pytest

from relay.postgres.errors import veiled


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ('invalid input syntax for type integer: "a "secret" value"', 'invalid input syntax for type integer: "…"'),
        ('value "secret" is out of range for type integer', 'value "…" is out of range for type integer'),
        ("integer out of range", "integer out of range"),
    ],
)
def test_a_data_exception_is_told_without_the_value_that_it_quotes(message: str, told: str) -> None:
    """It may be of a payload, which a constraint or a policy of the schema's owner casts."""
    assert told == veiled(message, "22P02")


@pytest.mark.parametrize("sqlstate", ["23514", "42P01", None])
def test_any_other_error_is_told_with_the_names_that_it_quotes(sqlstate: str | None) -> None:
    """Relations and constraints, which is what to look for."""
    message = 'new row for relation "queue_message_archive" violates check constraint "mine"'
    assert message == veiled(message, sqlstate)
