"""Erasure in the lake: which messages lose their contents, what their rows are then, and when PostgreSQL comes first."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from relay.errors import LakeError, PipelineError
from relay.pipeline.compact import job as compact
from relay.pipeline.erase import archive_check
from relay.pipeline.erase import job as erase
from relay.pipeline.lake import witness
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.delta_log import files
from relay.pipeline.replay import job as replay
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.pipeline.conftest import Archived
from tests.support.lake.adding import NOON
from tests.support.lake.compacting import quiet
from tests.support.lake.contents import in_lake, in_postgres
from tests.support.lake.damaging import flip, make_due
from tests.support.lake.erasing import SECRET, erase_in_postgres, erased_in
from tests.support.lake.exporting import export
from tests.support.servers.logins import login

A, B, C, OTHER = (str(UUID(int=number)) for number in range(1, 5))


def check_same(lake: Lake, database: Database, url: str) -> None:
    """Both sides have the same rows, by a look and by a verification of everything."""
    assert in_postgres(url) == in_lake(lake)
    check_verified(lake, database)


def check_verified(lake: Lake, database: Database) -> None:
    """A verification of everything finds no difference."""
    found = verify.run(lake=lake, database=database, say=quiet, again=True)
    assert {"verified"} == {one.state for one in found.partitions}


def test_a_message_that_is_named_by_its_id_loses_its_contents(
    lake: Lake, database: Database, database_url: str, archived: Archived
) -> None:
    """Its row is as in PostgreSQL then; each other row and the order of rows are as before, and a second run finds nothing."""
    archived({"id": OTHER, **SECRET}, {"id": A, **SECRET}, {"id": B, "content": "[]"})
    export(lake, database)
    before, columns = in_lake(lake), [field.name for field in lake.dataset(TABLE).schema]
    erase_in_postgres(database_url, f"id = '{A}'")

    done = erase.run(lake=lake, database=database, say=quiet, ids=[A])

    assert (1, (NOON.date(),), 1, 0, None, 0) == (done.messages, done.days, done.files, done.current, done.failure, done.exit_code)
    new = dict(zip(columns, in_lake(lake)[1], strict=True))
    assert {"content": "{}", "body": None, "options": '{"erased": true}', "ordering_key": None, "error_detail": None} == {
        name: new[name] for name in SECRET
    }
    assert [before[0], before[2]] == [in_lake(lake)[0], in_lake(lake)[2]]
    assert [1, 2, 3] == lake.dataset(TABLE).to_table(["seq"])["seq"].to_pylist()
    check_same(lake, database, database_url)
    again = erase.run(lake=lake, database=database, say=quiet, ids=[A])
    assert (0, 0, 0) == (again.messages, again.files, again.exit_code)


def test_a_key_means_exactly_this_key(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """An empty key is a key too; a longer one, one in other letters and none are others."""
    archived(*({"ordering_key": key} for key in ("k", "k1", "K", None, "", "k")))
    export(lake, database)
    erase_in_postgres(database_url, "ordering_key IN ('k', '')")

    assert 2 == erase.run(lake=lake, database=database, say=quiet, keys=["k"]).messages
    assert [1, 6] == erased_in(lake)
    assert 1 == erase.run(lake=lake, database=database, say=quiet, keys=[""]).messages
    check_same(lake, database, database_url)


def test_replays_of_replays_are_meant_too(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """Whatever file each is in; the replay of another message is not."""
    archived({"id": C, "replay_of": B}, {"id": OTHER, "replay_of": OTHER})
    export(lake, database)
    archived({"id": A})
    export(lake, database)
    archived({"id": B, "replay_of": A})
    export(lake, database)
    erase_in_postgres(database_url, f"id <> '{OTHER}'")

    assert 3 == erase.run(lake=lake, database=database, say=quiet, ids=[A.upper()]).messages

    assert [1, 3, 4] == erased_in(lake)
    check_same(lake, database, database_url)


def test_a_replay_has_the_key_of_its_message(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """So a key leads to all replays of its messages; one from the lake copies it too."""
    archived({"id": A, "ordering_key": "k"}, {"id": B})
    export(lake, database)
    with psycopg.connect(database_url) as owner:
        owner.execute("SELECT public.queue_message_replay(%s, true)", [A])
    replay.run(lake=lake, database=database, say=quiet, selection=Selection(ids=(A, B)), job="again")

    with psycopg.connect(database_url) as owner:
        assert [(A, "k"), (A, "k"), (B, None)] == owner.execute(
            "SELECT replay_of::text, ordering_key FROM public.queue_message ORDER BY 1, seq"
        ).fetchall()


def check_shared(lake: Lake, database: Database, id_: str, *ids: str) -> None:
    """The id is refused, as several messages have it, and nothing is written."""
    version = lake.opened(TABLE).version()
    words = f"Several messages have the id {id_}, and nothing was erased: `relay show {id_}` shows their places, ID@XID/SEQ names one."
    with pytest.raises(PipelineError) as refusal:
        erase.run(lake=lake, database=database, say=quiet, ids=ids)
    assert (words, version) == (str(refusal.value), lake.opened(TABLE).version())


def test_an_id_that_several_messages_have_is_refused(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """Producers choose ids. A place means its row alone: nobody knows whose the replays are."""
    [(xid, seq)] = archived({"id": A})
    export(lake, database)
    archived({"id": A}, {"id": A, "replay_of": A}, {"id": B, "replay_of": A})
    export(lake, database)
    check_shared(lake, database, A, A)
    erase_in_postgres(database_url)
    check_shared(lake, database, A, A)
    check_shared(lake, database, A, A, f"{A}@{xid}/{seq}")

    done = erase.run(lake=lake, database=database, say=quiet, ids=[f"{A}@{xid}/{seq}", f"{OTHER}@{1 << 64}/1"])

    assert (1, [1]) == (done.messages, erased_in(lake))
    assert 0 == erase.run(lake=lake, database=database, say=quiet, ids=[f"{A}@{xid}/{seq}"]).messages


def test_a_message_in_old_files_or_a_replay_with_its_id_is_no_second_one(
    lake: Lake, database: Database, database_url: str, archived: Archived
) -> None:
    """Compaction writes a row again; a replay may keep the id of its message."""
    for row in ({"id": A}, {"id": A, "replay_of": A}):
        archived(row)
        export(lake, database)
    compact.run(lake=lake, database=database, say=quiet)
    erase_in_postgres(database_url)

    assert (2, 2) == ((done := erase.run(lake=lake, database=database, say=quiet, ids=[A])).messages, done.files + 1)
    check_same(lake, database, database_url)


def test_an_id_that_messages_of_either_side_have_is_refused(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """The lake has one that PostgreSQL has dropped, and PostgreSQL one that is not exported."""
    archived({"id": A})
    export(lake, database)
    with psycopg.connect(database_url) as owner:
        owner.execute("DROP TABLE queue_message_archive_20240501")
    [(xid, seq)] = archived({"id": A, "archived_at": NOON + timedelta(days=1)})
    erase_in_postgres(database_url)

    check_shared(lake, database, A, A)
    assert 0 == erase.run(lake=lake, database=database, say=quiet, ids=[f"{A}@{xid}/{seq}"]).messages


def test_an_id_of_a_replay_that_several_messages_have_is_refused(
    lake: Lake, database: Database, database_url: str, archived: Archived
) -> None:
    """Nobody knows whose its replays are; a place makes do without them."""
    archived({"id": A}, {"id": C, "replay_of": B}, {"id": B})
    [(xid, seq)] = archived({"id": B, "replay_of": A})
    export(lake, database)
    erase_in_postgres(database_url)

    check_shared(lake, database, B, A)
    assert 2 == erase.run(lake=lake, database=database, say=quiet, ids=[A, f"{B}@{xid}/{seq}"]).messages
    assert [1, 4] == erased_in(lake)


@pytest.mark.parametrize("named", [A, f"{A}@{{}}/{{}}"], ids=["id", "place"])
def test_a_part_takes_its_bundle_along(lake: Lake, database: Database, database_url: str, archived: Archived, named: str) -> None:
    """The bundle holds the part's content too, as do its replays; other parts are messages of their own, and a bundle takes none along."""
    part = {"result": "discarded", "error_code": "bundled", "error_detail": f"sent within {C}"}
    archived({"id": C}, {"replay_of": C})
    export(lake, database)
    [place, *_] = archived({**part, "id": A}, {**part, "id": B}, {**part, "error_detail": "sent"}, {**part, "error_code": "superseded"})
    export(lake, database)
    erase_in_postgres(database_url, "seq = 3")
    with pytest.raises(PipelineError, match=rf"contents of 2 chosen messages: run `relay erase` for them first, .* \({C}, "):
        erase.run(lake=lake, database=database, say=quiet, ids=[named.format(*place)])
    erase_in_postgres(database_url, "seq < 3")

    assert 3 == erase.run(lake=lake, database=database, say=quiet, ids=[named.format(*place)]).messages

    assert [1, 2, 3] == erased_in(lake)
    check_same(lake, database, database_url)
    assert 0 == erase.run(lake=lake, database=database, say=quiet, ids=[C]).messages


