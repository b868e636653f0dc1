"""`relay demo`: starts servers, plays the story, and prints the summary."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from relay import devservers
from relay.demo import ledger
from relay.demo.errors import DemoError
from relay.demo.scenes.stage import Check
from relay.demo.screen import Screen
from relay.demo.story import Story
from relay.demo.summary import archived, dead_by_reason, mismatches, one_of_each, otherwise, promises, sums
from relay.demo.verdict import judged, played

LEAST: Final = 600
"""The least number of messages; fewer would all be sent before a relay can be killed with messages in flight."""
_LOOK_FURTHER: Final = "SELECT id, exchange, result, error_code, error_detail FROM queue_message_dead_list"


def main(*, messages: int, folder: Path | None = None, keep: bool = False) -> int:
    """Run the demo on private servers and print its summary; return 0 if everything adds up, else 1, or 128 + the signal that cut it short.

    Args:
        messages: about how many valid messages are sent.
        folder: the folder for the ledger, which replaces that of an earlier demo.
        keep: keep the servers running after the summary, until a signal comes.

    Raises:
        RelayError: the demo failed; the message is one sentence.
    """
    screen = Screen()

    def play() -> int:
        with tempfile.TemporaryDirectory(prefix="relay-ledger-") as temporary:
            return _demonstrate(screen, folder or Path(temporary), messages, keep=keep)

    return played(screen, play, gone="servers, relays and files")


def check(folder: Path) -> int:
    """Check the ledger that an earlier demo has kept, and print its summary; return 0 if everything adds up, else 1.

    Raises:
        LedgerError: the ledger is missing or damaged.
    """
    return _summarise(Screen(), folder)


def _demonstrate(screen: Screen, folder: Path, messages: int, *, keep: bool) -> int:
    if messages < LEAST:
        raise DemoError(f"The demo needs at least {LEAST} messages (--messages), so that a relay can be killed while it holds some.")
    folder.mkdir(parents=True, exist_ok=True)
    with devservers.postgres(say=screen.say) as database, devservers.rabbitmq(say=screen.say) as broker:
        story = Story(database_url=database.url, amqp_url=broker.url, folder=folder, messages=messages, screen=screen)
        checks = asyncio.run(story.tell())
        code = _summarise(screen, folder, checks)
        _explain_one(screen, story, folder)
        _look_further(screen, database, broker.url, keep=keep)
    return code


def _summarise(screen: Screen, folder: Path, checks: Sequence[Check] = ()) -> int:
    report = ledger.check(folder)
    tables = [sums(report), dead_by_reason(folder), promises(report), *([one_of_each(checks)] if checks else [])]
    return judged(screen, tables, [*mismatches(report), *otherwise(checks)])


def _explain_one(screen: Screen, story: Story, folder: Path) -> None:
    dead = sorted((row for row in archived(folder) if row["result"] == "failed"), key=lambda row: row["error_code"] != "unroutable")
    if dead:
        id_ = str(dead[0]["id"])
        screen.quote(f"\nWhy is one of them dead? relay show {id_}")
        screen.quote(asyncio.run(story.explain(id_)).strip())


def _look_further(screen: Screen, database: devservers.Postgres | devservers.BorrowedPostgres, amqp_url: str, *, keep: bool) -> None:
    found = shutil.which("psql") or (str(database.bin / "psql") if isinstance(database, devservers.Postgres) else "psql")
    line = shlex.join([found, database.url, "-c", _LOOK_FURTHER])
    if not keep:
        screen.quote(
            f"\nTo look further, type `relay demo --keep`: its servers stay, and a line such as this one works until you stop it:\n{line}"
        )
        return
    urls = f"export RELAY_DATABASE_URL={shlex.quote(database.url)}\nexport RELAY_AMQP_URL={shlex.quote(amqp_url)}"
    screen.quote(f"\nThe servers stay until Ctrl-C, and no relay runs. To look further, type:\n{line}")
    screen.quote(f"\nFor `relay console`, `relay run` and other commands in another terminal:\n{urls}")
    with suppress(KeyboardInterrupt):
        while True:
            signal.pause()
