"""What the benchmarks' commands share: numbers that make sense, a file for the figures, and an orderly end by a signal."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def positive(text: str) -> int:
    """Read a whole number from 1."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, not {text!r}")
    return int(text)


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Read one of these names."""

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r} is not known; choose from {', '.join(names)}")
        return text

    return read


def seconds(text: str) -> float:
    """Read a time of a second at the least."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 86_400:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to 86400, not {text!r}")
    return found


def writable(text: str) -> Path:
    """Make the folder of a file that will be written."""
    path = Path(text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot be written: {error.strerror} ({text})") from error
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot be written: {text}")
    return path


def run(work: Coroutine[Any, Any, T], file: Path | None = None) -> T:
    """Run it; a signal puts away servers and relays, and ends the process with one sentence and 128 + the signal's number."""
    caught: list[signal.Signals] = []
    before = _version(file)
    try:
        return asyncio.run(_guarded(work, caught))
    except asyncio.CancelledError:
        if not caught:
            raise
    known = f" {file} has what was known by then." if _version(file) != before else " Nothing was measured whole."
    print(f"Stopped by {caught[0].name}.{known}", file=sys.stderr)  # noqa: T201 - the sentence is for who stopped it
    sys.exit(128 + caught[0])


def _version(file: Path | None) -> tuple[int, int] | None:
    """Tell a file of now from that of before. The time of day cannot: the clock for files is some milliseconds behind it."""
    if file is None or not file.exists():
        return None
    return file.stat().st_mtime_ns, file.stat().st_ino


async def _guarded(work: Coroutine[Any, Any, T], caught: list[signal.Signals]) -> T:
    task = asyncio.ensure_future(work)

    def stop(number: signal.Signals) -> None:
        if not caught:
            task.cancel()
        caught.append(number)

    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    return await task
