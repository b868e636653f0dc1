"""relay erase: contents leave the archive, what happened to the messages stays."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors

from relay.cli.commands import erase as command
from relay.devservers.process import poll
from tests.support.relays.cli import Cli, Seeded
from tests.support.servers.logins import login

SECRET = "ann@example.org"
HEADERS = '{"headers": {"who": "ann@example.org"}}'


NOTHING = {"messages": 0, "waiting": 0, "unknown": 0, "unsure": 0, "dry_run": False}


def _traces(seeded: Seeded) -> int:
    """How many archived rows show the secret in any column."""
    [(rows,)] = seeded.run(
        "SELECT count(*) FROM queue_message_archive a WHERE a::text LIKE %s OR convert_from(body, 'UTF8') LIKE %s", *[f"%{SECRET}%"] * 2
    )
    return int(rows)


def _archive(seeded: Seeded, result: str = "success", code: str | None = None, **columns: object) -> str:
    """One archived message with the secret in all that is erased."""
    given = {"content": f'{{"mail": "{SECRET}"}}', "options": HEADERS, "ordering_key": SECRET, **columns}
    return seeded.archive(result, code, f"trigger says {SECRET}" if code else None, **given)


def _row(seeded: Seeded, id_: str) -> tuple[Any, ...]:
    """What stays of a message."""
    [row] = seeded.run(
        "SELECT exchange, routing_key, result, error_code, attempts, content, body, options, ordering_key, error_detail "
        "FROM queue_message_archive WHERE id = %s", id_,
    )  # fmt: skip
    return row


@pytest.mark.parametrize("columns", [{}, {"body": SECRET.encode(), "content": "{}"}], ids=["json", "bytes"])
@pytest.mark.parametrize(("result", "code"), [("success", None), ("failed", "nacked"), ("discarded", "cancelled"), ("rejected", "refused")])
@pytest.mark.parametrize("how", ["id", "key"])
def test_nothing_of_the_content_stays_and_the_story_does(
    cli: Cli, seeded: Seeded, how: str, result: str, code: str | None, columns: dict[str, object]
) -> None:
    """Neither content nor headers, key or error text; a message of nobody's interest keeps all of it."""
    erased, other = _archive(seeded, result, code, **columns), seeded.archive("success", content='"else"', ordering_key="else")
    asked = [erased] if how == "id" else ["--ordering-key", SECRET]

    assert "1 message would be erased\n" == cli("erase", *asked, "--dry-run")
    assert 1 == _traces(seeded)
    assert {**NOTHING, "messages": 1} == cli.json("erase", *asked)
    assert 0 == _traces(seeded)
    assert ("orders", "", result, code, 0, {}, None, {"erased": True}, None, None) == _row(seeded, erased)
    assert ("else", "else") == (_row(seeded, other)[5], _row(seeded, other)[8])
    assert "0 messages erased\n" == cli("erase", *asked)


def test_replays_and_their_replays_are_erased_too(cli: Cli, seeded: Seeded) -> None:
    """A replay has an id of its own, and may still wait: then it is said."""
    first = _archive(seeded, ordering_key=None)
    for _ in range(2):
        cli("replay", "--exchange", "orders", "--again")
        seeded.run("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message")
    cli("replay", "--exchange", "orders", "--limit", "1", "--again")

    assert {**NOTHING, "messages": 4, "waiting": 1} == cli.json("erase", first)
    assert 0 == _traces(seeded)
    assert "1 message not archived yet and kept: run this again later.\n" == cli.stderr


def test_a_part_takes_its_bundle_along(cli: Cli, seeded: Seeded) -> None:
    """The bundle's content holds the part's; other parts are messages of their own, and `relay show` still knows of both."""
    for content in (f'"{SECRET}"', '"other"'):
        seeded.run("INSERT INTO queue_message_keyed (exchange, content, bundle_key) VALUES ('orders', %s, 'b')", content)
    [(part, _), _] = seeded.run("SELECT id::text, seq FROM queue_message_keyed_row ORDER BY seq")
    seeded.run("SELECT queue_message_fold(now() + interval '1 minute')")
    [(bundle,)] = seeded.run("SELECT id::text FROM queue_message")
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message")
    assert 2 == _traces(seeded)

    assert "2 messages erased\n" == cli("erase", part)
    assert 0 == _traces(seeded)
    assert [(["other"],)] == seeded.run("SELECT content FROM queue_message_archive WHERE error_code = 'bundled' AND id <> %s", part)
    assert 2 == len(cli.json("show", bundle)["folded"])


