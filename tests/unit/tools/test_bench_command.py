"""The benchmarks' commands: what they refuse, and how a signal ends them."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench import command

PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.bench import command

async def work():
    try:
        if sys.argv[3] == "known":
            Path(sys.argv[1]).write_text("{}")
        os.kill(os.getpid(), int(sys.argv[2]))
        await asyncio.sleep(60)
    finally:
        print("put away", flush=True)

command.run(work(), Path(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((command.positive, text) for text in ("0", "-3", "x", "1.5", "", "\u0661")),
        *((command.seconds, text) for text in ("0", "-1", "nan", "inf", "x", "86401")),
        (command.one_of(["drain"]), "nope"),
        (command.writable, "/proc/nope/x.json"),
        (command.writable, "/"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_begins(read: Callable[[str], object], text: str) -> None:
    """In a sentence, since a benchmark of minutes must not end in a traceback for a wrong number."""
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


def test_what_makes_sense_is_read(tmp_path: Path) -> None:
    """The folder of the file is made."""
    assert (5, 1.5, "drain") == (command.positive("5"), command.seconds("1.5"), command.one_of(["drain"])("drain"))
    assert command.writable(str(tmp_path / "new" / "x.json")).parent.is_dir()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(("kept", "sentence"), [("known", "has what was known by then"), ("nothing", "Nothing was measured whole")])
def test_a_signal_puts_everything_away(tmp_path: Path, number: signal.Signals, kept: str, sentence: str) -> None:
    """Servers and relays end with the blocks that started them, and the last word is one sentence."""
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "x.json"), str(int(number)), kept]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)

    assert (128 + number, "put away\n") == (ended.returncode, ended.stdout)
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"Stopped by {number.name}.")
    assert sentence in line
