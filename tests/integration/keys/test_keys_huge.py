"""Large messages under keys: a call of the fold takes few of them, keeps what it did, and lets small keys of others through."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from relay.postgres.schema.migrate import migrate
from tests.support.database.keyed import contents, fates, fold, insert, keyed, other, queued, unhurried
from tests.support.database.older_schema import migrate_until
from tests.support.database.plans import explain
from tests.support.database.queue import Queue
from tests.support.servers.shared import Databases

KINDS = pytest.mark.parametrize("kind", ["coalesce_key", "bundle_key"])
MEGABYTE = 1 << 20
LARGE = """
    INSERT INTO queue_message_keyed (exchange, content, {kind})
    SELECT 'large', to_jsonb(lpad(n::text, %s, '.')), 'large-' || n %% %s FROM generate_series(1, %s) AS n
"""
SLOW = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_sleep({seconds}) WHERE pg_column_size(NEW.content) > 5000 OR {all}; RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION slow()
"""
"""Makes a message slow to send, so that a call comes to the end of its time after a few."""
SLOW_MEASURE = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_sleep(0.2) WHERE OLD.size IS NULL; RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE UPDATE ON queue_message_keyed_row FOR EACH ROW EXECUTE FUNCTION slow()
"""
UNMEASURED = """
    CREATE FUNCTION unmeasured() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.size < 1 << 30 AND NEW.content = '0' THEN RAISE {state}; END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER unmeasured BEFORE UPDATE ON queue_message_keyed_row FOR EACH ROW EXECUTE FUNCTION unmeasured()
"""
REFUSE = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF NEW.content::text LIKE '%.13"%' THEN RAISE EXCEPTION 'thirteen is not sold'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON queue_message FOR EACH ROW EXECUTE FUNCTION refuse()
"""
DUE = b"SELECT queue_message_keyed_due(now() + interval '1 min', %(most)s, false, '-infinity')"
LIMIT = "SELECT queue_message_config_set('max_body_bytes', %s)"
BEFORE = 47


async def large(queue: Queue, kind: str, count: int, *, keys: int | None = None, size: int = MEGABYTE) -> None:
    """Insert so many messages of a size, compressible, under as many keys or fewer."""
    await queue.sql(LARGE.format(kind=kind), size, keys or count, count)


async def slow(queue: Queue, seconds: float, *, also_small: bool = False) -> None:
    """Have each large message take so long, or each of all."""
    await queue.sql(SLOW.format(seconds=seconds, all=also_small))


async def age(queue: Queue, exchange: str, length: str) -> None:
    """Let what waits for an exchange have been due for so long."""
    await queue.sql("UPDATE queue_message_keyed_row SET due_at = due_at - %s::interval WHERE exchange = %s", length, exchange)


async def sent_numbers(queue: Queue) -> list[int]:
    """What large messages are in the queue, by number, in the order in which they would be claimed."""
    found = [content if isinstance(content, list) else [content] for content in await contents(queue)]
    return [int(part.strip(".")) for parts in found for part in parts]


@KINDS
@pytest.mark.parametrize("keys", [1, 12], ids=["one key", "many keys"])
async def test_a_call_takes_few_large_messages_and_the_next_goes_on(queue: Queue, kind: str, keys: int) -> None:
    """All leave in the end, in order; of one coalesce key the newest is sent and the others are archived, by any number of calls."""
    if kind == "coalesce_key" and keys == 1:
        await queue.sql(SLOW.format(seconds=0.7, all=False).replace("ON queue_message ", "ON queue_message_archive "))
    else:
        await slow(queue, 0.7)
    await large(queue, kind, 12, keys=keys)
    calls = []
    while taken := await fold(queue, "1 min"):
        calls.append(taken)
    assert max(calls) <= 4
    assert 12 == sum(calls)
    expected = [12] if (kind, keys) == ("coalesce_key", 1) else list(range(1, 13))
    assert expected == await sent_numbers(queue)


@KINDS
async def test_a_call_begins_with_no_more_than_some_megabytes(queue: Queue, kind: str) -> None:
    """However many wait: what it takes is bounded in bytes, before it is looked at."""
    await unhurried(queue)
    await large(queue, kind, 100, keys=1)
    assert 0 < await fold(queue, "1 min") <= 64


