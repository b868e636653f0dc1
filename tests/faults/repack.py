"""pg_repack, Debian's, fetched without root: it rewrites a table while the table is in use, and swaps it in under a short lock."""

from __future__ import annotations

import asyncio
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from relay.devservers import Postgres
from relay.devservers.apt import unpack
from relay.devservers.process import Say
from relay.errors import LocalServerError
from tests.support.database.queue import Queue


class Repack:
    """The program and its functions for one private server.

    Raises:
        LocalServerError: Debian has none for this server; the message says why.
    """

    def __init__(self, server: Postgres, say: Say) -> None:
        if server.bin.parent.parent != Path("/usr/lib/postgresql"):
            message = f"Debian's pg_repack does not fit the server of {server.bin}"
            raise LocalServerError(message)
        name = f"postgresql-{server.bin.parent.name}-repack"
        self._tree = unpack(name, family=[name], say=say, finish=lambda fresh, final: None)

    async def install(self, queue: Queue) -> None:
        """Make its functions as its extension would, which only root could put where the server looks."""
        [script] = self._tree.rglob("pg_repack--*.sql")
        [library] = self._tree.rglob("pg_repack.so")
        lines = [line for line in script.read_text().splitlines() if not line.startswith("\\")]
        await queue.sql("\n".join(lines).replace("MODULE_PATHNAME", str(library.with_suffix(""))))

    async def run(self, url: str, table: str) -> None:
        """Rewrite a table; the command waits for sessions that use it, and terminates none."""
        to = conninfo_to_dict(url)
        words = ("-h", to["host"], "-p", to["port"], "-U", to["user"], "-d", to["dbname"], "-t", table, "--no-kill-backend")
        process = await asyncio.create_subprocess_exec(
            next(self._tree.rglob("bin/pg_repack")), *map(str, words), env={"PGPASSWORD": str(to["password"])},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
