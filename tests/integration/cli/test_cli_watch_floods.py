"""relay dead watch under a flood of dead messages: another exchange's death is reported within seconds, and everything is reported once."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import IO

import psycopg
import pytest

from relay.postgres.operator_session import OperatorSession
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.encodings import BYTE, MAKE_BYTES

FLOOD = 700
SECONDS = 10.0
"""A death of another exchange is reported within this time. Handling the flood one by one takes far longer."""
OUTCOMES = {
    "succeeds": ("sleep 0.05", ()),
    "fails": ("exit 1", ()),
    "hangs": ("sleep 5", ("--timeout", "0.5")),
    "waits for its replay": ("sleep 0.05", ("--replay", "result=failed,after=5m")),
}
ONE, MANY = "'flood'", "'flood' || n"
SLOW_REPLAYS = """
    CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.03); RETURN NEW; END';
    CREATE TRIGGER take_long BEFORE INSERT ON queue_message FOR EACH ROW WHEN (NEW.exchange <> 'victim') EXECUTE FUNCTION take_long()"""
"""Makes the replays of a flood take 20 seconds."""


def _flood(seeded: Seeded, exchange: str, size: int = FLOOD) -> None:
    """Dead messages, archived at once."""
    seeded.run(f"INSERT INTO queue_message (exchange, routing_key) SELECT {exchange}, n::text FROM generate_series(1, {size}) n")
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'failed', 'expired', NULL, 'relay-1') FROM queue_message")


def _command(folder: Path, flood: str) -> str:
    """A command that prints the exchange of its message, and then runs `flood` for messages of the flood."""
    path = folder / "handler.sh"
    path.write_text(f'read -r message\ncase "$message" in\n*\'"exchange": "victim"\'*) echo victim ;;\n*) echo flood; {flood} ;;\nesac\n')
    return f"/bin/sh {path}"


class _Told:
    """Lines that a watch or its commands print."""

    def __init__(self, pipe: IO[str] | None) -> None:
        assert pipe is not None
        self._pipe = pipe.fileno()
        self.lines: list[str] = []
        self._rest = b""

    def until(self, text: str, seconds: float, *, times: int = 1) -> None:
        """Wait until lines with the text have come so many times."""
        end = time.monotonic() + seconds
        while sum(text in line for line in self.lines) < times:
            left = end - time.monotonic()
            assert left > 0, f"{text} was not told within {seconds} s: {len(self.lines)} were"
            if select.select([self._pipe], [], [], left)[0]:
                self._read()

    def _read(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._pipe, 65536)).split(b"\n")
        self.lines += [each.decode() for each in lines]


@pytest.mark.parametrize("exchange", [ONE, MANY], ids=["of one exchange", "of many exchanges"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_flood_does_not_hide_a_death_of_another_exchange(cli: Cli, seeded: Seeded, tmp_path: Path, outcome: str, exchange: str) -> None:
    """This holds for any outcome of the handling. A waiting message takes no other's place, and exchanges take turns."""
    flood, options = OUTCOMES[outcome]
    process = cli.start("dead", "watch", "--poll", "0.5", *options, "--command", _command(tmp_path, flood))
    _drain(process)
    told = _Told(process.stdout)
    _flood(seeded, exchange)
    told.until("flood", 30, times=3 if outcome == "hangs" else 20)

    seeded.archive("failed", exchange="victim")
    told.until("victim", SECONDS)
    seeded.archive("failed", exchange="victim")
    told.until("victim", SECONDS, times=2)
    process.send_signal(signal.SIGTERM)


def _drain(process: subprocess.Popen[str]) -> None:
    """Read the complaints, so that the pipe does not fill."""
    assert process.stderr is not None
    threading.Thread(target=process.stderr.read, daemon=True).start()


def test_a_flood_that_all_waits_does_not_hide_a_death(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """Also once each of its messages had a try, and more wait than are read at once."""
    process = cli.start("dead", "watch", "--poll", "0.5", "--command", _command(tmp_path, "exit 1"))
    _drain(process)
    told = _Told(process.stdout)
    _flood(seeded, ONE)
    told.until("flood", 60, times=600)

    seeded.archive("failed", exchange="victim")
    told.until("victim", SECONDS)
    process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("exchange", [ONE, MANY], ids=["of one exchange", "of many exchanges"])
def test_a_flood_of_due_replays_delays_no_replay_of_another_exchange(cli: Cli, seeded: Seeded, exchange: str) -> None:
    """Exchanges take turns by one rule too."""
    _flood(seeded, exchange)
    seeded.run(SLOW_REPLAYS)
    told = _Told(cli.start("dead", "watch", "--poll", "0.5", "--replay", "result=failed,after=0s").stderr)
    told.until("was replayed as", 30)

    for _ in range(2):
        told.until(f"{seeded.archive('failed', exchange='victim')} was replayed as", SECONDS)


@pytest.mark.parametrize("answered", [True, False])
def test_notifications_that_came_together_are_taken_together(database_url: str, answered: bool) -> None:
    """Every login may notify: what a wait left behind would fill the memory of the watch. They may come with a statement's answer."""
    with OperatorSession(database_url, schema="public") as opened, psycopg.connect(database_url, autocommit=True) as other:
        opened.listen("dead_message")
        other.execute("SELECT pg_notify('dead_message', n::text) FROM generate_series(1, 100) AS n")
        if answered:
            opened.now()

        assert opened.wait(5)
        assert not opened.wait(0)


@pytest.mark.parametrize("answered", [True, False])
def test_a_notification_whose_bytes_are_no_text_ends_no_watch(database_url: str, answered: bool) -> None:
    """Every login may send one, and it may come with a statement's answer."""
    with OperatorSession(database_url, schema="public") as opened, psycopg.connect(database_url, autocommit=True) as other:
        opened.listen("dead_message")
        other.execute(MAKE_BYTES)
        other.execute(f"SELECT pg_notify('dead_message', {BYTE})".encode())
        if answered:
            opened.now()

        assert opened.wait(5)
        assert not opened.wait(0)
