"""Messages with one bundle_key that are due together become one message, a JSON list in the order of their inserts."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.database.keyed import contents, fates, fold, insert, keyed, queued
from tests.support.database.queue import Queue

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def setting(queue: Queue, name: str, value: object) -> None:
    """Change the database's policy."""
    await queue.sql("SELECT queue_message_config_set(%s, %s)", name, str(value))


async def within(queue: Queue) -> dict[str, str]:
    """In which message each archived part was sent."""
    return {id_: str(detail).removeprefix("sent within ") for id_, (_, code, detail) in (await fates(queue)).items() if code == "bundled"}


@pytest.mark.ids("D7")
async def test_messages_of_one_key_become_one_list(queue: Queue) -> None:
    """In the order of their inserts; each part is archived with the id of its bundle. Other keys, routing keys and exchanges are others."""
    parts = [await keyed(queue, bundle_key="b", routing_key="r", content=value) for value in ({"n": 1}, [2], None, "x")]
    places = [("c", "r", "orders"), ("b", "s", "orders"), ("b", "r", "audit")]
    others = [await keyed(queue, bundle_key=key, routing_key=routing, exchange=exchange) for key, routing, exchange in places]
    assert 0 == await fold(queue)

    assert 7 == await fold(queue, "1 s")

    bundles = dict(await queued(queue))
    assert [[{"n": 1}, [2], None, "x"], [{}], [{}], [{}]] == sorted(bundles.values(), key=len, reverse=True)
    sent_in = await within(queue)
    assert {*parts, *others} == {*sent_in}
    assert {*bundles} == {*sent_in.values()}
    assert 1 == len({sent_in[part] for part in parts})
    assert len(parts) == len(bundles[sent_in[parts[0]]])
    assert [(None, {}, None)] == await queue.sql("SELECT DISTINCT available_at, options, ordering_key FROM queue_message")
    assert await queue.value("SELECT min(created_at) FROM queue_message") == await queue.value(
        "SELECT min(created_at) FROM queue_message_archive"
    )


@pytest.mark.ids("D7")
async def test_a_key_is_due_with_its_oldest_and_takes_along_what_is_not_for_later(queue: Queue) -> None:
    """After its collecting time, or at its own; what waits for a later time of its own is sent then."""
    await setting(queue, "bundle_seconds", 60)
    now = "SELECT now() + %s::interval"
    await keyed(queue, bundle_key="b", content=1, available_at=await queue.value(now, "10 s"))
    await keyed(queue, bundle_key="b", content=2)
    await keyed(queue, bundle_key="b", content=3, available_at=await queue.value(now, "1 hour"))
    assert (0, 2) == (await fold(queue, "9 s"), await fold(queue, "11 s"))
    assert (0, 1) == (await fold(queue, "59 min"), await fold(queue, "61 min"))
    assert [[1, 2], [3]] == await contents(queue)


async def test_a_bundle_is_bounded_in_number_and_in_bytes(queue: Queue) -> None:
    """The rest becomes the next message, in order; a part that is larger by itself goes alone, and none is longer than the bytes say."""
    await setting(queue, "bundle_max_messages", 3)
    for n in range(7):
        await keyed(queue, bundle_key="b", content=n)
    await fold(queue, "1 min")
    assert [[0, 1, 2], [3, 4, 5], [6]] == await contents(queue)

    await queue.sql("TRUNCATE queue_message")
    await setting(queue, "bundle_max_messages", 1000)
    await setting(queue, "bundle_max_bytes", 100)
    for size in (40, 40, 1, 40, 200, 1, 1, 48, 46):
        await keyed(queue, bundle_key="b", content="x" * (size - 2) if size > 1 else 1)
    await fold(queue, "1 min")
    lengths = [[len(str(part)) + 2 if isinstance(part, str) else 1 for part in bundle] for bundle in await contents(queue)]
    assert [[40, 40, 1], [40], [200], [1, 1, 48], [46]] == lengths
    texts = await queue.sql("SELECT octet_length(content::text) FROM queue_message ORDER BY xid, seq")
    assert [87, 42, 202, 56, 48] == [size for (size,) in texts]


async def test_a_bundle_is_no_larger_than_what_relays_send(queue: Queue) -> None:
    """The limit of a payload bounds it too."""
    await setting(queue, "max_body_bytes", 50)
    for _ in range(4):
        await keyed(queue, bundle_key="b", content="x" * 20)
    await fold(queue, "1 min")
    assert [2, 2] == [len(bundle) for bundle in await contents(queue)]


async def test_other_terms_begin_another_bundle(queue: Queue) -> None:
    """Options, ordering key, deadline: a run of equal ones is one message, so that the order stays."""
    urgent, ordered = {"options": {"priority": 1}}, {"ordering_key": "o"}
    terms: list[dict[str, Any]] = [{}, urgent, urgent, {}, ordered, ordered, {"expires_at": "2999-01-01Z"}]
    for n, term in enumerate(terms):
        await keyed(queue, bundle_key="b", content=n, **term)
    await fold(queue, "1 min")
    assert [[0], [1, 2], [3], [4, 5], [6]] == await contents(queue)
    columns = "SELECT options ->> 'priority', ordering_key, expires_at IS NOT NULL FROM queue_message ORDER BY seq"
    assert [(None, None, False), ("1", None, False), (None, None, False), (None, "o", False), (None, None, True)] == await queue.sql(
        columns
    )


