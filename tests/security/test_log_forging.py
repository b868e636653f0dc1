"""Control characters in whatever others wrote forge no line and steer no terminal: in every command's output, and in every event's line."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import psycopg
import pytest

from relay import events
from relay.observability import logs
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.support.database import archives
from tests.support.lake.exporting import export
from tests.support.relays.cli import Cli, Seeded

HOSTILE = "a\x1b[2J\x1b]0;own\x07\x9b31m\r\n2031-01-01 FORGED\x85FORGED\u2028FORGED\u202e\x08\x7f|'\"%s{0}[red]b"
"""Colours, a window's title, line ends of four kinds, an override of direction, and what formats and markup take for their own."""
ORDERED = "FORGED\n\x1b[2Jkey"
KINDS = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event]
Show = Callable[..., str]


def _harmless(text: str) -> None:
    """Only lines of printable characters, none of which begins where foreign text had a line of its own begin."""
    lines = text.split("\n")
    assert [] == [line for line in lines if not line.isprintable()]
    assert [] == [line for line in lines if line.startswith(("2031", "FORGED\n"))]


class Ids:
    """Messages whose every field is hostile."""

    def __init__(self, seeded: Seeded) -> None:
        named = {"exchange": HOSTILE, "routing_key": HOSTILE, "options": json.dumps({"type": HOSTILE, "headers": {HOSTILE: HOSTILE}})}
        self.dead, self.answered = (seeded.archive("failed", HOSTILE, HOSTILE, content=json.dumps(HOSTILE), **named) for _ in range(2))
        self.held = seeded.insert(**named, ordering_key=ORDERED)
        seeded.run("UPDATE queue_message SET attempts = 1, last_error = %s, available_at = now() + interval '1 h'", HOSTILE)
        seeded.run("SELECT queue_message_pause(%s, %s, %s), queue_message_key_park(%s, %s, %s)", *[HOSTILE] * 3, ORDERED, *[HOSTILE] * 2)
        seeded.run("SELECT queue_message_dead_acknowledge(%s, %s, %s)", self.answered, HOSTILE, HOSTILE)
        state = json.dumps({"broker": HOSTILE, "listen": HOSTILE, "in_flight": HOSTILE, "silent": {HOSTILE: 90}})
        seeded.run("INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES (%s, %s, %s, 1, %s)", *[HOSTILE] * 3, state)
        seeded.run("SELECT queue_message_config_set('unroutable', %s)", f"retry,{HOSTILE}=accept")


@pytest.fixture
def hostile(seeded: Seeded) -> Ids:
    """A database full of them."""
    return Ids(seeded)


SHOWN = (
    "status", "status --all", "config list", "dead list --all", "dead show {dead}", "dead show {answered}", "dead show {dead} --content",
    "dead watch --once", "dead watch --once --content", "dead watch --once --log --command true --replay code=nothing",
    "key list", "show {dead}", "show {held}", "replay --code nothing",
)  # fmt: skip


@pytest.mark.parametrize("as_json", [False, True], ids=["words", "json"])
def test_what_a_command_shows_of_others_text_is_harmless(cli: Cli, hostile: Ids, as_json: bool) -> None:
    """For people in words, for scripts as JSON, which says the same when it is read."""
    for words in SHOWN:
        out = cli(*words.format(**vars(hostile)).split(), *(["--json"] if as_json else []))

        _harmless(out + cli.stderr)
        if as_json and words.endswith(("{dead}", "{held}")):
            assert HOSTILE in _texts(json.loads(out))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


RICH = re.compile(r"\x1b\[(?:\?25[lh]|[12]?[AK]|0m|1m)|\r")
"""How the picture of `--watch` is drawn over: the cursor hidden, up a line, the line erased; and what is bold."""
MAIN = (sys.executable, "-c", "from relay.cli.main import main; main()")


