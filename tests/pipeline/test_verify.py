"""Verification: what is compared, what PostgreSQL learns of it, and that the core drops by it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay.errors import LakeError, PipelineError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.replay import job as replay
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from relay.pipeline.verify.comparison import Difference
from relay.pipeline.verify.job import Compared
from tests.support.database import archives
from tests.support.lake.exporting import Rows, export
from tests.support.servers.logins import login

if TYPE_CHECKING:
    from tests.pipeline.conftest import Archived

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
FIRST, SECOND = "queue_message_archive_20240501", "queue_message_archive_20240502"
DEAD = "queue_message_dead"
Verify = Callable[..., dict[str, Compared]]


@pytest.fixture
def verified(lake: Lake, database: Database) -> Verify:
    """Verify and return what was found by partition, without the days that have no row."""

    def run(**options: Any) -> dict[str, Compared]:
        found = verify.run(lake=lake, database=database, say=lambda _line: None, **options).partitions
        return {one.partition: one for one in found if one.rows or one.lake_rows}

    return run


@pytest.fixture
def sql(database_url: str) -> Callable[..., list[tuple[Any, ...]]]:
    """Run a statement as the owner."""

    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(database_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    return run


Sql = Callable[..., list[tuple[Any, ...]]]


def retain(sql: Sql, day: str) -> str:
    """What retention does with a day now that an export is registered."""
    sql("SELECT queue_message_config_set('export_registered', 'true')")
    return str(sql("SELECT (queue_message_drop_day(%s, true)).action", day)[0][0])


@pytest.mark.slow
def test_a_content_that_cannot_be_printed_keeps_no_other_row_from_the_lake(
    lake: Lake, database: Database, archived: Archived, verified: Verify
) -> None:
    """It is null there; the row counts as verified, so that retention may delete it, and a replay says what is wrong with it."""
    archived({"result": "failed"})
    with database.connection() as connection:
        archives.insert_unprintable(connection)
    export(lake, database)

    rows = lake.dataset("archive").to_table(columns=["error_code", "content"]).to_pylist()
    assert {None: '{"total": 1}', "content_unprintable": None} == {row["error_code"]: row["content"] for row in rows}
    assert {DEAD: ("verified", 2)} == {name: (one.state, one.rows) for name, one in verified().items()}
    done = replay.run(lake=lake, database=database, say=lambda _line: None, selection=Selection(exchange="orders"))
    assert (1, 1) == (done.enqueued, done.refused)
    assert archives.NO_REPLAY == done.refusals[0].reason


def test_equal_days_are_verified_and_then_dropped(lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql) -> None:
    """Successes and discarded messages by day, dead ones apart; also where both share a UTC day of the lake."""
    archived({}, {"result": "discarded"}, {"result": "failed"}, {"archived_at": NOON + timedelta(days=1)})
    below = export(lake, database)

    found = verified()

    assert {FIRST: ("verified", 2), SECOND: ("verified", 1), DEAD: ("verified", 1)} == {
        name: (one.state, one.rows) for name, one in found.items()
    }
    kept = sql(
        "SELECT partition, rows, checksum::text, exported_xid::text FROM queue_message_export WHERE verified_at IS NOT NULL AND rows > 0"
    )
    assert sorted((name, one.rows, one.checksum, str(below)) for name, one in found.items()) == sorted(kept)
    assert "dropped" == retain(sql, FIRST)


def test_the_last_microsecond_of_a_day_belongs_to_it(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql
) -> None:
    """Bounds are those of UTC, whatever the server's time zone is."""
    sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), 'Pacific/Apia'); END $$")
    midnight = datetime(2024, 5, 2, tzinfo=UTC)
    archived({"archived_at": midnight - timedelta(microseconds=1)}, {"archived_at": midnight})
    database.close()
    export(lake, database)

    assert {FIRST: 1, SECOND: 1} == {name: one.rows for name, one in verified().items() if one.state == "verified"}


def test_days_that_are_not_over_are_left_out(lake: Lake, database: Database, archived: Archived, verified: Verify) -> None:
    """A day is over at midnight in UTC."""
    archived({}, {"archived_at": NOON + timedelta(days=1)})
    export(lake, database)

    assert {FIRST} == verified(now=NOON + timedelta(days=1)).keys()
    assert {FIRST, SECOND} == verified(now=datetime(2024, 5, 3, tzinfo=UTC)).keys()


