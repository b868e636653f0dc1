"""What a task says of an error that PostgreSQL, its driver or Arrow raised."""

from __future__ import annotations

import pytest

from relay.errors import PipelineError, UnreachableError
from relay.pipeline.source import adbc
from relay.pipeline.source.database import Database

HEAD = "[libpq] Execution error [PGRES_FATAL_ERROR]: "


@pytest.mark.parametrize("first", [1, 50_000])
def test_a_value_that_postgresql_quotes_while_rows_travel_is_not_told(database: Database, first: int) -> None:
    """The driver has no SQLSTATE for it then, as it has when the statement begins."""
    statement = f"SELECT (CASE WHEN n < {first} THEN '1' ELSE 'secret' END)::int FROM generate_series(1, 50000) AS n"
    with pytest.raises(PipelineError) as told, adbc.connected(database.complete_conninfo("test")) as connection:
        list(connection.batches(statement))
    assert str(told.value).endswith('ERROR: invalid input syntax for type integer: "…").')


@pytest.mark.parametrize(
    "words",
    [
        "FEHLER:  ungültige Eingabesyntax für Typ integer: »secret«\n",
        "ERREUR:  syntaxe en entrée invalide pour le type integer : « secret »\n",
        "ОШИБКА:  неверный синтаксис для типа integer: «secret»\n",
        "치명적 오류:  integer 자료형 대한 잘못된 입력: 'secret'\n",
        'ERROR:  invalid byte sequence for encoding "UTF8": 0x73 secret\n',
    ],
)
def test_no_language_s_quotation_marks_hide_a_value_from_the_veil(words: str) -> None:
    """And a server that refuses is one that answers."""
    told = adbc.sentence(OSError(HEAD + words))
    assert "secret" not in str(told)
    assert type(told) is PipelineError


@pytest.mark.parametrize(
    "words", ["server closed the connection unexpectedly\n\tThis probably means …", "FATAL:  terminating connection due to …\n"]
)
def test_a_server_that_went_away_is_told_in_its_words(words: str) -> None:
    """Another run may find it again."""
    told = adbc.sentence(OSError(HEAD + words))
    assert type(told) is UnreachableError
    assert " ".join(words.split()) in str(told)
