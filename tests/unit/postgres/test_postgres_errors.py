"""What is reported of PostgreSQL's words."""

from __future__ import annotations

import pytest

from relay.postgres.errors import veiled


@pytest.mark.parametrize(
    "message",
    [
        'invalid input syntax for type integer: "a "secret" value"',
        "ungültige Eingabesyntax für Typ integer: »secret«",
        "syntaxe en entrée invalide pour le type integer : « secret »",
        "型integerの入力構文が不正です: 'secret'",
        "the owner's own words: secret",
    ],
)
def test_a_data_exception_is_told_by_its_name_alone(message: str) -> None:
    """Its words may quote a payload, which a constraint or a policy of the schema's owner casts, in any language's quotation marks."""
    assert "a value is refused: invalid text representation, SQLSTATE 22P02" == veiled(message, "22P02")


def test_a_data_exception_that_somebody_made_up_is_told_by_its_class() -> None:
    """Nothing is known of it but the number."""
    assert "a value is refused: data exception, SQLSTATE 22ZZZ" == veiled("secret", "22ZZZ")


@pytest.mark.parametrize("sqlstate", ["23514", "42P01", None])
def test_any_other_error_is_told_with_the_names_that_it_quotes(sqlstate: str | None) -> None:
    """Relations and constraints, which is what to look for."""
    message = 'new row for relation "queue_message_archive" violates check constraint "mine"'
    assert message == veiled(message, sqlstate)