@pytest.mark.parametrize("strangers", ["lake", "postgresql"])
@pytest.mark.parametrize("named", [A, f"{A}@{{}}/{{}}"], ids=["id", "place"])
def test_strangers_with_the_id_of_a_bundle_do_not_keep_a_part(
    lake: Lake, database: Database, database_url: str, archived: Archived, named: str, strangers: str
) -> None:
    """Their id is refused, so nothing of theirs is erased; the bundle's place is enough for the erasure of the part."""
    place, bundle = archived(
        {"id": A, "result": "discarded", "error_code": "bundled", "error_detail": f"sent within {C}"},
        {"id": C},
    )
    foreign = [{"id": C, "exchange": "mine"}] * 3
    if strangers == "lake":
        archived(*foreign)
    export(lake, database)
    if strangers == "postgresql":
        archived(*foreign)
    part = named.format(*place)
    erase_in_postgres(database_url, "exchange <> 'mine'")
    check_shared(lake, database, C, part)

    assert 2 == erase.run(lake=lake, database=database, say=quiet, ids=[part, f"{C}@{bundle[0]}/{bundle[1]}"]).messages
    assert [1, 2] == erased_in(lake)


def test_a_day_that_postgresql_has_dropped_is_erased_in_the_lake(
    lake: Lake, database: Database, database_url: str, archived: Archived
) -> None:
    """Replays that PostgreSQL still has are found by it, and by it alone."""
    archived({"id": A}, {"id": B, "replay_of": A, "archived_at": NOON + timedelta(days=1)})
    export(lake, database)
    with psycopg.connect(database_url) as owner:
        owner.execute("DROP TABLE queue_message_archive_20240501")

    with pytest.raises(PipelineError, match=rf"contents of 1 chosen message: run `relay erase` for them first, .* \({B}\)\.$"):
        erase.run(lake=lake, database=database, say=quiet, ids=[A])
    assert [] == erased_in(lake)

    erase_in_postgres(database_url)
    assert 2 == erase.run(lake=lake, database=database, say=quiet, ids=[A]).messages
    assert [1, 2] == erased_in(lake)


