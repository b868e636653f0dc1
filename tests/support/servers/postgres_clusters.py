"""Private clusters with transaction ids of their own, and dumps from one to the other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from relay.devservers import Postgres
from relay.devservers.process import plain_environment
from relay.postgres.schema.migrate import migrate
from tests.support.servers.shared import Databases

_NAMED_ROLES = """
    SELECT DISTINCT r.rolname FROM pg_shdepend s JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database()
        JOIN pg_roles r ON r.oid = s.refobjid WHERE s.refclassid = 'pg_authid'::regclass AND s.deptype = 'a'
"""


class Cluster(Postgres):
    """A private PostgreSQL, and dumps that are restored there."""

    @property
    def databases(self) -> Databases:
        """Makes databases here."""
        return Databases(self.url)

    def new(self, *, schema: bool = True) -> str:
        """URL of a new database, with the schema or empty."""
        url = self.databases.url(self.databases.create())
        if schema:
            migrate(url)
        return url

    def raise_ids(self, epoch: int) -> None:
        """Let transaction ids continue from so many times 2^32, as after a long life."""
        self.stop()
        self.run("pg_resetwal", "-e", str(epoch), "-D", str(self.folder / "data"))
        self.start()

    def restore(self, source: str, target: str, *words: str) -> None:
        """Dump a database of any cluster and restore it here, with the roles that its privileges name."""
        with psycopg.connect(source) as there, psycopg.connect(target, autocommit=True) as here:
            for (role,) in there.execute(_NAMED_ROLES).fetchall():
                if not here.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchall():
                    here.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
        dump = self.run("pg_dump", "-Fc", *(word for word in words if word == "--data-only"), "-d", source)
        self.run("pg_restore", "-e", *words, "-d", target, dump=dump)

    def run(self, program: str, *words: str, dump: bytes | None = None) -> bytes:
        """Run one of PostgreSQL's programs; return what it printed."""
        done = subprocess.run(
            [*self._unprivileged(self.folder), str(self.bin / program), *words],
            input=dump,
            check=False,
            capture_output=True,
            cwd=self.folder,
            env=plain_environment(self.folder),
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


@contextmanager
def two_clusters(*settings: str) -> Iterator[tuple[Cluster, Cluster]]:
    """Two clusters: the first has far higher transaction ids."""
    with Cluster(settings=settings) as high, Cluster(settings=settings) as low:
        for cluster in (high, low):
            migrate(cluster.url)
        high.raise_ids(1)
        yield high, low
