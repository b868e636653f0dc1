"""An archived message that the queue does not take today: it says why, and keeps no other from going."""

from __future__ import annotations

import re
from typing import Any

import pytest
from psycopg import errors

from relay.postgres.errors import veiled
from tests import ROOT
from tests.support.database.archives import NO_REPLAY
from tests.support.database.queue import Queue, unchecked
from tests.support.pages import docs

LONG = "k" * 300
WHY = "routing_key is 300 bytes long; the limit is 255 bytes"
UNPRINTABLE = "INSERT INTO queue_message (exchange, content) SELECT 'orders', jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000)"
Row = tuple[str, str | None, str | None]


async def archive(queue: Queue, result: str = "failed", code: str = "x") -> None:
    """Settle what waits."""
    await queue.sql("SELECT queue_message_archive_now((SELECT array_agg(id) FROM queue_message), %s, %s, 'x', 'test')", result, code)


async def archived(queue: Queue, pattern: str) -> list[str]:
    """Archive messages in their order: for a b one that is refused today, else a good one; return their ids."""
    async with unchecked(queue):
        ids = [(await queue.insert(routing_key=LONG if kind == "b" else str(place)))[0] for place, kind in enumerate(pattern)]
    await archive(queue)
    return ids


async def replay(queue: Queue, filters: str = "exchange => 'orders'") -> list[Row]:
    """Replay by filter: ids, what they became, and why not."""
    return await queue.sql(
        f"SELECT id::text, replayed_as::text, refused FROM queue_message_replay_many({filters}, dry_run => false) "
        "WITH ORDINALITY AS replayed ORDER BY ordinality"
    )


@pytest.mark.ids("B13")
@pytest.mark.parametrize("pattern", ["b", "gb", "bg", "bbb", "gbgbg", "bggbbg"])
@pytest.mark.parametrize("job", ["", ", job => 'j'"])
async def test_what_is_refused_keeps_no_other_of_its_page(queue: Queue, pattern: str, job: str) -> None:
    """It is listed among the others with the reason. Those are enqueued in their order, acknowledged, audited and in the ledger."""
    ids = await archived(queue, pattern)
    good = [id_ for id_, kind in zip(ids, pattern, strict=True) if kind == "g"]

    rows = await replay(queue, f"exchange => 'orders'{job}")

    assert [(id_, WHY if kind == "b" else None) for id_, kind in zip(ids, pattern, strict=True)] == [(id_, why) for id_, _, why in rows]
    made = [(new, id_) for id_, new, why in rows if why is None]
    assert good == [id_ for _, id_ in made]
    assert made == await queue.sql("SELECT id::text, replay_of::text FROM queue_message ORDER BY xid, seq")
    assert made == await queue.sql("SELECT became ->> 'id', subject FROM queue_message_audit WHERE action = 'replay' ORDER BY id")
    answered = await queue.sql("SELECT id::text FROM queue_message_dead_list WHERE acknowledged_at IS NOT NULL")
    assert sorted(good) == sorted(id_ for (id_,) in answered)
    assert (len(good) if job else 0) == await queue.value("SELECT count(*) FROM queue_message_replay_ledger")


async def test_what_was_refused_is_found_again_until_it_goes(queue: Queue) -> None:
    """In a job too, whose ledger has no mark of it."""
    [_, bad, _] = await archived(queue, "gbg")
    again = "exchange => 'orders', job => 'j'"
    await replay(queue, again)

    assert [(bad, None, WHY)] == await replay(queue, again)
    await queue.sql("ALTER TABLE queue_message DISABLE TRIGGER queue_message_check")
    [(id_, new, why)] = await replay(queue, again)

    assert (bad, LONG, None) == (id_, (await queue.row(str(new)))["routing_key"], why)
    assert [] == await replay(queue, again)


@pytest.mark.parametrize(("pattern", "tries"), [("gggg", "4 0"), ("ggbggbgg", "10 2"), ("bbb", "0 3")])
async def test_a_message_is_refused_once(queue: Queue, pattern: str, tries: str) -> None:
    """To find out may take seconds; a page without one costs no try more than it has messages."""
    await archived(queue, pattern)
    await queue.sql(f"""CREATE SEQUENCE good MINVALUE 0; CREATE SEQUENCE bad MINVALUE 0; SELECT nextval('good'), nextval('bad');
        CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM nextval(CASE NEW.routing_key WHEN '{LONG}' THEN 'public.bad' ELSE 'public.good' END); RETURN NEW; END $$;
        CREATE TRIGGER a BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION count_it()""")

    await replay(queue)

    assert tries == await queue.value("SELECT good.last_value || ' ' || bad.last_value FROM good, bad")


async def test_a_message_whose_id_is_queued_waits_alone(queue: Queue) -> None:
    """Where the id is kept and somebody else has enqueued it again."""
    first, second = await archived(queue, "gg")
    await queue.insert(id=first)

    rows = await replay(queue, "exchange => 'orders', same_id => true")

    assert [(first, None, "a message with this id is in the queue already"), (second, second, None)] == rows


