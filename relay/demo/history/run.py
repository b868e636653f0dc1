"""`relay pipeline demo`: starts servers, finds Java, plays the story, and prints the summary."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Final

from relay import devservers
from relay.demo.errors import DemoError
from relay.demo.history import ledger
from relay.demo.history.story import REPORT, Story
from relay.demo.history.summary import mismatches, tables
from relay.demo.screen import Screen
from relay.demo.verdict import judged, played
from relay.devservers.java import find_java

LEAST: Final = 600
"""The least number of messages; with fewer, some hours would have no message."""
_FILES: Final = (ledger.ARCHIVED, ledger.LEFT, ledger.RECEIVED, ledger.REPLAYED, ledger.STATS, ledger.OUTCOME)


def main(*, messages: int, folder: Path | None = None) -> int:
    """Run the demo on private servers and print its summary; return 0 if everything adds up, else 1, or 128 + the signal that cut it short.

    Args:
        messages: about how many messages the relay moves.
        folder: the folder for ledger, lake and report, which replace those of an earlier demo. If None, only the report is kept, in the
            current folder.

    Raises:
        RelayError: the demo failed; the message is one sentence.
    """
    screen = Screen()

    def play() -> int:
        with tempfile.TemporaryDirectory(prefix="relay-history-") as temporary:
            place = _emptied(folder) if folder else Path(temporary)
            code = _demonstrate(screen, place, messages)
            page = place / REPORT if folder else _kept(place / REPORT)
            screen.quote(f"\nThe report: {page.resolve()}")
            return code

    return played(screen, play, gone="servers, relay, jobs and files")


def check(folder: Path) -> int:
    """Check the ledger and the lake that an earlier demo has kept, and print the summary; return 0 if everything adds up, else 1.

    Raises:
        LedgerError: a part of the ledger or the lake is missing or damaged.
    """
    return _summarise(Screen(), folder)


def _demonstrate(screen: Screen, folder: Path, messages: int) -> int:
    if messages < LEAST:
        raise DemoError(f"The demo needs at least {LEAST} messages (--messages), so that every hour has some.")
    java = find_java(say=screen.say)
    # The demo needs the superuser to date rows back, so it never borrows a running server.
    with devservers.postgres(say=screen.say, private=True) as database, devservers.rabbitmq(say=screen.say) as broker:
        story = Story(database_url=database.url, amqp_url=broker.url, java=java, folder=folder, messages=messages, screen=screen)
        asyncio.run(story.tell())
    return _summarise(screen, folder)


def _summarise(screen: Screen, folder: Path) -> int:
    found = ledger.read(folder)
    return judged(screen, tables(found), mismatches(found))


def _emptied(folder: Path) -> Path:
    """The folder, after deletion of the files that an earlier demo has left there."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / ledger.LAKE).exists() and not (folder / ledger.ARCHIVED).exists():
        raise DemoError(f"{folder} holds a lake that no demo has made: name another folder (--folder).")
    for name in (*_FILES, REPORT):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / ledger.LAKE, ignore_errors=True)
    return folder.resolve()


def _kept(page: Path) -> Path:
    return Path(shutil.copy(page, Path.cwd() / REPORT))