def spoil(kind: str) -> Callable[[Rows], Rows]:
    """Change the rows on their way into the lake."""

    def change(found: Rows) -> Rows:
        if kind == "missing":
            return found[1:]
        if kind == "extra":
            return [*found, dict(found[0])]
        if kind == "beside":
            return [*found, {**found[0], "error_detail": ""}]
        return [{**found[0], "error_detail": ""}, *found[1:]]

    return change


@pytest.mark.parametrize("kind", ["missing", "extra", "different"])
def test_a_difference_keeps_the_day_and_names_the_row(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql, kind: str
) -> None:
    """A row that is not in the lake, is there twice, or has one null more: exit code 5, a sentence, and the day stays."""
    [(xid, seq), *_] = archived({}, {}, {})
    export(lake, database, spoil(kind))

    result = verify.run(lake=lake, database=database, say=lambda _line: None)
    [found] = result.differing

    assert (5, FIRST, (Difference(kind, xid, seq),)) == (result.exit_code, found.partition, found.findings)
    assert [(None, found.difference)] == sql("SELECT verified_at, difference FROM queue_message_export WHERE partition = %s", FIRST)
    assert f"({xid}, {seq})" in str(found.difference)
    assert [(1,)] == sql("SELECT export_differing_partitions FROM queue_message_status")
    assert "unverified" == retain(sql, FIRST)


@pytest.mark.parametrize(("kind", "told"), [("missing", "missing"), ("extra", "extra"), ("different", "different"), ("beside", "extra")])
def test_a_dead_message_that_differs_is_named(
    lake: Lake, database: Database, archived: Archived, verified: Verify, kind: str, told: str
) -> None:
    """A second row of one that PostgreSQL still has was not deleted by retention, be it the same or another version of it."""
    [(xid, seq), *_] = archived({"result": "failed", "error_detail": "x"}, {"result": "failed"})
    export(lake, database, spoil(kind))

    found = verified()[DEAD]

    assert ("differs", (Difference(told, xid, seq),)) == (found.state, found.findings)


def test_a_difference_that_was_mended_is_forgotten(lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql) -> None:
    """The next verification compares the day again, although it was compared before."""
    archived({}, {})
    held: Rows = []
    export(lake, database, lambda found: held.extend(found[:1]) or found[1:])  # type: ignore[func-returns-value]
    assert "differs" == verified()[FIRST].state

    archived({"result": "failed"})
    export(lake, database, lambda found: [*held, *found])

    assert "verified" == verified()[FIRST].state
    assert [(0,)] == sql("SELECT export_differing_partitions FROM queue_message_status")