@pytest.mark.slow
async def test_what_cannot_be_printed_is_refused_in_words(queue: Queue) -> None:
    """PostgreSQL's own are those of a server without memory; what was found to be so before is not printed again."""
    async with unchecked(queue):
        await queue.sql(UNPRINTABLE)
        await archive(queue, "rejected", "content_unprintable")
        await queue.sql(UNPRINTABLE)
        await archive(queue)
    await archived(queue, "g")

    [known, (_, _, unknown), (_, new, _)] = await replay(queue)

    assert NO_REPLAY == known[2]
    assert unknown == "content is longer than a gigabyte as text; the limit is 134217728 bytes"
    assert [(new,)] == await queue.sql("SELECT id::text FROM queue_message")
    with pytest.raises(errors.CheckViolation, match=f"Message {known[0]}: its content is larger than a gigabyte"):
        await queue.sql("SELECT queue_message_replay(%s)", known[0])


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("(content ->> 'n')::int > 0", "a value is refused: invalid text representation, SQLSTATE 22P02"),
        ('content <> \'{"n": "secret"}\'', 'new row for relation "queue_message" violates check constraint "rule"'),
    ],
)
async def test_a_reason_quotes_no_value(queue: Queue, rule: str, why: str) -> None:
    """It may be of a payload, which an operator does not see."""
    await queue.insert(content='{"n": "secret"}')
    await archive(queue)
    await queue.sql(f"ALTER TABLE queue_message ADD CONSTRAINT rule CHECK ({rule})")

    assert [why] == [row[2] for row in await replay(queue)]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("22001", "Wert zu lang: »secret«"),
        ("22003", "Wert »secret« ist außerhalb des gültigen Bereichs für Typ integer"),
        ("22007", "syntaxe en entrée invalide pour le type date : « secret »"),
        ("22008", "значение поля типа date/time вне диапазона: «secret»"),
        ("22012", "division by zero"),
        ("22021", 'invalid byte sequence for encoding "UTF8": 0x73 secret'),
        ("22023", "fuseau horaire « secret » non reconnu"),
        ("22P02", "型integerの入力構文が不正です: 'secret'"),
        ("22P05", "secret"),
        ("22ZZZ", "secret"),
    ],
)
async def test_a_reason_quotes_no_value_in_any_language(queue: Queue, state: str, words: str) -> None:
    """Of a data exception, the database and the relay report only the name, and the same one."""
    told = await queue.value("SELECT queue_message_refusal(%s, %s)", state, words)
    assert "secret" not in told
    assert veiled(words, state) == told


async def test_what_is_no_message_s_fault_still_fails_the_page(queue: Queue) -> None:
    """Nothing of it is enqueued, and the same call does it when the cause is gone."""
    await archived(queue, "gbg")
    await queue.sql("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'not now' USING ERRCODE = 'lock_not_available'; END $$;
        CREATE TRIGGER z AFTER INSERT ON queue_message FOR EACH ROW WHEN (NEW.routing_key = '2') EXECUTE FUNCTION refuse()""")

    with pytest.raises(errors.LockNotAvailable):
        await replay(queue)

    assert 0 == await queue.waiting()
    await queue.sql("DROP TRIGGER z ON queue_message")
    assert [True, False, True] == [new is not None for _, new, _ in await replay(queue)]


async def test_an_operator_with_psql_gets_past_a_page_of_refused_ones(queue: Queue) -> None:
    """By the statements of docs/operations/runbook.md, word for word: what one call shows is what the next one takes."""
    page = docs.text_of(ROOT / "docs" / "operations/runbook.md").partition("-- Send successes of the last hour again")[2]
    block = re.sub(r"(?m)^--.*$", "", page.partition("\n")[2].partition("-- Pause and resume")[0])
    look, replay_first, replay_next = (statement for statement in block.split(";") if statement.strip())
    async with unchecked(queue):
        await queue.sql("INSERT INTO queue_message (exchange, routing_key) SELECT 'orders', repeat('k', 300) FROM generate_series(1, 1000)")
        await queue.insert()
    await archive(queue, "success", "")

    assert [(1000,)] == await queue.sql(look)
    [(found, sent, why, *place)] = await queue.sql(replay_first)
    assert (1000, 0, WHY) == (found, sent, why)
    for name, value in zip(("after_archived_xid", "after_xid", "after_seq"), place, strict=True):
        replay_next = re.sub(rf"{name} => ('?)\d+", rf"{name} => \g<1>{value}", replay_next)
    [(found, sent, why, *_)] = await queue.sql(replay_next)
    assert (1, 1, None) == (found, sent, why)


async def test_a_dry_run_tries_nothing(queue: Queue) -> None:
    """It says what the filter finds."""
    await archived(queue, "gb")

    rows: list[tuple[Any, ...]] = await queue.sql("SELECT replayed_as, refused FROM queue_message_replay_many(exchange => 'orders')")

    assert [(None, None)] * 2 == rows