def _bundle(seeded: Seeded, secret: str = SECRET) -> tuple[str, str, str]:
    """A part with the secret, archived with its bundle; the part's id, its place and the bundle's id."""
    seeded.run("INSERT INTO queue_message_keyed (exchange, content, bundle_key) VALUES ('orders', %s, 'b')", f'"{secret}"')
    seeded.run("SELECT queue_message_fold(now() + interval '1 minute')")
    [(part, place)] = seeded.run("SELECT id::text, xid || '/' || seq FROM queue_message_archive WHERE error_code = 'bundled'")
    [(bundle,)] = seeded.run("SELECT id::text FROM queue_message")
    _settle(seeded)
    return part, place, bundle


def _settle(seeded: Seeded) -> None:
    """Archive all that waits."""
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message")


def _strangers(seeded: Seeded, id_: str, messages: int) -> None:
    """Archived messages with this id, each sent after another."""
    for _ in range(messages):
        seeded.archive("success", id=id_, exchange="mine", content='"stranger"')


@pytest.mark.parametrize("strangers", [1, 3])
@pytest.mark.parametrize("how", ["id", "place"])
def test_strangers_with_the_id_of_a_bundle_neither_stop_nor_join_an_erasure(
    cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch, how: str, strangers: int
) -> None:
    """The bundle is found by the transaction that made it, and its replays by the audit."""
    monkeypatch.setattr(command, "MOST", 3)
    part, place, bundle = _bundle(seeded)
    _strangers(seeded, bundle, strangers)
    cli("replay", "--exchange", "orders")
    cli("replay", "--exchange", "mine")
    _settle(seeded)

    assert "3 messages erased\n" == cli("erase", part if how == "id" else f"{part}@{place}")
    assert 0 == _traces(seeded)
    assert [(strangers * 2,)] == seeded.run("SELECT count(*) FROM queue_message_archive WHERE exchange = 'mine' AND options = '{}'")


def test_a_bundle_that_a_restore_has_renumbered_is_found(cli: Cli, seeded: Seeded) -> None:
    """Its transaction is then another one than that of its parts."""
    part, _, bundle = _bundle(seeded)
    seeded.run("SET session_replication_role = 'replica'")
    seeded.run("UPDATE queue_message_archive SET xid = '2', options = '{}' WHERE id = %s", bundle)

    assert "2 messages erased\n" == cli("erase", part)


