"""A standby of a private PostgreSQL, to be promoted."""

from __future__ import annotations

import subprocess
from typing import ClassVar

import psycopg

from relay.devservers import Postgres
from relay.devservers.process import Keeper, plain_environment, poll


class Standby(Postgres):
    """A copy of the primary that follows it until `promote`; runs from `with` on."""

    def __init__(self, primary: Postgres) -> None:
        super().__init__(primary.bin)
        self._password = primary._password
        self._primary = primary.url

    def promote(self) -> None:
        """Take everything that the primary has committed, then become a primary of the next timeline."""
        self.catch_up()
        self._promote()

    def catch_up(self) -> None:
        """Take everything that the primary has committed."""
        with psycopg.connect(self._primary) as primary, psycopg.connect(self.url, autocommit=True) as here:
            [lsn] = primary.execute("SELECT pg_current_wal_lsn()").fetchone() or [None]
            assert poll(lambda: here.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [lsn]).fetchone() == (True,), seconds=30)

    def lag(self) -> None:
        """Take nothing more from the primary. To pause the replay would not do: a promotion replays what has come."""
        with psycopg.connect(self.url, autocommit=True) as here:
            here.execute("ALTER SYSTEM SET primary_conninfo = ''")
            here.execute("SELECT pg_reload_conf()")
            assert poll(lambda: here.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone() == (0,), seconds=30)

    def take_over(self, port: int) -> None:
        """Become a primary with what is here, at the port of the one that is gone."""
        self._promote()
        self.stop()
        self.port = port
        self.start()

    def _promote(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as here:
            assert here.execute("SELECT pg_promote()").fetchone() == (True,)

    _follows: ClassVar[tuple[str, ...]] = ("-R",)

    def _prepare(self, keeper: Keeper) -> None:
        command = [str(self.bin / "pg_basebackup"), "-D", str(keeper.folder / "data"), "-d", self._primary, *self._follows]
        subprocess.run(
            [*self._unprivileged(keeper.folder), *command, "-X", "stream", "--checkpoint=fast", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=keeper.folder,
            env=plain_environment(keeper.folder),
        )


class Copy(Standby):
    """A copy of the primary as it was, a primary too: of the same cluster and timeline, with a history of its own from then on."""

    _follows: ClassVar[tuple[str, ...]] = ()