async def test_traces_do_not_keep_parts_apart(queue: Queue) -> None:
    """Each transaction has its own; the bundle carries that of its oldest part, the archive that of each."""
    async with await psycopg.AsyncConnection.connect(queue.url) as app:
        for n in range(3):
            await app.execute("SELECT set_config('relay.traceparent', %s, true)", (TRACE[:-4] + f"{n}-01",))
            await insert(app, bundle_key="b", content=n, options={"headers": {"a": 1}})
            await app.commit()
    await keyed(queue, bundle_key="b", content=3, options={"headers": {"a": 1}})
    await fold(queue, "1 min")
    assert [[0, 1, 2, 3]] == await contents(queue)
    assert {"a": 1, "traceparent": TRACE[:-4] + "0-01"} == await queue.value("SELECT options -> 'headers' FROM queue_message")
    assert 4 == await queue.value("SELECT count(DISTINCT options) FROM queue_message_archive")


async def test_numbers_keep_their_digits(queue: Queue) -> None:
    """What is not a double's goes through a bundle as it was written."""
    await queue.sql(
        "INSERT INTO queue_message_keyed (exchange, bundle_key, content) VALUES ('e', 'b', '1.10'), ('e', 'b', '12345678901234567890.5')"
    )
    await fold(queue, "1 min")
    assert "[1.10, 12345678901234567890.5]" == await queue.value("SELECT content::text FROM queue_message")


async def test_parts_that_are_too_long_together_go_in_halves(queue: Queue) -> None:
    """A number of 60,000 digits takes a few bytes and may be sent; a megabyte of them may not."""
    for n in range(8):
        await queue.sql("INSERT INTO queue_message_keyed (exchange, bundle_key, content) VALUES ('e', 'b', %s::jsonb)", f"1e{60_000 + n}")
    await fold(queue, "1 min")
    lengths = "SELECT length(part::text) FROM queue_message, jsonb_array_elements(content) WITH ORDINALITY AS parts (part, place)"
    assert [60_001 + n for n in range(8)] == [length for (length,) in await queue.sql(f"{lengths} ORDER BY xid, seq, place")]
    assert 1 < await queue.waiting() <= 8
    assert {"bundled"} == {code for _, code, _ in (await fates(queue)).values()}
    assert 8 == len(await fates(queue))


async def test_a_part_that_the_queue_refuses_alone_is_dead(queue: Queue) -> None:
    """An example is a part that bypassed the triggers. Its neighbours are sent."""
    good = [await keyed(queue, bundle_key="b", content=n) for n in (1, 2)]
    bad = await keyed(queue, bundle_key="b", content=3)
    await queue.sql("UPDATE queue_message_keyed_row SET options = '{\"priority\": 300}' WHERE id = %s", bad)
    assert 3 == await fold(queue, "1 min")
    assert [[1, 2]] == await contents(queue)
    fate = await fates(queue)
    assert ("rejected", "refused") == fate[bad][:2]
    assert "options.priority must be a whole number" in str(fate[bad][2])
    assert {*good, bad} == {*fate}


async def test_one_fold_takes_no_more_than_it_may_and_says_that_there_is_more(queue: Queue) -> None:
    """The rest is due, and the next call takes it."""
    for n in range(5):
        await keyed(queue, bundle_key="b", content=n)
    call = "SELECT folded, next_at <= now() + interval '1 min' FROM queue_message_fold(now() + interval '1 min', 3)"
    assert [(3, True)] == await queue.sql(call)
    assert [(2, None)] == await queue.sql(call)
    assert [[0, 1, 2], [3, 4]] == await contents(queue)


async def test_a_part_is_taken_back_and_replayed_by_itself(queue: Queue) -> None:
    """Before its bundle is made; afterwards it is in it. A replay sends it as a list of one, as consumers expect."""
    first, second, third = [await keyed(queue, bundle_key="b", content=n) for n in (1, 2, 3)]
    assert [(1,), (2,), (3,)] == await queue.sql("SELECT content FROM queue_message_keyed ORDER BY content")
    assert await queue.value("SELECT queue_message_cancel(%s)", second)
    await fold(queue, "1 min")
    assert not await queue.value("SELECT queue_message_cancel(%s)", first)
    assert [[1, 3]] == await contents(queue)

    await queue.sql("SELECT queue_message_replay(%s)", third)
    await queue.sql("SELECT queue_message_replay(%s)", second)

    assert [[1, 3], [3], [2]] == await contents(queue)
    assert [] == await queue.sql("SELECT id FROM queue_message_find()")


async def test_a_rollback_leaves_nothing(queue: Queue) -> None:
    """What was not committed is in no bundle."""
    async with await psycopg.AsyncConnection.connect(queue.url) as app:
        await insert(app, bundle_key="b")
        assert 0 == await fold(queue, "1 min")
        await app.rollback()
    assert 0 == await fold(queue, "1 min")
    assert 0 == await queue.waiting()


@pytest.mark.parametrize(("content", "kind", "large"), [
    ("to_jsonb(('1e' || 15500)::numeric)", "bundle_key", True),
    ("to_jsonb(('1e' || 15500)::numeric)", "coalesce_key", False),
    ("to_jsonb(repeat('x', 15500))", "bundle_key", False),
    ("jsonb_build_array(1e308, -1e308, 0.1)", "bundle_key", False),
])  # fmt: skip
async def test_numbers_that_a_bundle_would_print_at_length_wait_with_the_large_ones(
    queue: Queue, content: str, kind: str, large: bool
) -> None:
    """The queue refuses such a bundle until it is short enough, and small keys would wait for each division."""
    await queue.sql(f"INSERT INTO queue_message_keyed (exchange, content, {kind}) VALUES ('x', {content}, 'k')")

    assert large is await queue.value("SELECT large FROM queue_message_keyed_row")