@KINDS
async def test_a_message_that_takes_long_is_alone_in_its_call(queue: Queue, kind: str) -> None:
    """Of any size that the limit allows."""
    await queue.sql(LIMIT, str(128 * MEGABYTE))
    await slow(queue, 2.1)
    await large(queue, kind, 2, size=17 * MEGABYTE)
    assert [1, 1, 0] == [await fold(queue, "1 min") for _ in range(3)]


@KINDS
async def test_messages_above_the_limit_are_dead_at_once(queue: Queue, kind: str) -> None:
    """However large they are, and none comes as far as the queue."""
    await queue.sql(REFUSE.replace("LIKE '%.13\"%'", "IS NOT NULL"))
    await unhurried(queue)
    await large(queue, kind, 3, size=30_000_000)
    assert 3 == await fold(queue, "1 min")
    sentence = "content is longer than the limit of 16777216 bytes (RELAY_MAX_BODY_BYTES)"
    assert [("rejected", "body_too_large", sentence)] * 3 == list((await fates(queue)).values())


@KINDS
async def test_a_message_above_the_limit_is_alone_dead(queue: Queue, kind: str) -> None:
    """What goes with it is sent, in order; options do not count; of versions the newest counts, whatever its size."""
    await queue.sql(LIMIT, "1000")
    ids = [await keyed(queue, content="x" * (size - 2), options={"headers": {"a": "x" * 900}}, **{kind: "k"}) for size in (9, 998, 1001)]
    await keyed(queue, content="y", **{kind: "other"})
    assert 4 == await fold(queue, "1 min")
    found = await fates(queue)
    assert ("rejected", "body_too_large") == found[ids[2]][:2]
    if kind == "coalesce_key":
        assert ["y"] == await contents(queue)
        assert [other(ids[2])] * 2 == [found[id_] for id_ in ids[:2]]
    else:
        assert [["x" * 7], ["x" * 996], ["y"]] == await contents(queue)


@pytest.mark.parametrize("column", ["body", "content"])
async def test_the_limit_counts_the_payload_alone(queue: Queue, column: str) -> None:
    """What has its length is sent, and what is a byte longer is dead, whichever of the two carries it."""
    await queue.sql(LIMIT, "1000")
    for size in (999, 1000, 1001):
        payload = {"body": b"x" * size} if column == "body" else {"content": "x" * (size - 2)}
        await keyed(queue, coalesce_key=f"k{size}", options={"headers": {"a": "x" * 900}}, **payload)
    assert 3 == await fold(queue)
    length = "octet_length(coalesce(encode(body, 'escape'), content::text))"
    assert [(999,), (1000,)] == await queue.sql(f"SELECT {length} FROM queue_message ORDER BY 1")
    assert [(1001, "body_too_large")] == await queue.sql(f"SELECT {length}, error_code FROM queue_message_dead")


async def test_no_older_version_is_sent_after_one_that_is_refused(queue: Queue) -> None:
    """Whatever of them a call takes, and who commits late."""
    async with await psycopg.AsyncConnection.connect(queue.url) as late:
        await insert(late, coalesce_key="c", content="late")
        for n in range(6):
            await keyed(queue, coalesce_key="c", content=n)
        await queue.sql("UPDATE queue_message_keyed_row SET options = '{\"priority\": 300}' WHERE content = '5'")
        while await queue.value("SELECT folded FROM queue_message_fold(most => 2)"):
            assert [] == await queued(queue)
        await late.commit()
    assert 1 == await fold(queue)
    assert [] == await queued(queue)
    assert ["rejected", *["discarded"] * 6] == sorted((fate[0] for fate in (await fates(queue)).values()), reverse=True)


@KINDS
@pytest.mark.parametrize("flooding", ["coalesce_key", "bundle_key"])
async def test_small_keys_go_before_all_large_ones_that_wait(queue: Queue, kind: str, flooding: str) -> None:
    """Also where the large ones were due first, and more of them than a call looks at."""
    await slow(queue, 2.1)
    await large(queue, flooding, 30)
    await age(queue, "large", "1 hour")
    small = [await keyed(queue, content=n, **{kind: f"small-{n}"}) for n in range(5)]
    await queue.sql("SELECT queue_message_fold(now() + interval '1 min', most => 10)")
    waiting = {str(id_) for (id_,) in await queue.sql("SELECT id FROM queue_message_keyed_row WHERE exchange = 'orders'")}
    assert set() == waiting & set(small)
    assert 0 < await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE exchange = 'large'") < 30