def test_at_most_twenty_rows_are_named(lake: Lake, database: Database, archived: Archived, verified: Verify) -> None:
    """However many are missing, together or far apart, the counts say how many."""
    archived(*({"seq": 1 + number % 25 * 4096 + number // 25} for number in range(50)))
    export(lake, database, lambda _found: [])

    found = verified()[FIRST]

    assert (20, 50, 0) == (len(found.findings), found.rows, found.lake_rows)


def test_a_day_with_a_message_that_is_not_exported_is_not_verified(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql
) -> None:
    """What is in the lake is equal, so it is no alarm; after the export of the rest the day is verified."""
    archived({})
    export(lake, database)
    archived({})

    found = verified()[FIRST]
    assert ("unexported", 1, None) == (found.state, found.rows, found.difference)
    assert "unverified" == retain(sql, FIRST)
    export(lake, database)
    assert ("verified", 2) == (verified()[FIRST].state, verified()[FIRST].rows)
    assert "dropped" == retain(sql, FIRST)


def test_a_message_between_verification_and_drop_keeps_the_day(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql
) -> None:
    """The core looks once more; export and verification then cover it, and the day goes."""
    archived({})
    export(lake, database)
    assert "verified" == verified()[FIRST].state
    archived({})

    assert "unverified" == retain(sql, FIRST)
    export(lake, database)
    assert ("verified", 2) == (verified()[FIRST].state, verified()[FIRST].rows)
    assert "dropped" == retain(sql, FIRST)


def test_nothing_is_concluded_while_an_older_version_may_record_its_own_checksum(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql
) -> None:
    """It is served as long as the lake is of its form. What it records says no form, so all is compared once more until it is refused."""
    archived({}, {"result": "failed"})
    export(lake, database)
    lake.opened("archive").alter.set_table_properties({"outbox_relay.format": "1"}, raise_if_not_exists=False)
    first = verified()
    sql("UPDATE queue_message_export SET checksum = 7, compared_at = now()")

    again = verified()
    lake.opened("archive").alter.set_table_properties({"outbox_relay.format": "2"}, raise_if_not_exists=False)

    assert [("verified", first[name].checksum) for name in (FIRST, DEAD)] == [
        (again[name].state, again[name].checksum) for name in (FIRST, DEAD)
    ]
    assert ["verified", "unchanged"] == [verified()[FIRST].state for _ in range(2)]


def test_what_was_verified_is_compared_again_only_when_asked(
    lake: Lake, database: Database, archived: Archived, verified: Verify, tmp_path: Any
) -> None:
    """It is also compared after an addition, or when another lake is there: what one lake holds says nothing of the other."""
    archived({})
    export(lake, database)

    assert ["verified", "unchanged", "verified"] == [verified(again=again)[FIRST].state for again in (False, False, True)]
    archived({})
    export(lake, database)
    assert ("verified", 2) == (verified()[FIRST].state, verified()[FIRST].rows)
    other = Lake(str(tmp_path / "other"))
    export(other, database, lambda _found: [])
    [found] = verify.run(lake=other, database=database, say=lambda _line: None).differing
    assert FIRST == found.partition


def test_a_day_that_retention_drops_meanwhile_is_no_difference(lake: Lake, database: Database, archived: Archived, sql: Sql) -> None:
    """What the lake has and PostgreSQL has not is then as it should be."""
    archived({}, {"archived_at": NOON + timedelta(days=1)})
    export(lake, database)

    def say(line: str) -> None:
        if line.startswith(FIRST):
            sql(f"DROP TABLE {SECOND}")

    result = verify.run(lake=lake, database=database, say=say)

    assert (0, False) == (result.exit_code, SECOND in {one.partition for one in result.partitions})


def test_an_export_that_commits_meanwhile_is_no_difference(lake: Lake, database: Database, archived: Archived, sql: Sql) -> None:
    """What was archived above the bound is left out on both sides, wherever it is by now."""
    archived({}, {"archived_at": NOON + timedelta(days=1)})
    export(lake, database)

    def say(line: str) -> None:
        if line.startswith(FIRST):
            archived({"archived_at": NOON + timedelta(days=1)})
            export(lake, database)

    found = {one.partition: one.state for one in verify.run(lake=lake, database=database, say=say).partitions}

    assert ("verified", "unexported") == (found[FIRST], found[SECOND])


def test_dead_messages_that_retention_deleted_are_no_difference(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql
) -> None:
    """The lake keeps them; those that PostgreSQL has must all be there."""
    archived(*({"result": "failed", "archived_at": NOON + timedelta(minutes=minute % 2)} for minute in range(6)))
    export(lake, database)
    assert "verified" == verified()[DEAD].state
    sql("DELETE FROM queue_message_export WHERE partition <> %s", DEAD)
    delete = "SELECT set_config('relay.retention', 'on', false); DELETE FROM queue_message_dead WHERE seq IN (2, 3)"
    sql(delete)

    found = verified(again=True)[DEAD]
    assert ("verified", 4, 6) == (found.state, found.rows, found.lake_rows)
    archived({"result": "rejected"})
    export(lake, database, lambda _found: [])
    found = verified()[DEAD]
    assert ("differs", ["missing"]) == (found.state, [one.kind for one in found.findings])


def test_a_column_that_the_lake_does_not_have_yet_counts_as_null(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql
) -> None:
    """A migration between export and verification is no difference; a value in it is."""
    archived({})
    export(lake, database)
    sql("ALTER TABLE queue_message_archive ADD COLUMN tenant text")
    assert "verified" == verified()[FIRST].state

    sql("SET session_replication_role = replica; UPDATE queue_message_archive SET tenant = 'a shop'")
    assert "differs" == verified(again=True)[FIRST].state


def test_dead_messages_are_compared_to_the_end_of_all_times(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql
) -> None:
    """The last microsecond that a lake has is compared like any other, and an infinite time, which none has, is a difference."""
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    archived({"result": "failed", "archived_at": last})
    export(lake, database)
    sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), 'Pacific/Kiritimati'); END $$")
    database.close()
    found = verified()[DEAD]
    assert ("verified", 1, 1) == (found.state, found.rows, found.lake_rows)

    for time in ("infinity", "-infinity", "10000-01-01"):
        sql(f"SET session_replication_role = replica; UPDATE queue_message_dead SET archived_at = '{time}'")
        found = verified(again=True)[DEAD]
        assert ("differs", 1, ["different"]) == (found.state, found.rows, [one.kind for one in found.findings])


def test_rows_of_another_clusters_dump_are_compared_and_go(
    lake: Lake, database: Database, archived: Archived, verified: Verify, sql: Sql
) -> None:
    """Their transaction ids are of the future; the export took them when it began, and a lost one is found all the same."""
    future = {"archived_xid": "9000000000000"}
    archived({}, future, {"result": "failed", **future})
    export(lake, database)
    assert [(FIRST, "missing"), (DEAD, "missing")] == [(one.partition, one.findings[0].kind) for one in verified().values() if one.findings]

    whole = Lake(f"{lake.place.url}-whole")
    export(whole, database, foreign=True)
    found = verify.run(lake=whole, database=database, say=lambda _line: None)

    assert (0, {"verified"}) == (found.exit_code, {one.state for one in found.partitions})
    assert [(1,)] == sql("SELECT queue_message_delete_dead(now(), true)")
    assert "dropped" == retain(sql, FIRST)


def test_nothing_exported_is_one_sentence(lake: Lake, database: Database) -> None:
    """It says what to run."""
    with pytest.raises(LakeError, match="run `relay pipeline export`"):
        verify.run(lake=lake, database=database, say=lambda _line: None)


@pytest.mark.parametrize(("name", "value"), [("system_identifier", "1"), ("timeline", "77"), ("database", "other"), ("schema", "other")])
def test_a_lake_of_somebody_else_is_refused(lake: Lake, database: Database, archived: Archived, sql: Sql, name: str, value: str) -> None:
    """Transaction ids of another cluster or timeline say nothing; no verification is written or taken back."""
    archived({})
    export(lake, database)
    lake.opened("archive").alter.set_table_properties({f"outbox_relay.{name}": value}, raise_if_not_exists=False)

    with pytest.raises(PipelineError, match=r"run `relay pipeline export --adopt`"):
        verify.run(lake=lake, database=database, say=lambda _line: None)
    assert [] == sql("TABLE queue_message_export")


def test_the_exports_login_does_all_of_it_and_no_other(
    lake: Lake, database: Database, database_url: str, archived: Archived, sql: Sql
) -> None:
    """A real login with queue_message_etl verifies, and is one with the lake; without it one sentence names the role."""
    archived({}, {"result": "failed"})
    with login(database_url, "queue_message_etl") as url, Database(url) as etl:
        end = export(lake, etl)
        result = verify.run(lake=lake, database=etl, say=lambda _line: None)
    with login(database_url) as url, Database(url) as nobody, pytest.raises(PipelineError, match="relay grant etl LOGIN"):
        verify.run(lake=lake, database=nobody, say=lambda _line: None)

    assert {"verified"} == {one.state for one in result.partitions}
    assert [(str(end),)] == sql("SELECT exported_xid::text FROM queue_message_export_position")


def test_progress_is_told_line_by_line(lake: Lake, database: Database, archived: Archived) -> None:
    """Each partition with its rows and what was found."""
    archived({}, {}, {"result": "failed"})
    export(lake, database, lambda found: found[1:])
    lines: list[str] = []

    verify.run(lake=lake, database=database, say=lines.append)

    assert any(
        line.startswith(f"{FIRST} DIFFERS and is kept: PostgreSQL has 2 rows and the lake 1; missing in the lake: (") for line in lines
    )
    assert "dead messages: 1 row, verified" in lines
