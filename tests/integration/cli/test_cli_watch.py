"""relay dead watch: what is there, what comes, commands, retries, signals, a lost connection."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from relay.cli.dead_watch import cursor
from relay.cli.dead_watch.actions import Dead, Handled, Outcome
from relay.cli.dead_watch.loop import DeadWatch
from relay.cli.dead_watch.plan import WatchPlan
from relay.postgres.operator_session import OperatorSession
from tests.support.relays.cli import Cli, Seeded


def _line(process: subprocess.Popen[str], seconds: float = 20) -> str:
    """The next line of standard output."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], seconds)[0], "nothing was printed"
    return process.stdout.readline()


def _script(folder: Path, text: str) -> str:
    """A command that runs Python code; `message` is what it got."""
    path = folder / "handler.py"
    # The alarm ends a command that nothing else ends.
    path.write_text(f"import json, os, signal, subprocess, sys, time\nsignal.alarm(60)\nmessage = json.load(sys.stdin)\n{text}\n")
    return f"{sys.executable} {path}"


@pytest.mark.ids("A16", "A40")
def test_watch_prints_what_is_there_and_then_what_comes(cli: Cli, seeded: Seeded) -> None:
    """At once by its notification, although the poll is an hour away; each once, and SIGTERM ends it with 0."""
    first = seeded.archive("failed", "unroutable", "no queue took it")
    process = cli.start("dead", "watch", "--poll", "3600")
    assert f"failed {first} to 'orders' '' after 0 attempts, unroutable: no queue took it" in _line(process)

    second = seeded.archive("rejected", "too_large")
    assert second in _line(process)
    process.send_signal(signal.SIGTERM)

    assert ("", "") == process.communicate(timeout=20)
    assert 0 == process.returncode


def test_watch_finds_by_itself_what_nobody_notified(cli: Cli, seeded: Seeded) -> None:
    """A notification is a hint, the poll is the guarantee."""
    process = cli.start("dead", "watch", "--json", "--poll", "0.1")
    assert json.loads(_line_after(process, lambda: seeded.archive("failed")))["result"] == "failed"
    seeded.run("ALTER TABLE queue_message_dead DISABLE TRIGGER queue_message_dead_alarm")

    assert json.loads(_line_after(process, lambda: seeded.archive("rejected")))["result"] == "rejected"


def _line_after(process: subprocess.Popen[str], act: Callable[[], object]) -> str:
    act()
    return _line(process)


