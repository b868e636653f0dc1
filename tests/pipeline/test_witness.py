"""The look sees the lake as it is: a lost file is named, keeps its day, and is forgotten once it is repaired."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.errors import PipelineError
from relay.pipeline.compact import job as compact
from relay.pipeline.lake import data_files, witness
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.lake.witness import is_due
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.support.lake.damaging import LONG_AGO
from tests.support.lake.exporting import export

if TYPE_CHECKING:
    from tests.pipeline.conftest import Archived

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FIRST, SECOND = "queue_message_archive_20240501", "queue_message_archive_20240502"
Sql = Callable[..., list[tuple[Any, ...]]]
Spoil = Callable[[Path], object]


@pytest.fixture
def sql(database_url: str) -> Sql:
    """Run a statement as the owner."""

    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def filled(lake: Lake, database: Database, archived: Archived, sql: Sql) -> Lake:
    """A lake of two days and a dead message, compared and registered."""
    later = {"archived_at": NOON + timedelta(days=1)}
    archived({"content": f'"{"x" * 3000}"'}, {}, later, {**later, "result": "failed"})
    export(lake, database)
    sql("SELECT queue_message_config_set('export_registered', 'true')")
    assert 0 == look(lake, database).exit_code
    return lake


def look(lake: Lake, database: Database) -> verify.Verified:
    """Verify, which looks first."""
    return verify.run(lake=lake, database=database, say=lambda _line: None)


def retain(sql: Sql, day: str = FIRST) -> str:
    """What retention does with a day."""
    return str(sql("SELECT (queue_message_drop_day(%s, true)).action", day)[0][0])


def file_of(lake: Lake, day: str = FIRST) -> Path:
    """The file of a day."""
    [found] = [file for file in files(lake.opened(TABLE)) if f"{file.day:%Y%m%d}" == day[-8:]]
    return Path(lake.place.url, TABLE, found.path)


def truncate(path: Path) -> None:
    """Leave out the last byte."""
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    """Add a byte."""
    path.write_bytes(path.read_bytes() + b"x")


@pytest.mark.parametrize("dropped", [False, True], ids=["here", "dropped"])
@pytest.mark.parametrize(("spoil", "words"), [(Path.unlink, "is missing"), (truncate, "bytes of"), (lengthen, "bytes of")])
def test_a_lost_file_is_named_and_keeps_what_it_may_hold(
    filled: Lake, database: Database, sql: Sql, spoil: Spoil, words: str, dropped: bool
) -> None:
    """This includes a day that only the lake still has; the other day is compared. Once the file is restored, all is well again."""
    path = file_of(filled)
    kept = path.read_bytes()
    if dropped:
        assert "dropped" == retain(sql)
    spoil(path)

    found = look(filled, database)

    [damaged] = [one for one in found.differing if one.state == "damaged"]
    assert (5, FIRST) == (found.exit_code, damaged.partition)
    assert path.name in str(damaged.difference)
    assert words in str(damaged.difference)
    assert [(damaged.difference,)] == sql("SELECT damage FROM queue_message_export WHERE damage IS NOT NULL")
    assert [(1,)] == sql("SELECT export_differing_partitions FROM queue_message_status")
    assert "unchanged" in {one.state for one in found.partitions if one.partition == SECOND}
    if not dropped:
        assert "unverified" == retain(sql)
    assert [(0,)] == sql("SELECT queue_message_delete_dead(now(), true)")

    path.write_bytes(kept)
    assert 0 == look(filled, database).exit_code
    assert [(0,)] == sql("SELECT export_differing_partitions FROM queue_message_status")
    assert [(1,)] == sql("SELECT queue_message_delete_dead(now(), true)")
    if not dropped:
        assert "dropped" == retain(sql)


def empty(lake: Lake) -> None:
    """Remove what is in its folder."""
    shutil.rmtree(lake.place.url)
    Path(lake.place.url).mkdir()


def cut_log(lake: Lake) -> None:
    """Cut the first entry of its log."""
    [first, *_] = sorted(Path(lake.place.url, TABLE, "_delta_log").glob("*.json"))
    first.write_bytes(first.read_bytes()[:-100])


def move_away(lake: Lake) -> None:
    """To another place."""
    Path(lake.place.url).rename(f"{lake.place.url}-elsewhere")


@pytest.mark.parametrize("spoil", [move_away, empty, cut_log])
def test_without_its_lake_postgresql_drops_nothing(filled: Lake, database: Database, sql: Sql, spoil: Callable[[Lake], None]) -> None:
    """From the first look on that does not find it, although it was seen a moment ago; until it is found again."""
    kept = shutil.copytree(filled.place.url, f"{filled.place.url}-kept")
    spoil(filled)

    with pytest.raises(PipelineError):
        look(filled, database)

    assert "unseen" == retain(sql)
    assert [(0,)] == sql("SELECT queue_message_delete_dead(now(), true)")
    assert [(False, True)] == sql("SELECT seen, problem IS NOT NULL FROM queue_message_lake")
    shutil.rmtree(filled.place.url, ignore_errors=True)
    shutil.copytree(kept, filled.place.url)
    assert 0 == look(filled, database).exit_code
    assert "dropped" == retain(sql)


def test_files_that_are_all_gone_are_counted(filled: Lake, database: Database, sql: Sql) -> None:
    """The log alone is left: each day is damaged."""
    for path in Path(filled.place.url, TABLE).rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            path.unlink()

    assert {FIRST, SECOND} == {one.partition for one in look(filled, database).differing}
    assert [(0,)] == sql("SELECT queue_message_delete_dead(now(), true)")
    assert ["unverified", "unverified"] == [retain(sql, day) for day in (FIRST, SECOND)]


def forget(lake: Lake, day: str) -> None:
    """Take the rows of a day off the table, as somebody may by hand, in the lake's own log."""
    lake.opened(TABLE).delete(f"day = '{day}'")


