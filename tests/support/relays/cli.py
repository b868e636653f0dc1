"""Fixture: the command `relay` against this test's own database, in this process or as one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

from relay.cli.main import app


class Cli:
    """Runs commands.

    Args:
        url: the database that the settings name.
        folder: where commands are started, without an `.env`.

    """

    def __init__(self, url: str, folder: Path) -> None:
        self.env = {"RELAY_DATABASE_URL": url}
        self.stderr = ""
        self._folder = folder
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *args: str, code: int = 0, stdin: str | bytes | None = None, **env: str) -> str:
        """Run a command, expect its exit code and nothing like a traceback; return its standard output, keep the other."""
        result = CliRunner().invoke(app, list(args), input=stdin, env={**self.env, **env})
        self.stderr = result.stderr
        assert code == result.exit_code, (result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.output
        return result.stdout

    def json(self, *args: str, code: int = 0) -> Any:
        """Run a command with --json and return what it printed."""
        return json.loads(self(*args, "--json", code=code))

    def refused(self, *args: str, code: int, stdin: str | bytes | None = None, **env: str) -> str:
        """Run a command that must fail with the code, and return its sentence: one line of standard error, nothing on the output."""
        assert "" == self(*args, code=code, stdin=stdin, **env)
        sentence = self.stderr.removesuffix("\n")
        assert "\n" not in sentence
        assert sentence.endswith((".", "?", "`"))
        return sentence

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start a command as a process of its own; it is killed in the end if it still runs."""
        process = subprocess.Popen(
            [sys.executable, "-c", "from relay.cli.main import main; main()", *args], cwd=self._folder, env=self.env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what still runs."""
        for process in self._started:
            process.kill()
            process.wait()
            # Not communicate: a command that the process had started may hold the pipes for longer.
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def cli(database_url: str, tmp_path: Path) -> Iterator[Cli]:
    """The command against a fresh database with the schema."""
    made = Cli(database_url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def empty_cli(empty_database_url: str, tmp_path: Path) -> Iterator[Cli]:
    """The command against a fresh database without the schema."""
    made = Cli(empty_database_url, tmp_path)
    yield made
    made.close()


class Seeded:
    """A database seen through SQL, with messages in any state and in the archive."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, none for one without a result."""
        cursor = self._connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def named(self, statement: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """The same with parameters by name."""
        cursor = self._connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def insert(self, **columns: object) -> str:
        """Insert one message, by default for the exchange `orders`; return its id."""
        columns = {"exchange": "orders", **columns}
        statement = sql.SQL("INSERT INTO queue_message ({}) VALUES ({}) RETURNING id::text").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(map(sql.Literal, columns.values()))
        )
        [(id_,)] = self._connection.execute(statement).fetchall()
        return str(id_)

    def archive(self, result: str, code: str | None = None, detail: str | None = None, **columns: object) -> str:
        """Insert one message and archive it with a result; return its id."""
        id_ = self.insert(**columns)
        self.run("SELECT queue_message_archive_now(ARRAY[%s::uuid], %s, %s, %s, 'relay-1')", id_, result, code, detail)
        return id_

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


@pytest.fixture
def seeded(database_url: str) -> Iterator[Seeded]:
    """This test's database through SQL."""
    made = Seeded(database_url)
    yield made
    made.close()
