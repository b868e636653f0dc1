"""`relay demo` of the built wheel: it adds up, it notices when it does not, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from relay.demo import ledger
from relay.devservers.find import find_rabbitmq
from relay.devservers.process import family
from tests.support.relays.demos import Run, begun, check, play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LIMIT = 90
"""Seconds that the demo may take once the servers' programs are on the machine."""
MISLEADING = {
    "RELAY_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing",
    "RELAY_AMQP_URL": "amqp://127.0.0.1:1/",
    "RELAY_LOCK_SECONDS": "86400",
    "AMQP_URL": "amqp://127.0.0.1:1/",
    "PGHOST": "127.0.0.1",
    "PGPORT": "1",
}
"""Settings of the user's that the demo must not look at."""
SCENES = (
    *("contract", "schedule", "dedup_key", "coalesce_key", "bundle_key", "relay cancel"),
    *("relay.traceparent", "inbox", "url_fetch", "relay dead watch"),
)
"""What the rows of the last table begin with."""


@pytest.fixture(scope="module")
def environment() -> Mapping[str, str]:
    """The user's environment, full of settings of the user's own."""
    find_rabbitmq(say=print)  # so that no download counts
    return {**os.environ, **MISLEADING}


@pytest.fixture(scope="module")
def run(wheel_relay: Path, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Play the demo once, from a folder with nothing but a misleading `.env`."""
    folder = tmp_path_factory.mktemp("ledger")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / ".env").write_text("".join(f"{name}={value}\n" for name, value in MISLEADING.items()))
    return play(wheel_relay, "demo", "--ledger", folder=folder, cwd=elsewhere, env=environment)


@pytest.mark.ids("A2", "A8", "A9", "A10", "A12", "A24", "C1", "C18")
def test_every_committed_message_is_accounted_for(run: Run) -> None:
    """One relay is killed over its messages, and yet each one is delivered or dead, none lost, none from a rolled-back transaction."""
    assert run.code == 0, run.output
    report = ledger.check(run.folder)
    assert [] == report.mismatches(recovery_limit=15)
    assert report.committed == report.delivered + report.dead
    assert report.in_flight > 0
    assert report.rolled_back > 0
    assert {"rejected", "failed", "lock_expired"} <= set(re.findall(r"rejected|failed|lock_expired", run.output))
    assert run.seconds <= LIMIT


def test_the_summary_explains_a_dead_message_and_how_to_look_further(run: Run) -> None:
    """The story of one dead message, and the line for psql."""
    assert "It adds up." in run.output
    assert re.search(r"error detail +No queue takes routing key 'order.placed' of exchange 'shop.audit'", run.output), run.output
    assert re.search(r"psql postgresql://\S+ -c ", run.output), run.output


@pytest.mark.ids("A16", "A36", "A37", "C16", "D7")
def test_it_shows_one_of_each_thing_that_a_relay_does_for_an_application(run: Run) -> None:
    """Contract, schedule, keys, cancel, trace, inbox and worker, and a watch that answers what is dead: each as it must be."""
    table = run.output.partition("one of each")[2].partition("It adds up.")[0]
    shown = {words: (found, must_be) for words, found, must_be in re.findall(r"^ *(\S.*?) {2,}(\d+) +(\d+)\s*$", table, re.MULTILINE)}
    for scene in SCENES:
        rows = [words for words in shown if words.startswith(f"{scene}:")]
        assert rows, (scene, run.output)
    assert [] == [words for words, (found, must_be) in shown.items() if found != must_be]
    assert int(shown["inbox: invoices received, handled and booked once"][0]) > 1


def test_a_missing_delivery_is_noticed(run: Run, wheel_relay: Path, tmp_path: Path) -> None:
    """One line less in the consumer's ledger: exit code 1, and a sentence names the message."""
    spoilt = Path(shutil.copytree(run.folder, tmp_path / "spoilt"))
    lines = (run.folder / ledger.CONSUMER).read_text().splitlines(keepends=True)
    once = next(line for line in lines if sum(other.startswith(line[:45]) for other in lines) == 1)
    lines.remove(once)
    (spoilt / ledger.CONSUMER).write_text("".join(lines))

    as_it_was, noticed = (check(wheel_relay, "demo", folder=folder) for folder in (run.folder, spoilt))

    assert (0, 1) == (as_it_was.returncode, noticed.returncode), as_it_was.stdout + noticed.stdout
    assert re.search(r"WRONG: 1 message, such as \S+: archived as a success without a delivery\.", noticed.stdout)


class Started(NamedTuple):
    """A demo that has got to the point where two relays run."""

    process: subprocess.Popen[str]
    ports: list[int]
    temporary: Path


@pytest.fixture
def started(wheel_relay: Path, environment: Mapping[str, str], tmp_path: Path) -> Iterator[Started]:
    """Start a demo, and wait for its relays."""
    with begun(wheel_relay, "demo", until="are ready", cwd=tmp_path, env=environment) as (process, said):
        yield Started(process, [int(port) for port in re.findall(r"on port (\d+)", said)], tmp_path)


def commands(pids: list[int]) -> list[str]:
    """What these processes run; one that has ended, and only waits to be reaped by somebody else, runs nothing."""
    found: list[str] = []
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
    return [command for command in found if command]


@pytest.mark.ids("D1", "D9")
def test_a_stopped_demo_leaves_nothing_behind(started: Started) -> None:
    """Two servers and two relays, no JVM; after SIGTERM none of their processes is left, no port is taken and no file stays."""
    running = family(started.process.pid)
    assert 2 == sum("-m relay run" in command for command in commands(running))
    assert not any("java" in command for command in commands(running))

    started.process.send_signal(signal.SIGTERM)

    assert 128 + signal.SIGTERM == started.process.wait(timeout=60)
    assert [] == commands(running)
    assert [] == list(started.temporary.iterdir())
    for port in started.ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