@pytest.mark.parametrize("before", ["unregistered", "another lake", "compared"])
def test_dead_messages_of_dropped_days_are_guarded_in_each_lake(
    lake: Lake, database: Database, archived: Archived, sql: Sql, before: str
) -> None:
    """This includes a day that PostgreSQL dropped before this lake began, so that it was never compared with the lake."""
    archived({}, {"result": "failed"})
    if before != "unregistered":
        first = lake if before == "compared" else Lake(f"{lake.place.url}-before")
        export(first, database)
        look(first, database)
    archived({"archived_at": NOON + timedelta(days=1), "result": "failed"})
    assert "dropped" == sql("SELECT (queue_message_drop_day(%s, false)).action", FIRST)[0][0]
    export(lake, database)
    sql("SELECT queue_message_config_set('export_registered', 'true')")
    assert (0, True) == (look(lake, database).exit_code, sql("SELECT seen FROM queue_message_lake")[0][0])
    forget(lake, "2024-05-01")
    found = look(lake, database)

    assert [(0,)] == sql("SELECT queue_message_delete_dead(now(), true)")
    assert [FIRST] == [one.partition for one in found.differing if one.state == "damaged"]


def test_a_day_that_was_only_seen_counts_as_neither_compared_nor_verified(
    lake: Lake, database: Database, archived: Archived, sql: Sql
) -> None:
    """For the report, PostgreSQL's view and retention; and a lake that comes after knows nothing of it."""
    archived({}, {"result": "failed"})
    export(lake, database)
    witness.run(lake, database, lambda _line: None)

    assert [(FIRST, 2)] == sql("SELECT partition, lake_rows FROM queue_message_export")
    assert [(None,)] == database.fetch("read_last_comparison")
    verdicts = {name: (verdict, rows) for name, _, verdict, rows, *_ in database.fetch("list_verdicts", {"schema": "public", "now": None})}
    assert ("unverified", None) == verdicts[FIRST]
    assert "unverified" == retain(sql)
    database.fetch("follow_lake", {"lake": "another"})
    assert [(None,)] == sql("SELECT lake_rows FROM queue_message_export")


def test_a_changed_byte_is_found_when_the_files_turn_comes(filled: Lake, database: Database, sql: Sql) -> None:
    """This holds wherever it changes a row: the size is as before, so only reading shows it. The file is read until it is repaired."""
    path = file_of(filled)
    kept, rows = path.read_bytes(), pq.read_table(path)
    end = len(kept) - int.from_bytes(kept[-8:-4], "little") - 8  # of the rows; the footer after them has no checksum
    found = 0
    for place in random.Random(1).sample(range(4, end), 25):
        path.write_bytes(kept[:place] + bytes([kept[place] ^ 64]) + kept[place + 1 :])
        sql(LONG_AGO)
        if not witness.run(filled, database, lambda _line: None).damage:
            assert rows == pq.read_table(path)  # a page's header says more than readers need
            continue
        found += 1
        assert "unverified" == retain(sql)
        assert [FIRST] == list(witness.run(filled, database, lambda _line: None).damage)
    path.write_bytes(kept)
    assert found > 10
    witness.run(filled, database, lambda _line: None)
    assert ({}, 0) == ((last := witness.run(filled, database, lambda _line: None)).damage, last.read)
    assert "dropped" == retain(sql)