def test_dead_messages_and_contents_that_cannot_be_printed(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """A content that is null in the lake stays null, as in PostgreSQL's eyes."""
    dead = {"result": "rejected", "error_detail": "no such route", "ordering_key": "k"}
    archived(dead, {**dead, "error_code": "content_unprintable"}, {"result": "failed"})
    export(lake, database)
    erase_in_postgres(database_url, "ordering_key = 'k'")

    assert 2 == erase.run(lake=lake, database=database, say=quiet, keys=["k"]).messages

    assert ["{}", None, '{"total": 1}'] == lake.dataset(TABLE).to_table(["content"])["content"].to_pylist()
    check_verified(lake, database)


def test_the_message_that_was_sent_instead_stays_known(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """Its id is all that such an error text has; each other error text goes, as in PostgreSQL."""
    given = {"result": "discarded", "error_detail": f"sent within {C}", "ordering_key": "k"}
    archived(*({**given, "error_code": code} for code in ("bundled", "superseded", "cancelled", None)))
    export(lake, database)
    erase_in_postgres(database_url)

    assert 4 == erase.run(lake=lake, database=database, say=quiet, keys=["k"]).messages

    assert [f"sent within {C}"] * 2 + [None] * 2 == lake.dataset(TABLE).to_table(["error_detail"])["error_detail"].to_pylist()
    check_same(lake, database, database_url)


def test_without_an_id_or_a_key_nothing_is_done(lake: Lake, database: Database) -> None:
    """This is said before anything is read."""
    with pytest.raises(PipelineError, match="give at least one id or ordering key"):
        erase.run(lake=lake, database=database, say=quiet)


@pytest.mark.parametrize(("named", "left"), [({"ids": [A]}, 2), ({"keys": ["k"]}, 2), ({"ids": [A], "keys": ["k"]}, 3)], ids=str)
def test_postgresql_comes_first(
    lake: Lake, database: Database, database_url: str, archived: Archived, named: dict[str, Any], left: int
) -> None:
    """The refusal counts each message once, replays among them, and the lake stays as it is."""
    key = {"ordering_key": "k"}
    archived({"id": A}, {"id": B, "replay_of": A, **key}, {"id": C, **key}, {"replay_of": C}, {"id": OTHER, "replay_of": OTHER})
    export(lake, database)
    version = lake.opened(TABLE).version()

    with pytest.raises(
        PipelineError, match=rf"^PostgreSQL still has the contents of {left} chosen messages: run `relay erase` for them first"
    ):
        erase.run(lake=lake, database=database, say=quiet, **named)

    assert version == lake.opened(TABLE).version()


def test_the_archive_is_searched_in_ranges_that_grow_smaller(
    lake: Lake, database: Database, database_url: str, archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that takes too long is given up, a smaller one finds the message; the smallest one that does ends the job."""
    for _ in range(4):
        archived({"ordering_key": "k"}, {}, {})
    export(lake, database)
    monkeypatch.setattr(archive_check, "STEP", 2)
    monkeypatch.setattr(archive_check, "_ROWS", 8)
    statement, asked = Database.statement, []

    def slow(self: Database, name: str) -> bytes:
        if name != "list_keyed":
            return statement(self, name)
        asked.append(name)
        return statement(self, name) + (b" AND (SELECT pg_sleep(60)) IS NOT NULL" if slow_for >= len(asked) else b"")

    monkeypatch.setattr(Database, "statement", slow)
    slow_for = 1
    with Database(database_url, snapshot_seconds=0.2) as hurried:
        with pytest.raises(PipelineError, match="contents of 4 chosen messages"):
            erase.run(lake=lake, database=hurried, say=quiet, keys=["k"])
        assert 6 == len(asked)
        slow_for = 1000
        with pytest.raises(PipelineError, match="after RELAY_PIPELINE_SNAPSHOT_SECONDS"):
            erase.run(lake=lake, database=hurried, say=quiet, keys=["k"])


def test_the_role_etl_is_enough(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """It reads the archive, and changes nothing there."""
    archived({"ordering_key": "k"})
    export(lake, database)
    erase_in_postgres(database_url)

    with login(database_url, "queue_message_etl") as url, Database(url) as etl:
        assert 1 == erase.run(lake=lake, database=etl, say=quiet, keys=["k"]).messages


def test_another_servers_lake_is_left_alone(lake: Lake, database: Database, archived: Archived, tmp_path: str) -> None:
    """The server could not say what is erased of it."""
    archived({"id": A})
    export(lake, database)

    with pytest.raises(PipelineError, match="PostgreSQL exports to the lake"):
        erase.run(lake=Lake(f"{tmp_path}/another"), database=database, say=quiet, ids=[A])


def test_a_damaged_file_of_the_table_is_an_error(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """What it has cannot be known."""
    archived({"id": A})
    export(lake, database)
    erase_in_postgres(database_url)
    [file] = files(lake.opened(TABLE))
    path = f"{lake.place.url}/{TABLE}/{file.path}"
    with open(path, "ab") as stream:  # noqa: PTH123
        stream.truncate(file.size - 20)

    with pytest.raises(LakeError, match="is missing or damaged"):
        erase.run(lake=lake, database=database, say=quiet, ids=[B])


def test_a_file_of_another_program_is_rewritten_too(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """It may have written the same kinds of values in other ways."""
    for each in (A, B):
        archived({"id": each, **SECRET})
        export(lake, database)
    lake.opened(TABLE).optimize.compact()
    erase_in_postgres(database_url, f"id = '{A}'")

    assert (1, 1) == ((done := erase.run(lake=lake, database=database, say=quiet, ids=[A])).messages, done.files)
    check_same(lake, database, database_url)


def test_pages_of_a_rewritten_file_have_checksums(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """A look that reads each file whole finds nothing wrong with it, and then the byte that has changed."""
    archived({"id": A}, {})
    export(lake, database)
    erase_in_postgres(database_url, f"id = '{A}'")
    erase.run(lake=lake, database=database, say=quiet, ids=[A])
    make_due(database_url)

    assert (1, 1, {}) == ((look := witness.run(lake, database, quiet)).files, look.read, look.damage)
    [file] = files(lake.opened(TABLE))
    flip(Path(lake.place.url, TABLE, file.path))
    make_due(database_url)
    assert 1 == len(witness.run(lake, database, quiet).damage)


def test_a_replay_refuses_an_erased_message(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """There is nothing left to send: who names it hears why, and a filter passes it over."""
    archived({"id": A})
    export(lake, database)
    erase_in_postgres(database_url)
    erase.run(lake=lake, database=database, say=quiet, ids=[A])

    done = replay.run(lake=lake, database=database, say=quiet, selection=Selection(ids=(A,)), job="again")

    assert (0, 1) == (done.enqueued, done.exit_code)
    assert "it was erased" in done.refusals[0].reason
    assert 0 == replay.run(lake=lake, database=database, say=quiet, selection=Selection(exchange="*"), job="all").found