@pytest.mark.parametrize("how", ["command", "lake", "unknown"])
def test_a_message_that_a_place_names_is_erased_however_many_have_its_id(
    cli: Cli, seeded: Seeded, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Neither messages nor replays of them fill a limit; of replays that neither audit nor ledger names the number is said."""
    monkeypatch.setattr(command, "MOST", 3)
    id_ = _archive(seeded)
    place = cli.json("show", id_)["story"][0]["place"]
    _strangers(seeded, id_, 3)
    given = "%s, '{1}', '{1}', ARRAY[%s::uuid], '{mine}', '{k}', '{1}', '{NULL}', ARRAY['{}'], '{NULL}', '{NULL}'"
    for number in range(4):
        if how == "command":
            cli("replay", "--exchange", "mine", "--again", "--limit", "1")
        else:
            seeded.run(f"SELECT queue_message_replay_rows({given})", f"j{number}", id_)
    if how == "unknown":
        seeded.run("TRUNCATE queue_message_replay_ledger")
    _settle(seeded)

    assert cli.refused("erase", id_, code=1).startswith(f"Several messages have the id {id_}, and nothing was erased")
    found = cli.json("erase", f"{id_}@{place}")
    assert (1, 4 if how == "unknown" else 0) == (found["messages"], found["unsure"])
    assert 0 == _traces(seeded)


def _beside(cli: Cli, seeded: Seeded, database_url: str, meanwhile: str, asked: list[str], code: int = 0) -> str:
    """What an erasure prints, if a statement is committed while it waits for a lock of the last message's row."""
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%queue_message_erase%'"
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM queue_message_archive WHERE id = %s FOR SHARE", (asked[-1],))

        def interrupt() -> None:
            assert poll(lambda: bool(seeded.run(waits)), seconds=30)
            [(pid,)] = seeded.run(waits)
            seeded.run(meanwhile.replace("PID", str(pid)))
            other.commit()

        with ThreadPoolExecutor(1) as thread:
            interrupted = thread.submit(interrupt)
            printed = cli("erase", *asked, code=code)
            interrupted.result()
    return printed


@pytest.mark.parametrize("meanwhile", ["archived", "waits"])
def test_what_comes_meanwhile_under_the_id_is_another_message(cli: Cli, seeded: Seeded, database_url: str, meanwhile: str) -> None:
    """An id means the message that has it when the command begins; the erasure of that one does not fail."""
    id_ = _archive(seeded)
    insert = f"INSERT INTO queue_message (id, exchange) VALUES ('{id_}', 'mine')"
    settle = f"; SELECT queue_message_archive_now('{{{id_}}}', 'success', NULL, NULL, 'r')" if meanwhile == "archived" else ""

    assert "1 message erased\n" == _beside(cli, seeded, database_url, insert + settle, [id_])
    assert "" == cli.stderr
    assert 0 == _traces(seeded)
    assert [("mine", {})] == seeded.run("SELECT exchange, options FROM queue_message_archive WHERE exchange = 'mine'") or not settle


def test_an_erasure_that_is_cut_short_says_what_it_has_erased(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """Each table of the archive is erased by itself: an error in a later one undoes nothing."""
    sent, dead = _archive(seeded), _archive(seeded, "failed", "nacked")

    assert "" == _beside(cli, seeded, database_url, "SELECT pg_terminate_backend(PID)", [sent, dead], code=4)
    assert 1 == _traces(seeded)
    assert cli.stderr.startswith("1 message erased before this error: run this again for the others.\n")
    assert "1 message erased\n" == cli("erase", sent, dead)


def test_another_message_with_the_same_id_is_not_erased(cli: Cli, seeded: Seeded) -> None:
    """Producers choose ids: the id alone is refused, and the place of the one that is meant names it."""
    id_ = str(uuid4())
    for content in ('"mine"', f'"{SECRET}"'):
        seeded.archive("success", id=id_, content=content)
    place = cli.json("show", id_)["story"][-1]["place"]

    refusal = cli.refused("erase", id_, code=1)
    assert refusal.startswith(f"Several messages have the id {id_}, and nothing was erased")
    assert "1 message erased\n" == cli("erase", f"{id_}@{place}")
    assert [({},), ("mine",)] == seeded.run("SELECT content FROM queue_message_archive ORDER BY content::text DESC")


def test_messages_that_wait_are_kept_and_counted(cli: Cli, seeded: Seeded) -> None:
    """An erased message that is still to be sent would be lost; under a dedup key it waits as well."""
    waiting = seeded.insert(ordering_key=SECRET)
    seeded.run("INSERT INTO queue_message_keyed (exchange, content, coalesce_key, ordering_key) VALUES ('orders', '1', 'c', %s)", SECRET)

    assert {**NOTHING, "waiting": 2} == cli.json("erase", "--ordering-key", SECRET)
    assert {**NOTHING, "waiting": 1} == cli.json("erase", waiting)
    assert [(2,)] == seeded.run("SELECT queue_message_waiting_under(ARRAY[%s])", SECRET)


def test_an_erased_message_is_never_replayed(cli: Cli, seeded: Seeded) -> None:
    """Who names it hears why, a filter passes it over, and of dead ones nobody is reminded any more."""
    dead, sent = _archive(seeded, "failed", "nacked"), _archive(seeded)
    cli("erase", dead, sent)

    assert [] == cli.json("dead", "list")
    assert "it was erased, so nobody can send it again" in cli.refused("dead", "replay", sent, code=1)
    cli("dead", "replay", dead, code=1)
    replayed = cli.json("replay", "--exchange", "orders", "--again")
    assert (0, 0) == (replayed["messages"], replayed["refused"])
    assert [] == seeded.run("SELECT id FROM queue_message")


def test_a_replay_at_the_same_moment_is_erased_too(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """It has the content under a new id; the erasure waits for it."""
    id_ = _archive(seeded)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT queue_message_replay(%s)", (id_,))
        erasure = cli.start("erase", id_, "--json")
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%queue_message_erase%'"
        assert poll(lambda: bool(seeded.run(waits)), seconds=30)
        other.commit()
        found = json.loads(erasure.communicate(timeout=30)[0])
    assert (1, 1) == (found["messages"], found["waiting"])


def test_ids_without_a_message_hold_up_no_other(cli: Cli, seeded: Seeded) -> None:
    """Retention may have dropped them; the lake may still have them."""
    id_ = _archive(seeded)

    assert {"messages": 1, "unknown": 1} == {name: value for name, value in cli.json("erase", id_, str(uuid4())).items() if value}
    assert "1 id without a message here; the lake may have it.\n" == cli.stderr


def test_a_part_is_erased_though_its_bundle_is_gone(cli: Cli, seeded: Seeded) -> None:
    """With `archive` = `failures` no sent bundle is kept; parts are."""
    seeded.run("SELECT queue_message_config_set('archive', 'failures')")
    seeded.run("INSERT INTO queue_message_keyed (exchange, content, bundle_key) VALUES ('orders', %s, 'b')", f'"{SECRET}"')
    seeded.run("SELECT queue_message_fold(now() + interval '1 minute')")
    seeded.run("DELETE FROM queue_message")
    [(part,)] = seeded.run("SELECT id::text FROM queue_message_archive")

    assert "1 message erased\n" == cli("erase", part)


def test_replays_of_one_of_several_messages_are_those_that_audit_or_ledger_name(cli: Cli, seeded: Seeded) -> None:
    """A note from before migration 44 says only the id, which a stranger may have chosen: such a replay stays, and is counted."""
    id_ = str(uuid4())
    for _ in range(2):
        seeded.archive("success", id=id_, content=f'"{SECRET}"')
    mine, theirs = (part["place"] for part in cli.json("show", id_)["story"])
    for place in (mine, theirs):
        xid, seq = place.split("/")
        seeded.run("SELECT queue_message_replay_at(%s, %s::text::xid8, %s)", id_, xid, int(seq))
    seeded.run("UPDATE queue_message_audit SET became = became - 'place' WHERE became ->> 'place' = %s", theirs)
    given = "ARRAY[%s]::xid8[], ARRAY[%s]::bigint[], ARRAY[%s]::uuid[], '{orders}', '{k}', '{1}', '{NULL}', ARRAY['{}'], '{NULL}', '{NULL}'"
    seeded.run(f"SELECT queue_message_replay_rows('j', {given})", *mine.split("/"), id_)
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message")

    found = cli.json("erase", f"{id_}@{mine}")
    assert (3, 1) == (found["messages"], found["unsure"])
    assert 2 == _traces(seeded)


def test_a_stranger_with_the_id_of_a_replay_holds_up_nothing(cli: Cli, seeded: Seeded) -> None:
    """Replays are followed by their places."""
    id_ = _archive(seeded)
    cli("replay", "--exchange", "orders")
    seeded.run("SELECT queue_message_archive_now(array_agg(id), 'success', NULL, NULL, 'relay-1') FROM queue_message")
    [(replay,)] = seeded.run("SELECT id::text FROM queue_message_archive WHERE id <> %s", id_)
    stranger = seeded.archive("success", id=replay, content='"stranger"')

    assert (replay, "2 messages erased\n") == (stranger, cli("erase", id_))
    assert 0 == _traces(seeded)
    assert [("stranger",)] == seeded.run("SELECT content FROM queue_message_archive WHERE options = '{}'")


def test_who_erased_what_is_in_the_audit(cli: Cli, seeded: Seeded) -> None:
    """By id and place, without the ordering key."""
    id_ = _archive(seeded)
    place = cli.json("show", id_)["story"][0]["place"]
    cli("erase", "--ordering-key", SECRET)

    assert [("erase", id_, {"place": place})] == seeded.run("SELECT action, subject, became FROM queue_message_audit")
    assert [place] == [erasure["place"] for erasure in cli.json("show", id_)["erasures"]]
    assert cli("show", id_).splitlines()[-1].startswith("erased 2")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "Say what to erase: ids of messages, --ordering-key, or both."),
        (["01a1fdc9-1287-70cd-8b56-1ce4c5c012b6"], 3, "No message has the id 01a1fdc9-1287-70cd-8b56-1ce4c5c012b6"),
    ],
)
def test_nothing_to_erase_is_said_in_a_sentence(cli: Cli, seeded: Seeded, args: list[str], code: int, words: str) -> None:
    """Not named, or not there."""
    assert words in cli.refused("erase", *args, code=code)