@pytest.mark.ids("A16")
def test_a_command_gets_the_message_and_its_success_acknowledges(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """JSON on standard input, one at a time, oldest first; the command is split into words and no shell sees it."""
    dead = [seeded.archive("failed", "unroutable", content='{"n": 1}', routing_key=f"; echo {number}") for number in range(3)]
    command = _script(tmp_path, "print(message['id'], json.loads(message['content'])['n'], flush=True)")

    process = cli.start("dead", "watch", "--once", "--ack", "--content", "--command", command)
    printed, complaints = process.communicate(timeout=30)

    assert [f"{id_} 1" for id_ in dead] == printed.splitlines()
    assert ("Dead messages: 3 handled.\n", 0) == (complaints, process.returncode)
    assert [] == cli.json("dead", "list")


def test_a_command_that_fails_is_tried_again_and_holds_nobody_up(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """The message stays unacknowledged, its neighbour is handled, and after a pause it gets another try."""
    first = seeded.archive("failed", routing_key="first")
    second = seeded.archive("failed", routing_key="second")
    mark = tmp_path / "mark"
    command = _script(
        tmp_path,
        f"print(message['routing_key'], flush=True)\nmark = {str(mark)!r}\n"
        "if message['routing_key'] == 'first' and not os.path.exists(mark):\n    open(mark, 'w').close()\n    sys.exit(3)",
    )

    process = cli.start("dead", "watch", "--poll", "0.2", "--ack", "--command", command)
    assert ["first\n", "second\n", "first\n"] == [_line(process) for _ in range(3)]
    process.send_signal(signal.SIGTERM)
    _, complaints = process.communicate(timeout=20)

    assert f"The command ended with 3 for message {first}; it stays unacknowledged.\nDead messages: 2 handled.\n" == complaints
    assert {first, second} == {
        str(id_) for (id_,) in seeded.run("SELECT id FROM queue_message_dead_list WHERE acknowledged_at IS NOT NULL")
    }


def test_once_says_by_its_exit_code_that_a_command_failed(cli: Cli, seeded: Seeded) -> None:
    """For cron."""
    seeded.archive("failed")

    cli("dead", "watch", "--once", "--command", "false", code=1)
    cli("dead", "watch", "--once", "--ack", "--command", "true")
    assert [] == cli.json("dead", "list")


def test_a_command_that_takes_too_long_is_killed_with_its_children(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """And counts as failed; a pipe whose writing end they all hold comes to its end."""
    dead = seeded.archive("failed")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    held = f"held = os.open({str(pipe)!r}, os.O_WRONLY)\nos.write(held, b'x')\nsubprocess.run(['sleep', '60'], pass_fds=[held])"

    cli("dead", "watch", "--once", "--timeout", "1", "--command", _script(tmp_path, held), code=1)

    assert (
        f"The command took longer than 1 s for message {dead} and was killed.\nDead messages: 0 handled, 1 waits for another try.\n"
        == cli.stderr
    )
    assert b"x" == os.read(reader, 1)
    assert select.select([reader], [], [], 5)[0], "a child of the command still runs"
    assert b"" == os.read(reader, 1)
    os.close(reader)


def test_sigterm_lets_the_command_finish_and_a_second_one_kills_it(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """What was handled is acknowledged; what was killed is not."""
    seeded.archive("failed", routing_key="finishes")
    go = tmp_path / "go"
    os.mkfifo(go)
    command = _script(tmp_path, f"print(os.getppid(), flush=True)\nopen({str(go)!r}).read()")
    process = cli.start("dead", "watch", "--poll", "0.2", "--ack", "--command", command)
    assert f"{process.pid}\n" == _line(process)
    process.send_signal(signal.SIGTERM)
    go.write_text("")
    process.communicate(timeout=20)
    assert (0, []) == (process.returncode, cli.json("dead", "list"))

    seeded.archive("failed", routing_key="hangs")
    process = cli.start("dead", "watch", "--poll", "0.2", "--ack", "--command", command)
    _line(process)
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert (0, 1) == (process.returncode, len(cli.json("dead", "list")))


def test_a_command_gets_few_variables_and_no_secret(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """In addition to PATH and the like, it gets only the variables that --env names."""
    seeded.archive("failed")
    cli.env |= {
        "RELAY_WEBHOOK_SECRET": "whsec_" + "QUFB" * 8,
        "PGPASSWORD": "secret",
        "TOKEN": "given",
        "OTHER": "not given",
        "PATH": os.environ["PATH"],
    }
    command = _script(tmp_path, "print(json.dumps(dict(os.environ)), flush=True)")

    process = cli.start("dead", "watch", "--once", "--env", "TOKEN", "--command", command)
    got = json.loads(process.communicate(timeout=30)[0])

    assert {"PATH", "TOKEN"} == got.keys() - {"LC_CTYPE"}


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (["--exchange", "audit"], ["c"]),
        (["--result", "rejected"], ["b_x"]),
        (["--code", "nacked"], ["a%x"]),
        (["--routing-key", "*x"], ["a%x", "b_x"]),
        (["--routing-key", "a%*"], ["a%x"]),
        (["--routing-key", "_*", "--code", "nacked"], []),
    ],
)
def test_a_filter_leaves_the_others_alone(cli: Cli, seeded: Seeded, options: list[str], keys: list[str]) -> None:
    """They must meet all that is given; a star is the one letter with a meaning."""
    seeded.archive("failed", "nacked", routing_key="a%x")
    seeded.archive("rejected", "too_large", routing_key="b_x")
    seeded.archive("failed", "unroutable", exchange="audit", routing_key="c")

    printed = cli("dead", "watch", "--once", "--json", *options)

    assert keys == [json.loads(line)["routing_key"] for line in printed.splitlines()]


def test_what_died_again_under_the_same_id_meanwhile_is_not_acknowledged(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """An answer is to the one that was handled."""
    dead = seeded.archive("failed", routing_key="first")
    go = tmp_path / "go"
    os.mkfifo(go)
    process = cli.start("dead", "watch", "--ack", "--command", _script(tmp_path, f"print(flush=True)\nopen({str(go)!r}).read()"))
    _line(process)
    cli("dead", "replay", "--same-id", dead)
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'failed', NULL, NULL, 'relay-1') FROM queue_message")
    process.send_signal(signal.SIGTERM)
    go.write_text("")
    process.communicate(timeout=20)

    assert [dead] == [row["id"] for row in cli.json("dead", "list")]


@pytest.mark.parametrize("command", ["no-such-program-anywhere", "", "'"])
def test_a_command_that_cannot_run_is_a_usage_error(cli: Cli, command: str) -> None:
    """It is said at once, not at the first dead message."""
    assert "--command" in cli.refused("dead", "watch", "--command", command, code=2)


def test_a_lost_connection_is_waited_out(cli: Cli, seeded: Seeded) -> None:
    """The watch prints one sentence and continues where it was. It prints nothing twice."""
    seeded.archive("failed", routing_key="before")
    process = cli.start("dead", "watch", "--poll", "0.2")
    assert "'before'" in _line(process)
    seeded.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'outbox-relay console'")

    assert "'after'" in _line_after(process, lambda: seeded.archive("failed", routing_key="after"))
    process.send_signal(signal.SIGTERM)
    printed, complaints = process.communicate(timeout=20)
    assert "" == printed
    assert "The watch connects again." in complaints


class _Recorder:
    """Handles by noting."""

    acts = False
    name = "recorder"

    def __init__(self) -> None:
        self.keys: list[str] = []

    def handle(self, dead: Dead) -> Outcome:
        """See `Handler`."""
        self.keys.append(dead["routing_key"])
        return Handled()

    def cut(self) -> None:
        """See `Handler`."""

    def close(self) -> None:
        """See `Handler`."""


def test_a_message_that_commits_late_is_not_missed(database_url: str, seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settle that began before others and committed after them is below the last position seen. Pages are small here."""
    monkeypatch.setattr(cursor, "PAGE", 2)
    recorder = _Recorder()
    watch = DeadWatch(WatchPlan(handlers=[recorder]), stopped=lambda: False)
    late = seeded.insert(routing_key="late")
    with OperatorSession(database_url, schema="public") as opened, psycopg.connect(database_url) as slow:
        slow.execute("SELECT queue_message_archive_now(ARRAY[%s::uuid], 'failed', NULL, NULL, 'slow')", [late])
        for number in range(3):
            seeded.archive("failed", routing_key=str(number))
        watch.round(opened)
        slow.commit()
        watch.round(opened)
        watch.round(opened)

    assert ["0", "1", "2", "late"] == recorder.keys
