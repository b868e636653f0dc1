"""`relay pipeline demo` of the built wheel: every row adds up, it notices when one does not, and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from relay.demo.history import ledger
from relay.demo.history.sums import promises, sums
from relay.devservers.find import find_rabbitmq
from relay.devservers.java import find_java
from tests.support.relays.demos import Run, begun, check, play

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(960)]

LIMIT = 900
"""Seconds that the demo may take once the servers' programs and Java are on the machine; seen: 150 to 466 on two busy cores.

Most of it is seven starts of Spark. The limit is there for a wait without an end, not to measure a machine."""
MISLEADING = {"RELAY_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing", "RELAY_LAKE_URL": "s3://nothing/at/all", "PGPORT": "1"}
"""Settings of the user's that the demo must not look at."""


@pytest.fixture(scope="module")
def environment() -> Mapping[str, str]:
    """The user's environment, full of settings of the user's own."""
    find_rabbitmq(say=print)  # so that no download counts
    find_java(say=print)
    return {**os.environ, **MISLEADING}


@pytest.fixture(scope="module")
def run(wheel_relay: Path, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Play the demo once, and keep its ledger, its lake and its report."""
    folder = tmp_path_factory.mktemp("history")
    return play(wheel_relay, "pipeline", "demo", "--folder", folder=folder, cwd=tmp_path_factory.mktemp("elsewhere"), env=environment)


@pytest.fixture
def spoilt(run: Run, tmp_path: Path) -> Path:
    """A copy of ledger and lake, for a test to falsify."""
    return Path(shutil.copytree(run.folder, tmp_path / "spoilt"))


def test_every_archived_row_is_accounted_for(run: Run) -> None:
    """One export is killed, days are dropped, an hour is sent again, and yet each row is in one place and each promise holds."""
    assert 0 == run.code, run.output
    found = ledger.read(run.folder)
    rows = sums(found)
    assert rows.adds_up
    assert rows.checksums[0] == rows.checksums[1]
    assert [] == [one for one in promises(found) if one.broken]
    assert all(number > 0 for number in (rows.dropped, rows.both, rows.kept, rows.later))
    assert found.outcome["left_by_the_kill"] > 0
    assert {"success", "rejected", "failed"} == {row.result for row in found.archived}
    assert run.seconds <= LIMIT


def test_the_report_is_kept_and_named(run: Run) -> None:
    """The last line is where it is; with the page alone one can look at the days that are gone."""
    page = run.folder / "outbox-report.html"

    assert run.output.strip().endswith(f"The report: {page.resolve()}")
    assert "</html>" in page.read_text(encoding="utf-8")


def test_what_was_kept_can_be_checked_again(run: Run, wheel_relay: Path) -> None:
    """The same ledger and lake give the same answer."""
    again = check(wheel_relay, "pipeline", "demo", folder=run.folder)

    assert 0 == again.returncode, again.stdout + again.stderr
    assert "It adds up." in again.stdout


def without_a_line(name: str) -> Callable[[Path], object]:
    """Falsify: one line less in a file of the ledger."""

    def falsify(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[1:]))

    return falsify


def without_a_row(folder: Path) -> None:
    """Falsify: one row less in one file of the lake."""
    DeltaTable(folder / ledger.LAKE / "archive").delete(f"seq = {exported(folder)}")


def with_a_row_twice(folder: Path) -> None:
    """Falsify: write one row of the lake twice."""
    table = DeltaTable(folder / ledger.LAKE / "archive")
    rows = pa.table(table.to_pyarrow_dataset().to_table())
    write_deltalake(table, rows.slice(0, 1), mode="append")


def with_another_content(folder: Path) -> None:
    """Falsify: the content of one row of the lake."""
    DeltaTable(folder / ledger.LAKE / "archive").update({"content": "'{}'"}, predicate=f"seq = {exported(folder)}")


def with_another_count(folder: Path) -> None:
    """Falsify: one message more in the statistics of a day."""
    lines = (folder / ledger.STATS).read_text().splitlines()
    first = json.loads(lines[0])
    (folder / ledger.STATS).write_text("\n".join([json.dumps({**first, "success": first["success"] + 1}), *lines[1:]]))


def exported(folder: Path) -> int:
    """The `seq` of a row that only the lake still has."""
    left = {line["seq"] for line in map(json.loads, (folder / ledger.LEFT).read_text().splitlines())}
    return next(row.identity[1] for row in ledger.lake_rows(folder / ledger.LAKE) if row.identity[1] not in left)


@pytest.mark.parametrize(
    ("falsify", "sentence"),
    [
        (without_a_line(ledger.ARCHIVED), r"rows of the lake that were never archived"),
        (without_a_line(ledger.RECEIVED), r"messages sent, and not received exactly once"),
        (without_a_line(ledger.REPLAYED), r"messages of the hour that were not replayed"),
        (without_a_row, r"rows that are neither in the lake nor in PostgreSQL"),
        (with_a_row_twice, r"rows that are in the lake more than once"),
        (with_another_content, r"rows of the lake with another content"),
        (with_another_count, r"counts of \w+s that differ from the rows"),
    ],
    ids=["archived", "received", "replayed", "lost", "doubled", "changed", "counted"],
)
def test_one_falsified_thing_is_noticed(
    spoilt: Path, wheel_relay: Path, falsify: Callable[[Path], object], sentence: str
) -> None:  # fmt: skip
    """Exit code 1, and a sentence that says what and names one."""
    falsify(spoilt)

    noticed = check(wheel_relay, "pipeline", "demo", folder=spoilt)

    assert 1 == noticed.returncode, noticed.stdout + noticed.stderr
    assert re.search(rf"WRONG: {sentence}: [12], such as \S+", noticed.stdout), noticed.stdout


def test_half_a_ledger_is_refused_with_a_sentence(spoilt: Path, wheel_relay: Path) -> None:
    """A file that is missing is named."""
    (spoilt / ledger.LEFT).unlink()

    refused = check(wheel_relay, "pipeline", "demo", folder=spoilt)

    assert 1 == refused.returncode
    assert "left.jsonl" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_folder_with_a_lake_of_somebody_else_is_left_alone(wheel_relay: Path, tmp_path: Path) -> None:
    """It is not emptied for the demo."""
    precious = tmp_path / ledger.LAKE / "archive" / "part.parquet"
    precious.parent.mkdir(parents=True)
    precious.touch()

    refused = subprocess.run([wheel_relay, "pipeline", "demo", "--folder", tmp_path], capture_output=True, text=True, check=False)

    assert 1 == refused.returncode
    assert "name another folder" in refused.stderr
    assert precious.exists()


@pytest.fixture
def exporting(wheel_relay: Path, environment: Mapping[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a demo, and wait until its first export is at work; a folder in PATH marks every process that comes of it."""
    marked = {**environment, "PATH": f"{tmp_path}/mark:{environment['PATH']}"}
    with begun(wheel_relay, "pipeline", "demo", until="relay pipeline export", cwd=tmp_path, env=marked) as (process, _):
        yield process


def marked(mark: str) -> list[str]:
    """Commands of the processes that have a mark in their environment; one that has ended has none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{mark}/mark:" in (process / "environ").read_text(errors="replace"):
                found.append((process / "cmdline").read_text(errors="replace").replace("\0", " "))
    return found


def test_a_stopped_demo_leaves_nothing_behind(exporting: subprocess.Popen[str], tmp_path: Path) -> None:
    """Servers, relay, Spark and its workers: after SIGTERM none is left, and no file stays."""
    assert any("relay pipeline export" in command for command in marked(str(tmp_path)))

    exporting.send_signal(signal.SIGTERM)

    assert 128 + signal.SIGTERM == exporting.wait(timeout=60)
    assert [] == marked(str(tmp_path))
    assert [] == list(tmp_path.iterdir())