@KINDS
async def test_large_keys_go_however_many_small_ones_wait(queue: Queue, kind: str) -> None:
    """A call whose time small ones would take whole sends some large ones too."""
    await slow(queue, 0.005, also_small=True)
    await large(queue, kind, 1000, size=15_000)
    await queue.sql("UPDATE queue_message_keyed_row SET exchange = 'small', due_at = due_at - interval '1 hour'")
    await large(queue, kind, 3)
    assert 3 < await fold(queue, "1 min") < 1000
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE exchange = 'large'")


async def test_keys_that_begin_small_and_have_large_parts_hold_up_no_small_key(queue: Queue) -> None:
    """A call sees that they are large, and the next takes them for it. Each keeps the order of its parts."""
    await slow(queue, 2.1)
    for n in range(12):
        for size in (2, 100_000, 2):
            await keyed(queue, exchange="large", content=f"{n}-{size}".ljust(size, "."), bundle_key=f"k{n}")
    await age(queue, "large", "1 hour")
    small = await keyed(queue, content="small", bundle_key="small")
    for _ in range(4):
        await queue.sql("SELECT queue_message_fold(now() + interval '1 min', most => 10)")
    assert "bundled" == (await fates(queue))[small][1]
    assert 0 < await queue.value("SELECT count(DISTINCT bundle_key) FROM queue_message_keyed_row")
    await queue.sql("DROP TRIGGER slow ON queue_message")
    while await fold(queue, "1 min"):
        pass
    sent: dict[str, list[str]] = {}
    for content in await contents(queue):
        for part in content:
            sent.setdefault(part.split("-")[0], []).append(part.strip("."))
    assert all([f"{n}-2", f"{n}-100000", f"{n}-2"] == sent[str(n)] for n in range(12))


async def test_small_versions_replace_large_messages_few_at_a_time(queue: Queue) -> None:
    """What was sent and is still in the queue counts too: to archive it takes its time."""
    for table in ("queue_message_keyed_row", "queue_message"):
        await queue.sql(f"ALTER TABLE {table} ALTER content SET STORAGE EXTERNAL")
    await large(queue, "coalesce_key", 20, size=4 * MEGABYTE)
    while await fold(queue):
        pass
    await queue.sql(SLOW.format(seconds=0.7, all=False).replace("ON queue_message ", "ON queue_message_archive "))
    await large(queue, "coalesce_key", 20, size=10)
    assert 0 < await fold(queue) <= 8
    while await fold(queue):
        pass
    assert list(range(1, 21)) == await sent_numbers(queue)


@KINDS
async def test_a_large_message_that_cannot_be_sent_keeps_no_other_back(queue: Queue, kind: str) -> None:
    """Others of the list, those before it and those behind it are sent by the same call."""
    await unhurried(queue)
    await queue.sql(REFUSE)
    await large(queue, kind, 20)
    assert 19 == await fold(queue, "1 min")
    assert [n for n in range(1, 21) if n != 13] == sorted(await sent_numbers(queue))
    assert ["thirteen is not sold"] == [why for (why,) in await queue.sql("SELECT why FROM queue_message_keyed_failing")]


@KINDS
async def test_nothing_of_a_key_passes_a_large_message_of_it_that_cannot_be_sent(queue: Queue, kind: str) -> None:
    """What is behind it in a key of many megabytes waits with it; what was sent before stays sent."""
    await unhurried(queue)
    await queue.sql(REFUSE if kind == "bundle_key" else REFUSE.replace(".13", ".20"))
    await large(queue, kind, 20, keys=1)
    sent = list(range(1, 13)) if kind == "bundle_key" else []
    assert len(sent) == await fold(queue, "1 min")
    assert sent == await sent_numbers(queue)
    assert await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE due_at > now() + interval '1 min'") == 20 - len(sent)
    await queue.sql("DROP TRIGGER refuse ON queue_message")
    while await fold(queue, "1 hour"):
        pass
    assert ([20] if kind == "coalesce_key" else list(range(1, 21))) == await sent_numbers(queue)