def _watched(words: str, cli: Cli, enough: Callable[[str], bool]) -> str:
    """What a command writes to a terminal until that is enough and Ctrl-C ends it."""
    ours, theirs = pty.openpty()
    screen = {**cli.env, "TERM": "xterm", "COLUMNS": "200", "LINES": "200", "PATH": os.environ["PATH"]}
    process = subprocess.Popen([*MAIN, *words.split()], env=screen, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    with suppress(OSError):  # what a terminal says whose other end is closed
        while part := os.read(ours, 65536):
            written += part
            if process.returncode is None and enough(written.decode(errors="replace")):
                process.send_signal(signal.SIGINT)
                process.wait(60)
    os.close(ours)
    assert 130 == process.wait(60)
    return written.decode()


def test_a_status_that_is_watched_steers_no_terminal(cli: Cli, hostile: Ids) -> None:
    """Drawn over and over, with what drawing takes and no other control character."""
    drawn = _watched("status --watch --all --interval 0.1", cli, lambda text: text.count("in schema public") >= 3)

    assert "\x1b[2K" in drawn
    _harmless(RICH.sub("", drawn))


def test_a_status_that_is_watched_by_a_script_is_one_line_each_time(cli: Cli, hostile: Ids) -> None:
    """On a terminal too, and each says the same as JSON."""
    lines = _watched("status --watch --all --json --interval 0.1", cli, lambda text: text.count("\n") >= 3).replace("\r\n", "\n")

    _harmless(lines)
    for line in lines.splitlines()[:3]:
        assert {HOSTILE} < {*_texts(json.loads(line))}


@pytest.fixture
def spoilt(cli: Cli, hostile: Ids, database_url: str, tmp_path: Path) -> Cli:
    """The command line with a lake that holds hostile rows, of which one differs, and one that no queue takes."""
    cli.env["RELAY_LAKE_URL"] = str(tmp_path / "lake")
    with psycopg.connect(database_url, autocommit=True) as connection:
        archives.insert(connection, {"exchange": HOSTILE, "routing_key": HOSTILE, "options": json.dumps({HOSTILE: HOSTILE})})
        connection.execute("SELECT queue_message_config_set('export_registered', 'true')")
    with Database(database_url) as database:
        export(Lake(cli.env["RELAY_LAKE_URL"]), database, lambda rows: [{**row, "error_detail": f"{HOSTILE}!"} for row in rows])
    return cli


@pytest.mark.parametrize("as_json", [False, True], ids=["words", "json"])
def test_what_a_job_of_the_pipeline_tells_is_harmless(spoilt: Cli, as_json: bool) -> None:
    """It covers what differs, what a queue refuses, and what the status says of the lake, both in the result and around it."""
    told: list[str] = []
    replay = ["replay", "--exchange"]
    for words, code in ((["verify"], 5), ([*replay, HOSTILE, "--result", "success"], 1), ([*replay, f"{HOSTILE}*"], 1)):
        told += [spoilt("pipeline", *words, *(["--json"] if as_json else []), code=code), spoilt.stderr]
    told += [spoilt("status", *(["--json"] if as_json else []))]

    assert "was refused" in "".join(told)
    assert as_json or "relay pipeline verify" in told[-1]
    for text in told:
        _harmless(text)


ANSWERED = [
    (["pause", HOSTILE], 0), (["pause", HOSTILE, "--reason", HOSTILE], 0), (["resume", HOSTILE], 0), (["resume", f"{HOSTILE}2"], 3),
    (["limit", HOSTILE, "5", "--reason", HOSTILE], 0), (["limit", HOSTILE, HOSTILE], 2), (["unlimit", HOSTILE], 0),
    (["unlimit", HOSTILE], 3),
    (["key", "park", ORDERED, "--reason", HOSTILE], 0), (["key", "skip", HOSTILE], 3), (["key", "skip", ORDERED], 0),
    (["key", "resume", ORDERED], 0), (["key", "resume", HOSTILE], 3), (["config", "set", "unroutable", "reject"], 0),
    (["config", "set", "unroutable", HOSTILE], 1), (["config", "set", HOSTILE, "1"], 1), (["replay", "--exchange", HOSTILE], 0),
    (["enqueue", HOSTILE, HOSTILE, HOSTILE], 1), (["enqueue", "e", "k", "1", "--options", json.dumps({HOSTILE: 1})], 1),
    (["enqueue", "e", "k", "1", "--options", json.dumps({"priority": HOSTILE})], 1), (["dead", "show", HOSTILE], 2),
    (["show", HOSTILE], 2), (["dead", "list", "--result", HOSTILE], 2), (["replay", "--from", HOSTILE], 2), ([HOSTILE], 2),
    (["dead", "watch", "--command", HOSTILE], 2),
]  # fmt: skip


def test_what_a_command_answers_is_harmless(cli: Cli, hostile: Ids) -> None:
    """What it did, what it refused, and how it was typed wrong."""
    for words, code in ANSWERED:
        _harmless(cli(*words, code=code) + cli.stderr)


def _filled(kind: type[events.Event]) -> events.Event:
    """An event with hostile text wherever text may stand."""
    values: dict[str, Any] = {
        "str": HOSTILE,
        "int": 1,
        "float": 1.0,
        "bool": True,
        "tuple[str, ...]": (HOSTILE, HOSTILE),
        "Mapping[str, int]": {HOSTILE: 1},
    }
    return kind(**{field.name: values[str(field.type)] for field in fields(kind)})


@pytest.fixture
def log() -> Iterator[Callable[[str], io.StringIO]]:
    """Configure logging to a text in memory, and restore the previous configuration."""
    root, ours = logging.getLogger(), logging.getLogger("relay")
    before = list(root.handlers), root.level, ours.level

    def configure(log_format: str) -> io.StringIO:
        logs.configure(level="debug", log_format=log_format, stream=(stream := io.StringIO()))
        return stream

    yield configure
    root.handlers[:], root.level = before[0], before[1]
    ours.setLevel(before[2])


@pytest.mark.parametrize("log_format", ["console", "json"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_of_any_kind_is_one_harmless_line(log: Callable[[str], io.StringIO], kind: type[events.Event], log_format: str) -> None:
    """This holds whatever its fields contain."""
    stream = log(log_format)

    logs.LogSink()(_filled(kind))

    assert (0 if kind.level == "none" else 1) == stream.getvalue().count("\n") == len(stream.getvalue().splitlines())
    _harmless(stream.getvalue())
