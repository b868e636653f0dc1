"""The watch over dead messages under faults: killed after it handled, a database that restarts, very many at once, several watches."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay import devservers
from relay.devservers.process import poll
from relay.postgres.schema.migrate import migrate
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.shared import Databases, Say
from tests.support.servers.webhook_receiver import Answer, Got, hook

MANY = 10_000
UNANSWERED = "SELECT count(*) FROM queue_message_dead_list WHERE acknowledged_at IS NULL"


@pytest.fixture(scope="module")
def own_postgres(say: Say) -> Iterator[devservers.Postgres]:
    """A private PostgreSQL, to be restarted."""
    with devservers.postgres(say=say, private=True) as server:
        yield server


@pytest.fixture
def database_url(own_postgres: devservers.Postgres) -> str:
    """A fresh database with the schema, on the private server."""
    databases = Databases(own_postgres.url)
    url = databases.url(databases.create())
    migrate(url)
    return url


def _line(process: subprocess.Popen[str], seconds: float = 60) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], seconds)[0], "nothing was printed"
    return process.stdout.readline()


def _complaint(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], 60)[0], "nothing was said"
    return process.stderr.readline()


def _peak(process: subprocess.Popen[str]) -> int:
    """Kilobytes of memory that a process ever had."""
    [size] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(size)


@pytest.mark.ids("A16")
def test_a_watch_killed_before_it_acknowledged_handles_again(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """At least once: the command has done its work, its watch dies of SIGKILL, and the next one runs it again."""
    dead = seeded.archive("failed")
    done = tmp_path / "done"
    script = tmp_path / "handler.py"
    script.write_text(
        "import json, os, signal, sys\n"
        f"with open({str(done)!r}, 'a') as file:\n    file.write(json.load(sys.stdin)['id'] + '\\n')\n"
        f"if len(open({str(done)!r}).readlines()) == 1:\n    os.kill(os.getppid(), signal.SIGKILL)\n"
    )
    command = f"{sys.executable} {script}"
    process = cli.start("dead", "watch", "--ack", "--command", command)
    process.communicate(timeout=60)
    assert (-signal.SIGKILL, [(1,)]) == (process.returncode, seeded.run(UNANSWERED))

    cli("dead", "watch", "--once", "--ack", "--command", command)

    assert [dead, dead] == done.read_text().split()
    assert [(0,)] == seeded.run(UNANSWERED)


def test_a_database_that_restarts_is_waited_for_and_what_died_meanwhile_is_handled(
    cli: Cli, seeded: Seeded, own_postgres: devservers.Postgres, database_url: str
) -> None:
    """Each is posted once: what was handled before is known, and what the restart kept from being acknowledged is acknowledged after it."""
    first = seeded.archive("failed")
    with hook() as receiver:
        restarted = False

        def answer(_: Got) -> Answer:
            nonlocal restarted
            if not restarted:
                restarted = True
                own_postgres.restart("immediate")
            return Answer()

        receiver.answer = answer
        process = cli.start(
            "dead", "watch", "--poll", "0.2", "--ack", "--webhook", receiver.url, "--allow-private", "--unsigned", "--timeout", "60"
        )
        assert first == json.loads(receiver.next(60).body)["data"]["id"]
        _complaint(process)
        assert "The watch connects again." in _complaint(process)
        seeded.close()
        again = Seeded(database_url)
        second = again.archive("failed")
        assert second == json.loads(receiver.next(60).body)["data"]["id"]
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)

        assert receiver.got.empty()
    assert "Dead messages: 2 handled." in complaints
    assert [(0,)] == again.run(UNANSWERED)
    again.close()


def test_ten_thousand_at_once_are_each_told_once_in_bounded_memory(cli: Cli, seeded: Seeded) -> None:
    """Page by page, in the order in which they died; of their notifications none is needed."""
    process = cli.start("dead", "watch", "--json", "--poll", "3600")
    seeded.archive("failed", routing_key="first")
    assert "first" == json.loads(_line(process))["routing_key"]
    before = _peak(process)
    seeded.run("INSERT INTO queue_message (exchange, routing_key) SELECT 'orders', n::text FROM generate_series(1, %s) n", MANY)
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'failed', 'x', repeat('y', 2000), 'relay-1') FROM queue_message")

    assert process.stdout is not None
    # Not by `_line`: what has been read ahead is no more in the pipe that it looks at.
    keys = [int(json.loads(process.stdout.readline())["routing_key"]) for _ in range(MANY)]

    assert list(range(1, MANY + 1)) == keys
    assert _peak(process) - before < 24 << 10
    process.send_signal(signal.SIGTERM)
    assert ("", "") == process.communicate(timeout=60)


def test_of_two_watches_with_the_same_handlers_one_is_at_work(cli: Cli, seeded: Seeded) -> None:
    """The other takes over when the first is killed. A watch with another filter works alongside them."""
    watch = ("dead", "watch", "--poll", "0.2", "--ack", "--log", "--json", "--command", "true")
    first = cli.start(*watch)
    seeded.archive("failed", routing_key="one")
    assert "one" == json.loads(_line(first))["routing_key"]
    second = cli.start(*watch)
    assert "Another watch with the same handlers is at work; this one waits.\n" == _complaint(second)
    cli(*watch, "--once")
    assert "Another watch" in cli.stderr
    seeded.archive("failed", routing_key="two")
    assert "two" == json.loads(_line(first))["routing_key"]
    seeded.archive("failed", routing_key="mine", exchange="audit")
    assert "mine" == json.loads(_line(first))["routing_key"]

    assert poll(lambda: seeded.run(UNANSWERED) == [(0,)], seconds=60)

    first.kill()
    first.wait()
    seeded.archive("failed", routing_key="three")
    assert "three" == json.loads(_line(second))["routing_key"]
    cli(*watch, "--once", "--exchange", "beside")
    assert "Another watch" not in cli.stderr