@KINDS
async def test_all_of_a_key_waits_where_a_message_of_it_cannot_be_sent(queue: Queue, kind: str) -> None:
    """Also what no call has come to, beyond 64 MiB; then it goes in order."""
    await queue.sql(REFUSE if kind == "bundle_key" else REFUSE.replace(".13", ".70"))
    await large(queue, kind, 70, keys=1)
    while await fold(queue, "1 min"):
        pass
    expected = list(range(1, 13)) if kind == "bundle_key" else []
    assert expected == await sent_numbers(queue)
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE due_at <= now() + interval '1 min'")
    assert 1 == await queue.value("SELECT count(*) FROM queue_message_keyed_failing")
    await queue.sql("DROP TRIGGER refuse ON queue_message")
    while await fold(queue, "1 hour"):
        pass
    assert ([70] if kind == "coalesce_key" else list(range(1, 71))) == await sent_numbers(queue)


@KINDS
@pytest.mark.parametrize("time", ["0001-01-01 00:00+00", "2000-01-01 00:00+00"])
async def test_nothing_is_due_before_it_is_inserted(queue: Queue, kind: str, time: str) -> None:
    """An available_at in the past jumps no queue, and no transaction that was begun long ago."""
    async with await psycopg.AsyncConnection.connect(queue.url) as old:
        await old.execute(b"SELECT pg_current_xact_id()")
        first = await keyed(queue, content="first", coalesce_key="first")
        await insert(old, content="second", **{kind: "second"})
        await old.commit()
    await keyed(queue, content="third", available_at=time, **{kind: "third"})
    later = await queue.sql("SELECT k.due_at > o.due_at FROM queue_message_keyed_row k, queue_message_keyed_row o WHERE o.id = %s", first)
    assert [(False,), (True,), (True,)] == sorted(later)
    assert 3 == await fold(queue, "2 s")


@KINDS
async def test_an_infinite_time_is_refused(queue: Queue, kind: str) -> None:
    """As by the queue."""
    with pytest.raises(psycopg.errors.CheckViolation, match="available_at is infinite"):
        await keyed(queue, available_at="-infinity", **{kind: "k"})


@KINDS
async def test_a_fold_walks_past_nothing_that_waits_for_its_own_time(queue: Queue, kind: str) -> None:
    """However many such there are under the key of one that is due, inserted before it or after."""
    read = []
    wait = f"INSERT INTO queue_message_keyed (exchange, available_at, {kind}) SELECT 'orders', '2999-1-1Z', 'k' FROM generate_series(1, %s)"
    for count in (100, 10_000):
        await queue.sql(wait, count)
        await keyed(queue, content=count, **{kind: "k"})
        await queue.sql(wait, count)
        read.append((await explain(queue.connection, DUE, {"most": 10_000}, {})).pages)
    assert read[1] < 2 * read[0] + 100


@KINDS
async def test_rows_without_a_size_are_measured_and_sent(queue: Queue, kind: str) -> None:
    """Restored ones, which no trigger saw: small or large, of one key with others, in the order of their inserts."""
    for n, size in enumerate((3, 300_000, 3, MEGABYTE)):
        await keyed(queue, content=str(n).rjust(size, "."), **{kind: "k"})
        await keyed(queue, content=str(10 + n).rjust(size, "."), **{kind: f"own-{n}"})
    await queue.sql("UPDATE queue_message_keyed_row SET size = NULL, large = true WHERE seq % 4 > 0")
    while await fold(queue, "1 min"):
        pass
    sent = await sent_numbers(queue)
    assert [10, 11, 12, 13] == sorted(n for n in sent if n >= 10)
    assert ([3] if kind == "coalesce_key" else [0, 1, 2, 3]) == [n for n in sent if n < 10]