def test_rows_that_the_log_has_lost_are_told_of(filled: Lake, database: Database, sql: Sql) -> None:
    """This happens where rows are deleted from the table: also next to dead rows of the same day, and in a day that is dropped."""
    witness.run(filled, database, lambda _line: None)
    assert "dropped" == retain(sql, SECOND)
    filled.opened(TABLE).delete("result = 'success'")

    seen = witness.run(filled, database, lambda _line: None)

    assert [FIRST, SECOND] == list(seen.damage)
    assert "its log names 1 row of 2" == seen.damage[SECOND]


def beside(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let the next look's listing of files be followed by what another job does."""
    listed = data_files.sizes

    def list_and_act(*words: Any) -> dict[str, int]:
        found = listed(*words)
        monkeypatch.setattr(witness, "sizes", listed)
        act()
        return found

    monkeypatch.setattr(witness, "sizes", list_and_act)


def test_a_look_that_ends_late_takes_nothing_back_that_a_newer_one_found(
    filled: Lake, database: Database, database_url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had listed the file before it was lost. It looks again, and finds the same."""
    with Database(database_url) as other:

        def lose_and_look() -> None:
            file_of(filled).unlink()
            assert [FIRST] == list(witness.run(filled, other, lambda _line: None).damage)

        beside(monkeypatch, lose_and_look)
        assert [FIRST] == list(witness.run(filled, database, lambda _line: None).damage)
    assert "unverified" == retain(sql)


def test_a_look_that_ends_late_does_not_take_a_lake_for_seen_that_a_newer_one_did_not_find(
    filled: Lake, database: Database, database_url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both say so, and nothing is dropped."""
    with Database(database_url) as other:

        def empty_and_look() -> None:
            empty(filled)
            with pytest.raises(PipelineError):
                witness.run(filled, other, lambda _line: None)

        beside(monkeypatch, empty_and_look)
        with pytest.raises(PipelineError):
            witness.run(filled, database, lambda _line: None)
    assert "unseen" == retain(sql)


def test_a_look_at_a_former_lake_says_nothing_of_the_new_one(
    filled: Lake, database: Database, database_url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it found there is not written, neither damage nor its end."""
    damage = "SELECT partition, damage FROM queue_message_export ORDER BY 1"
    with Database(database_url) as other:

        def follow() -> None:
            export(new, other)
            sql("UPDATE queue_message_export SET damage = 'lost there' WHERE partition = %s", SECOND)

        new = Lake(f"{filled.place.url}-new")
        file_of(filled).unlink()
        beside(monkeypatch, follow)
        with pytest.raises(PipelineError):
            witness.run(filled, database, lambda _line: None)
    assert [(FIRST, None), (SECOND, "lost there")] == [row for row in sql(damage) if row[0] in {FIRST, SECOND}]


def test_a_look_whose_lake_goes_on_looks_again(
    filled: Lake, database: Database, database_url: str, archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Next to an export, what counts as seen is the lake with its last commit."""
    assert 2 == witness.run(filled, database, lambda _line: None).files

    def go_on() -> None:
        archived({})
        with Database(database_url) as other:
            export(filled, other)

    beside(monkeypatch, go_on)
    assert 3 == witness.run(filled, database, lambda _line: None).files


def test_what_compaction_rewrote_is_as_good(filled: Lake, database: Database, archived: Archived) -> None:
    """Other files, the same rows."""
    archived({})
    export(filled, database)
    compact.run(lake=filled, database=database, say=lambda _line: None)

    assert 0 == look(filled, database).exit_code


LOOKS = st.lists(st.floats(min_value=1, max_value=40 * 86_400), min_size=1, max_size=40)


@given(LOOKS, st.text(min_size=1), st.floats(min_value=86_400, max_value=30 * 86_400))
def test_each_file_is_read_once_in_a_period(gaps: list[float], path: str, period: float) -> None:
    """However irregular the looks are: once for each period that passed, except that what was missed meanwhile is read once."""
    now = NOON
    reads = missed = 0
    for gap in gaps:
        since, now = now, now + timedelta(seconds=gap)
        reads += is_due(path, since, now, period)
        missed += gap >= period
    passed = (now - NOON).total_seconds()

    assert all(is_due(path, NOON, NOON + timedelta(seconds=period * times), period) for times in (1, 2.5))
    assert reads <= passed / period + 1
    if not missed:
        assert reads >= int(passed / period)
    assert not is_due(path, None, now, period)
