"""Counters around a piece of work: CPU of each party, WAL and updates in place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from relay.devservers.process import family

TICK = 1e6 / os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Microseconds of CPU that the threads of a process have used (`/proc/PID/task/*/schedstat`, in nanoseconds)."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1e3


def cpu_of_all(root: int) -> float:
    """Microseconds of a process and its descendants, those included that have ended."""
    fields = Path(f"/proc/{root}/stat").read_text().rpartition(")")[2].split()
    return sum(map(cpu, family(root))) + (int(fields[13]) + int(fields[14])) * TICK


def resident(pid: int) -> float:
    """Megabytes (MiB) in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@dataclass(frozen=True)
class Counted:
    """Counters at one moment."""

    relays: float
    postgres: float
    broker: float
    lsn: str

    @classmethod
    def now(cls, connection: psycopg.Connection[Any], *, relays: Sequence[int], postgres: int, broker: int) -> Counted:
        """Read them all; process ids of the relays, the postmaster and the Erlang machine."""
        row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        return cls(sum(map(cpu, relays)), cpu_of_all(postgres), cpu(broker), str(row[0]))


def wal_between(connection: psycopg.Connection[Any], first: str, last: str) -> tuple[float, float]:
    """Bytes of WAL records, and of full-page images among them; without the extension pg_walinspect the images are taken for none."""
    known = connection.execute("SELECT to_regproc('pg_get_wal_stats') IS NOT NULL").fetchone()
    if known == (True,):
        row = connection.execute(
            "SELECT sum(combined_size)::float8, sum(fpi_size)::float8 FROM pg_get_wal_stats(%s, %s)", [first, last]
        ).fetchone()
    else:
        row = connection.execute("SELECT pg_wal_lsn_diff(%s, %s)::float8, 0::float8", [last, first]).fetchone()
    assert row is not None
    return float(row[0]), float(row[1])


def updates_of(url: str) -> tuple[int, int]:
    """Updates of queue_message, and how many of them stayed on their page (HOT); sessions report theirs within some seconds."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'queue_message'").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])
