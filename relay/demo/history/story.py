"""The events of this demo, in order: days of messages, exports (one is killed), retention, replay, and reconciliation."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from psycopg.conninfo import make_conninfo

from relay.demo.errors import DemoError
from relay.demo.history import ledger
from relay.demo.history.archive import Archive
from relay.demo.history.jobs import Jobs
from relay.demo.history.receiver import Receiver
from relay.demo.history.traffic import BODY_LIMIT, ORDERS, sell
from relay.demo.journal import Journal
from relay.demo.observer import Observer
from relay.demo.polling import until
from relay.demo.screen import Screen
from relay.demo.sidecars import Sidecars

REPORT: Final = "outbox-report.html"
JOB: Final = "send the hour again"
_RELAY: Final = "relay-1"
_FIRST_DAYS, _MORE_DAYS, _LATE_DAY = (6, 2), (4, 2), (2, 1)
"""Pairs: how many days ago messages were sent, and over how many days.

The first messages are exported at once, the next ones by the killed export and its repetition, the last ones not at all.
"""
_SHARES: Final = (0.5, 0.35, 0.15)
_TRIES: Final = 3
_QUIET_SECONDS: Final = 60.0
_LOOK: Final = 0.05


class Story:
    """One run of the demo on running servers.

    Args:
        database_url: an empty database of a private server, with the superuser's login.
        amqp_url: a broker that does not know this demo's exchanges.
        java: the home directory of a Java for Spark.
        folder: a new folder for ledger, lake and report.
        messages: about how many messages are sent.
        screen: shows the progress.
    """

    def __init__(self, *, database_url: str, amqp_url: str, java: Path, folder: Path, messages: int, screen: Screen) -> None:
        self._database_url = database_url
        self._amqp_url = amqp_url
        self._java = java
        self._folder = folder
        self._parts = [round(messages * share) for share in _SHARES]
        self._screen = screen
        self._archive = Archive(database_url)
        self._table = folder / ledger.LAKE / "archive"
        self._outcome: dict[str, Any] = {"job": JOB}

    async def tell(self) -> None:
        """Play all events, and end every process that was started.

        Raises:
            RelayError: a step failed; the message says which.
        """
        async with AsyncExitStack() as stack:
            self._sidecars = stack.enter_context(Sidecars(self._settings()))
            self._jobs = stack.enter_context(Jobs({**self._settings(), **self._lake()}, self._java, self._screen))
            await self._sidecars.command("migrate")
            self._archive.make_login()
            self._observer = await stack.enter_async_context(aclosing(await Observer.connect(self._database_url)))
            received, self._archived = (
                stack.enter_context(Journal(self._folder / name)) for name in (ledger.RECEIVED, ledger.ARCHIVED)
            )  # fmt: skip
            consumer = Receiver(self._amqp_url, self._database_url, received, self._observer.clock)
            self._receiver = await stack.enter_async_context(consumer)
            await self._sidecars.start(_RELAY)
            self._screen.say(f"relay run: {_RELAY} is ready; a consumer listens to three queues and keeps receipts")
            self._today = self._archive.now().date()
            await self._play()
            await self._sidecars.stop()
        self._write()

    def _settings(self) -> dict[str, str]:
        return {
            "RELAY_DATABASE_URL": self._database_url,
            "RELAY_AMQP_URL": self._amqp_url,
            "RELAY_MAX_ATTEMPTS": "2",
            "RELAY_BACKOFF_BASE": "0.2",
            "RELAY_MAX_BODY_BYTES": str(BODY_LIMIT),
            "RELAY_LOG_FORMAT": "json",
        }

    def _lake(self) -> dict[str, str]:
        etl = make_conninfo(self._database_url, user="demo_etl", password="demo")  # noqa: S106 - of a private server
        return {"RELAY_PIPELINE_DATABASE_URL": etl, "RELAY_LAKE_URL": str(self._folder / ledger.LAKE)}

    async def _play(self) -> None:
        await self._send(self._parts[0], _FIRST_DAYS)
        await self._export_twice()
        await self._kill_an_export()
        await self._verify_and_retain()
        await self._replay_an_hour()
        await self._reconcile()
        await self._jobs.run("report", str(self._folder / REPORT))

    async def _send(self, messages: int, days: tuple[int, int]) -> None:
        """Let the relay send messages, and date their archive rows back."""
        began = self._archive.now()
        await self._mark()
        dying = await sell(self._database_url, messages, seed=days[0])
        await self._quiet(f"{messages} messages, {dying} of them to end dead")
        await self._receiver.write_receipts()
        first = self._today - timedelta(days=days[0])
        moved = self._archive.date_back(began, first, days[1])
        self._archive.note_rows(self._archived)
        last = first + timedelta(days=days[1] - 1)
        self._screen.say(f"relay run: moved {moved} messages; the demo dates them {first}" + (f" to {last}" if last > first else ""))

    async def _mark(self) -> None:
        """Begin to count sent and received messages from here."""
        self._counted = (await self._observer.progress()).successes, self._receiver.deliveries

    async def _quiet(self, what: str) -> None:
        """Return when the queue is empty and the consumer has received every message since `_mark`, or after a generous time limit."""
        self._screen.say(f"shop: {what}")
        with self._screen.progress():
            try:
                async with asyncio.timeout(_QUIET_SECONDS):
                    await until(self._is_quiet, every=_LOOK)
            except TimeoutError:
                self._screen.say(f"after {_QUIET_SECONDS:g} s some messages still wait; the summary counts them")

    async def _is_quiet(self) -> bool:
        now = await self._observer.progress()
        sent, received = now.successes - self._counted[0], self._receiver.deliveries - self._counted[1]
        self._screen.update(f"{sent} sent, {received} received, {now.waiting} waiting")
        return not now.waiting and received >= sent

    async def _export_twice(self) -> None:
        await self._jobs.run("export")
        await self._jobs.run("metrics")
        await self._jobs.run("report", str(self._folder / REPORT))
        self._outcome["second_export"] = (await self._jobs.run("export"))["rows"]
        self._screen.say(f"relay pipeline export: {self._outcome['second_export']} rows the second time, for nothing is new")

    async def _kill_an_export(self) -> None:
        """Kill an export between its files and its commit. Then run it again, with the jobs that a scheduler runs after it."""
        for _ in range(_TRIES):
            await self._send(self._parts[1], _MORE_DAYS)
            before = _identities(self._table.parent)
            left = await self._jobs.kill_in_the_middle(self._table, "export")
            if left:
                break
            self._screen.say("relay pipeline export: was done before it could be killed; once more")
        else:
            raise DemoError(f"No export was caught at work in {_TRIES} tries; run the demo again.")
        self._outcome["left_by_the_kill"] = len(left)
        self._outcome["added_by_the_kill"] = (_identities(self._table.parent) - before).total()
        self._screen.say(f"kill -9: the whole export, with {len(left)} files written and nothing committed; the same again:")
        await self._jobs.run("run")

    async def _verify_and_retain(self) -> None:
        """Let retention drop verified days; one more day is old enough to be dropped, but was not exported."""
        await self._send(self._parts[2], _LATE_DAY)
        verified = await self._jobs.run("verify")
        before = self._archive.days()
        for name, value in (("export_registered", "true"), ("retention_days", "1")):
            await self._sidecars.command("config", "set", name, value)
        self._archive.retain()
        dropped = sorted(before - self._archive.days())
        late = self._today - timedelta(days=_LATE_DAY[0])
        self._outcome |= {
            "verified": [one["partition"] for one in verified["partitions"] if one["state"] in {"verified", "unchanged"}],
            "differing": [one["partition"] for one in verified["partitions"] if one["state"] == "differs"],
            "dropped": [day.isoformat() for day in dropped],
            "kept": late.isoformat(),
        }
        self._screen.say(f"retention: {len(dropped)} verified days dropped; {late} stays, for it was not exported")

    async def _replay_an_hour(self) -> None:
        """Replay an hour of a day that only the lake still has; a second run of the same job sends nothing."""
        hour = self._busiest_hour()
        span = ("--from", f"{hour:%Y-%m-%dT%H:%M:%SZ}", "--to", f"{hour + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}")
        words = ("replay", "--job", JOB, *span, "--exchange", ORDERS, "--result", "success")
        await self._mark()
        sent = await self._jobs.run(*words)
        await self._quiet(f"{sent['enqueued']} messages of {hour:%Y-%m-%d %H} h come from the lake once more")
        again = await self._jobs.run(*words)
        self._archive.note_rows(self._archived)
        self._outcome |= {"replayed": sent["enqueued"], "replayed_again": again["enqueued"], "hour": int(hour.timestamp())}

    def _busiest_hour(self) -> datetime:
        """The hour in which most orders of the first day were sent."""
        first = self._today - timedelta(days=_FIRST_DAYS[0])
        times = [row.archived_at // 3_600_000_000 for row in ledger.lake_rows(self._table.parent) if _is_order_of(row, first)]
        if not times:
            raise DemoError("The lake has no order of its first day; run the demo again with more messages (--messages).")
        [(hour, _)] = Counter(times).most_common(1)
        return datetime.fromtimestamp(hour * 3600, UTC)

    async def _reconcile(self) -> None:
        """Compare the sent messages in the lake with the consumer's receipts."""
        first, last = (self._today - timedelta(days=days) for days in (_FIRST_DAYS[0], _LATE_DAY[0]))
        span = ("--from", f"{first}T00:00:00Z", "--to", f"{last}T00:00:00Z")
        self._outcome["reconciled"] = await self._jobs.run("reconcile", *span, may_end_with=(0, 5))

    def _write(self) -> None:
        self._archive.write_ledger(self._folder, JOB)
        (self._folder / ledger.OUTCOME).write_text(json.dumps(self._outcome), encoding="utf-8")


def _identities(lake: Path) -> Counter[ledger.Identity]:
    return Counter(row.identity for row in ledger.lake_rows(lake))


def _is_order_of(row: ledger.Row, day: date) -> bool:
    return row.day == day and row.exchange == ORDERS and row.result == "success"