@pytest.mark.parametrize("state", ["program_limit_exceeded", "numeric_value_out_of_range"])
async def test_a_row_that_cannot_be_measured_is_dead_and_holds_up_no_other(queue: Queue, state: str) -> None:
    """It counts as a gigabyte: its text is longer than PostgreSQL prints, or its columns together longer than a number of four bytes."""
    bad, good = [await keyed(queue, content=n, coalesce_key=f"k{n}") for n in range(2)]
    await queue.sql("UPDATE queue_message_keyed_row SET size = NULL, large = true")
    await queue.sql(UNMEASURED.format(state=state))
    assert [1, 1] == [await fold(queue) for _ in range(2)]
    assert [good] == [id_ for id_, _ in await queued(queue)]
    assert "body_too_large" == (await fates(queue))[bad][1]


async def test_large_rows_without_a_size_are_measured_over_several_calls(queue: Queue) -> None:
    """What a call has measured is kept."""
    await large(queue, "bundle_key", 30, keys=1)
    await queue.sql("UPDATE queue_message_keyed_row SET size = NULL, large = true")
    await queue.sql(SLOW_MEASURE)
    assert 0 == await fold(queue, "1 min")
    assert 0 < await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE size IS NULL") < 30
    for _ in range(10):
        await fold(queue, "1 min")
    assert list(range(1, 31)) == await sent_numbers(queue)


def test_what_waits_at_an_upgrade_is_sent_after_it(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small and large, under either key; nothing is due before it was inserted."""
    name = databases.create()
    migrate_until(databases.url(name), BEFORE, monkeypatch)
    with psycopg.connect(databases.url(name), autocommit=True) as connection:
        for kind in ("coalesce_key", "bundle_key"):
            for size in (3, 300_000, MEGABYTE, 20 * MEGABYTE):
                statement = f"INSERT INTO queue_message_keyed (exchange, content, {kind}, available_at) VALUES ('e', %s, %s, '2000-01-01Z')"
                connection.execute(statement.encode(), [Jsonb("1".rjust(size, ".")), f"k{size}"])
        migrate(databases.url(name))
        assert (0,) == connection.execute("SELECT count(*) FROM queue_message_keyed_row WHERE due_at < created_at").fetchone()
        for _ in range(8):
            connection.execute("SELECT queue_message_fold(now() + interval '1 min')")
        assert (6, 2) == connection.execute(
            "SELECT (SELECT count(*) FROM queue_message), (SELECT count(*) FROM queue_message_archive WHERE error_code = 'body_too_large')"
        ).fetchone()
    databases.drop(name)


@pytest.mark.parametrize("available_at", ["NULL", "now() + interval '1 s'"], ids=["at once", "at a time of their own"])
async def test_small_parts_behind_many_large_ones_of_their_key_hold_up_no_small_key(queue: Queue, available_at: str) -> None:
    """They are left to the large ones too, though no call takes them with these: the large ones alone are more than a call takes."""
    part = (
        "INSERT INTO queue_message_keyed (exchange, content, available_at, bundle_key) SELECT 'large', to_jsonb(repeat('x', %s)), {}, 'key'"
    )
    await queue.sql(f"{part.format('NULL')} FROM generate_series(1, 100)", 20_000)
    await queue.sql(f"{part.format(available_at)} FROM generate_series(1, 30)", 1)
    await age(queue, "large", "1 hour")
    await large(queue, "bundle_key", 5, size=1)
    await large(queue, "coalesce_key", 5, size=1)
    await queue.sql("UPDATE queue_message_keyed_row SET exchange = 'small' WHERE bundle_key IS DISTINCT FROM 'key'")
    for _ in range(6):
        await queue.sql("SELECT queue_message_fold(now() + interval '1 min', most => 10)")

    assert 0 == await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE exchange = 'small'")
    assert 0 < await queue.value("SELECT count(*) FROM queue_message_keyed_row WHERE exchange = 'large'")
    while await fold(queue, "1 min"):
        pass


@KINDS
@pytest.mark.parametrize(("headers", "is_large"), [(5, False), (200, True)])
async def test_many_headers_make_a_message_large(queue: Queue, kind: str, headers: int, *, is_large: bool) -> None:
    """The fold judges each header again. That takes as long as ten times as many bytes of content."""
    await keyed(queue, options={"headers": {f"h{n}": n for n in range(headers)}}, **{kind: "k"})

    assert is_large == await queue.value("SELECT large FROM queue_message_keyed_row")
