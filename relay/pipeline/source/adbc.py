"""Reads rows as Arrow batches from PostgreSQL's binary COPY, and turns each error into one sentence. Runs in Spark's tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from relay.errors import PipelineError, UnreachableError
from relay.pipeline.source.columns import OUT_OF_BOUNDS
from relay.pipeline.spark.tasks import named
from relay.postgres.errors import veiled
from relay.postgres.session_settings import PIN

BYTES_OF_A_BATCH = 16 << 20
"""About the size of one Arrow batch in bytes. A few batches are in memory, or a few rows if a single row is larger."""


class AdbcConnection:
    """One connection of a task; see `connected`."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def one(self, statement: str) -> Sequence[Any]:
        """The statement's first row."""
        with sentences():
            self._cursor.execute(statement)
            row: Sequence[Any] = self._cursor.fetchone()
            return row

    def batches(self, statement: str) -> Iterator[pa.RecordBatch]:
        """The statement's rows in batches of about BYTES_OF_A_BATCH."""
        with sentences():
            self._cursor.execute(statement)
            reader = self._cursor.fetch_record_batch()
        while True:
            with sentences():
                batch = next(reader, None)
            if batch is None:
                return
            yield batch


@contextmanager
def connected(conninfo: str) -> Iterator[AdbcConnection]:
    """A connection for one task.

    Raises:
        UnreachableError: PostgreSQL does not answer, or its connection was lost while rows were read.
        PipelineError: PostgreSQL refused a statement.
    """
    # Imported in the task, because a native driver cannot be sent to a task.
    from adbc_driver_postgresql import StatementOptions, dbapi  # type: ignore[import-untyped]  # noqa: PLC0415

    with sentences():
        connection = dbapi.connect(named(conninfo), autocommit=True)
    with connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BYTES_OF_A_BATCH)})
        opened = AdbcConnection(cursor)
        opened.one(PIN.decode())
        yield opened


@contextmanager
def sentences() -> Iterator[None]:
    """Turn each of ADBC's errors into one sentence. During the reading of rows, Arrow raises an OSError without a SQLSTATE."""
    from adbc_driver_manager import Error  # noqa: PLC0415 - as above

    try:
        yield
    except (Error, OSError, pa.ArrowException) as error:
        raise sentence(error) from error


def sentence(error: Exception) -> PipelineError:
    """An error in one sentence, without passwords, without the statement, and without DETAIL, which quotes rows."""
    state = getattr(error, "sqlstate", None) or ""
    words = " ".join(re.split(r"DETAIL|CONTEXT|Query was", str(error))[0].split())
    spoken = _SEVERITY.search(str(error))
    if OUT_OF_BOUNDS in words:
        row = re.search(rf"{re.escape(OUT_OF_BOUNDS)}(\d+,-?\d+)", words)
        return PipelineError(
            f"A time of the archive's row (xid, seq) ({row[1] if row else '?'}) is infinite or outside the years 1 to 9999: "
            "let the archive's owner correct the row, and run this again."
        )
    words = veiled(words, state) if state else _guessed(words, spoken[1] if spoken else "")
    words = re.sub(r"://\S*@|password\s*=\s*('[^']*'|\S+)", "***", words)[:300].rstrip(".")
    if state == "42501":
        return PipelineError(f"The pipeline's login lacks a permission: let the schema's owner run `relay grant etl LOGIN` ({words}).")
    if state.startswith(("57P", "08", "53300")) or (not state and (not spoken or spoken[1] == "FATAL")):
        return UnreachableError(f"PostgreSQL does not answer: check that it runs and RELAY_PIPELINE_DATABASE_URL ({words}).")
    return PipelineError(f"PostgreSQL refused to give rows: run this again, and see its log if that does not help ({words}).")


_SEVERITY = re.compile(r"\]: ([^\s:]+(?: [^\s:]+)*):  ")
"""The severity of a server's error, in the server's language. Only a server's message has two spaces there, libpq's own messages do not."""


def _guessed(words: str, severity: str) -> str:
    """The text of an error without a SQLSTATE.

    It may quote data, so an English text is cut at the first quote, and a text in another language is left out.
    """
    return re.sub(r'".*', '"…"', words) if severity in {"", "ERROR", "FATAL"} else "in its own language"