def test_the_function_takes_tables_of_the_archive_alone(cli: Cli, seeded: Seeded) -> None:
    """With the owner's rights it would change any table else."""
    for part in ("'queue_message'::regclass", "'queue_message_archive'::regclass", "'pg_class'::regclass", "NULL"):
        with pytest.raises(errors.InvalidParameterValue, match="no table of the archive"):
            seeded.run(f"SELECT queue_message_erase({part}, ARRAY[gen_random_uuid()], dry_run => false)")
    with pytest.raises(errors.InvalidParameterValue, match="Say what to erase"):
        seeded.run("SELECT queue_message_erase('queue_message_dead'::regclass, '{}', dry_run => false)")


def test_the_function_erases_only_with_a_dry_run_of_false(cli: Cli, seeded: Seeded) -> None:
    """Neither by default nor by a null."""
    id_ = _archive(seeded, "failed", "nacked")
    for more in ("", ", dry_run => NULL", ", dry_run => true"):
        assert [(1,)] == seeded.run(f"SELECT queue_message_erase('queue_message_dead'::regclass, ARRAY[%s::uuid]{more})", id_)
    assert 1 == _traces(seeded)


def test_an_operator_erases_and_nobody_else_changes_the_archive(cli: Cli, seeded: Seeded, database_url: str) -> None:
    """The archive is final again after an erasure, in its own transaction too; no other role may change it, whatever it sets."""
    id_ = _archive(seeded)
    with login(database_url, "queue_message_operator") as operator:
        assert "1 message erased\n" == cli("erase", id_, RELAY_DATABASE_URL=operator)
    with login(database_url, "queue_message_relay") as relay, psycopg.connect(relay) as connection:
        connection.execute("SET relay.erasure = 'on'")
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("UPDATE queue_message_archive SET attempts = 9")
    seeded.run("BEGIN")
    assert [(0,)] == seeded.run("SELECT queue_message_erase('queue_message_dead'::regclass, ARRAY[%s::uuid], dry_run => false)", id_)
    with pytest.raises(errors.RestrictViolation, match="The archive is final"):
        seeded.run("UPDATE queue_message_archive SET attempts = 9 WHERE id = %s", id_)


def test_tables_that_are_published_are_erased_too(cli: Cli, seeded: Seeded) -> None:
    """PostgreSQL lets nobody change rows that subscribers could not find."""
    _archive(seeded), _archive(seeded, "failed", "nacked")
    seeded.run("SET client_min_messages = error")  # The servers of tests write no WAL that could be decoded.
    seeded.run("CREATE PUBLICATION everything FOR ALL TABLES")

    assert "2 messages erased\n" == cli("erase", "--ordering-key", SECRET)
