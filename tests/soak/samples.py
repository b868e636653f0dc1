"""What a soak looks at every few seconds: the relays' processes, both servers, the queue table, and what a claim costs."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from prometheus_client.parser import text_string_to_metric_families

from tests.soak.fleet import Life
from tests.soak.stage import Stage

Sample = dict[str, Any]
Buckets = Mapping[float, float]
"""How often something took at most so many seconds."""
CONTROL_EVERY = 0.2
"""Seconds between two runs of the control statement."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ESTABLISHED = "01"
_DATABASE = """
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay/%%') AS postgres_connections,
        pg_table_size('queue_message') AS table_bytes, pg_indexes_size('queue_message') AS index_bytes,
        (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'queue_message'::regclass) AS dead_rows,
        (SELECT count(*) FROM queue_message) AS rows
"""
_CLAIMS = """
    SELECT queryid, calls, shared_blks_hit + shared_blks_read FROM pg_stat_statements
    WHERE query LIKE '%%chosen AS MATERIALIZED%%' AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Told(NamedTuple):
    """What a relay's metrics say, since its start."""

    buckets: Buckets
    claimed: float
    """Messages."""


class Control:
    """A small write through the relays' own way to PostgreSQL: what it takes is what the machine and the network are worth just now."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._took: list[float] = []

    async def run(self) -> None:
        """Run the statement again and again until cancelled; a lost database is waited for."""
        await self._stage.sql("CREATE TABLE soak_control AS SELECT 1 AS id, 0::bigint AS runs")
        url = self._stage.towards_postgres.url(self._stage.database)
        while True:
            with suppress(psycopg.OperationalError, TimeoutError):
                async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=5) as connection:
                    await self._measure(connection)
            await asyncio.sleep(CONTROL_EVERY)

    def take(self) -> list[float]:
        """Seconds of each run since the last call."""
        taken, self._took = sorted(self._took), []
        return taken

    async def _measure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        while True:
            async with asyncio.timeout(15):
                began = time.perf_counter()
                await connection.execute("UPDATE soak_control SET runs = runs + 1 WHERE id = 1", prepare=True)
                self._took.append(time.perf_counter() - began)
            await asyncio.sleep(CONTROL_EVERY)


class Sampler:
    """Takes samples; a counter that only grows is reported as its growth since the sample before."""

    def __init__(self, stage: Stage, control: Control) -> None:
        self._stage, self._control = stage, control
        self._claims: dict[int, tuple[int, int]] = {}
        self._told: dict[int, Told] = {}

    async def take(self) -> Sample:
        """Look at everything that can be seen now; what cannot is left out."""
        sample: Sample = {"harness_rss": rss(os.getpid()), "machine_load": os.getloadavg()[0]}
        sample |= {"rabbitmq_connections": connections_to(self._stage.broker.port)}
        for name, life in self._stage.fleet.lives.items():
            sample |= {f"{name}_{what}": value for what, value in process(life.pid).items()} | {f"{name}_life": life.number}
        with suppress(psycopg.Error, TimeoutError):
            async with asyncio.timeout(10):
                sample |= await self._of_database()
        sample |= await self._of_claims()
        if "claim_calls" in sample and "claimed" in sample:
            blocks = sample["claim_buffers"] * sample["claim_calls"]
            sample |= {"claim_rows": sample["claimed"] / sample["claim_calls"], "row_buffers": blocks / sample["claimed"]}
        return sample

    async def _of_database(self) -> Sample:
        async with await psycopg.AsyncConnection.connect(self._stage.database, autocommit=True, connect_timeout=5) as connection:
            cursor = await connection.execute(_DATABASE)
            names = [column.name for column in cursor.description or ()]
            [row] = await cursor.fetchall()
            sample = dict(zip(names, row, strict=True))
            # Without the extension the cost is unknown.
            with suppress(psycopg.errors.UndefinedTable, psycopg.errors.ObjectNotInPrerequisiteState):
                found = await (await connection.execute(_CLAIMS)).fetchall()
                sample |= self._cost({int(id_): (int(calls), int(blocks)) for id_, calls, blocks in found})
        return sample

    def _cost(self, now: dict[int, tuple[int, int]]) -> Sample:
        """Shared buffers a call; a crash of the server has set the counters back."""
        before, self._claims = self._claims, now
        if not before or any(calls < before.get(id_, (0, 0))[0] for id_, (calls, _) in now.items()) or before.keys() - now.keys():
            return {}
        calls, blocks = (sum(new[place] - before.get(id_, (0, 0))[place] for id_, new in now.items()) for place in (0, 1))
        return {"claim_calls": calls, "claim_buffers": blocks / calls} if calls else {}

    async def _of_claims(self) -> Sample:
        """Messages claimed, if both relays tell of the whole time since the last sample, and quantiles.

        The quantiles are of claims that found something and of the control statement, in seconds, and the one by the other.
        """
        lives = [*self._stage.fleet.lives.values()]
        pages = dict(zip((life.pid for life in lives), await asyncio.gather(*map(_metrics, lives)), strict=True))
        before, self._told = self._told, {pid: told for pid, told in pages.items() if told}
        grown = added(grown_by(before[pid].buckets, told.buckets) for pid, told in self._told.items() if pid in before)
        control = self._control.take()
        sample: Sample = {}
        if before.keys() == self._told.keys() == pages.keys():
            claimed = sum(told.claimed - before[pid].claimed for pid, told in self._told.items())
            sample |= {"claimed": claimed} if claimed else {}
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            claim = quantile_of_buckets(grown, share)
            if claim is not None and control:
                usual = control[min(len(control) - 1, int(len(control) * share))]
                sample |= {f"claim_{name}": claim, f"control_{name}": usual, f"ratio_{name}": claim / usual}
        return sample


def quantile_of_buckets(buckets: Buckets, share: float) -> float | None:
    """The value that so large a share stays below, as if each bucket were filled evenly; None where nothing was counted."""
    wanted = share * max(buckets.values(), default=0.0)
    if not wanted:
        return None
    low, below = 0.0, 0.0
    for high, count in sorted(buckets.items()):
        if count >= wanted:
            return low if high == float("inf") else low + (high - low) * (wanted - below) / (count - below)
        low, below = high, count
    return low


def grown_by(before: Buckets, now: Buckets) -> Buckets:
    """What was counted since."""
    return {bound: count - before.get(bound, 0.0) for bound, count in now.items()}


def added(parts: Iterable[Buckets]) -> Buckets:
    """Several histograms as one."""
    total: Counter[float] = Counter()
    for part in parts:
        total.update(part)
    return total


def process(pid: int) -> Sample:
    """Memory in bytes, file descriptors and threads of a process; nothing of one that is gone."""
    with suppress(FileNotFoundError, ProcessLookupError, IndexError):
        threads = len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - of the kernel's, and only counted
        return {"pid": pid, "rss": rss(pid), "fds": len(os.listdir(f"/proc/{pid}/fd")), "threads": threads}  # noqa: PTH208
    return {}


def rss(pid: int) -> int:
    """Bytes of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def connections_to(port: int, table: Sequence[str] | None = None) -> int:
    """Established connections that a server on this port has."""
    lines = table or Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = (line.split() for line in lines)
    return sum(each[1].endswith(f":{port:04X}") and each[3] == _ESTABLISHED for each in fields)


async def _metrics(life: Life) -> Told | None:
    """What a relay tells of its claims; None where it does not answer."""
    with suppress(OSError, ValueError):
        page = await asyncio.to_thread(_read, f"http://127.0.0.1:{life.port}/metrics")
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        buckets = {float(sample.labels["le"]): sample.value for sample in samples if sample.name == "relay_claim_seconds_bucket"}
        return Told(buckets, sum(sample.value for sample in samples if sample.name == "relay_messages_claimed_total"))
    return None


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - its own page
        return str(answer.read().decode())
