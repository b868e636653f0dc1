"""Messages of another cluster that another session holds, or that a trigger refuses: everything else is renumbered, and they follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import psycopg
import pytest

from tests.support.database.foreign import FAR, bring
from tests.support.database.queue import Queue

pytestmark = pytest.mark.ids("D7")
SIZE, PAGE = 24, 5
"""Messages that a restore brings, and how many are looked at in a call."""
STEP = "SELECT renumbered, more, looked, stays FROM queue_message_renumber(%s)"
STAY = "SELECT attempts, ordering_key FROM queue_message WHERE xid >= %s::text::xid8 ORDER BY xid, seq"
ORDER = "SELECT attempts FROM queue_message WHERE ordering_key IS NOT DISTINCT FROM %s ORDER BY xid, seq"
REFUSE = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {} END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON queue_message FOR EACH ROW WHEN (OLD.attempts = ANY ('{{{}}}')) EXECUTE FUNCTION refuse()
"""
Hold = Callable[[Queue, list[int]], AbstractAsyncContextManager[None]]


def _locked(how: str) -> Hold:
    @asynccontextmanager
    async def hold(queue: Queue, which: list[int]) -> AsyncIterator[None]:
        async with await psycopg.AsyncConnection.connect(queue.url) as other:
            await other.execute(f"SELECT FROM queue_message WHERE attempts = ANY (%s) {how}".encode(), [which])
            yield

    return hold


def _refused(body: str) -> Hold:
    @asynccontextmanager
    async def hold(queue: Queue, which: list[int]) -> AsyncIterator[None]:
        await queue.sql(REFUSE.format(body, ",".join(map(str, which))))
        yield
        await queue.sql("DROP TRIGGER refuse ON queue_message")

    return hold


HOLDS = {
    "update": (_locked("FOR UPDATE"), "another session holds it"),
    "foreign key": (_locked("FOR KEY SHARE"), "another session holds it"),
    "raises": (_refused("RAISE 'The tenant is frozen.';"), "The tenant is frozen."),
    "skips": (_refused("RETURN NULL;"), "a trigger skips it"),
}
"""Ways to keep messages, and what is said of each."""


async def _walk(queue: Queue) -> str | None:
    """Renumber what can be renumbered now; why one had to stay."""
    for _ in range(10 * SIZE):
        [(_, more, _, stays)] = await queue.sql(STEP, PAGE)
        if not more:
            return stays if stays is None else str(stays)
    raise AssertionError("a walk that does not end")


async def _restore(queue: Queue, key: Callable[[int], str | None], *, first: int = 0, xid: int = FAR) -> None:
    """The number of each message is in `attempts`."""
    await bring(queue, *({"xid": xid, "seq": number + 1, "attempts": number, "key": key(number)} for number in range(first, first + SIZE)))


@pytest.mark.parametrize("kept", [[0], [SIZE // 2], [SIZE - 1], [3, 4, 5, 11], [*range(SIZE)]], ids=str)
@pytest.mark.parametrize("how", HOLDS)
async def test_what_has_no_key_goes_past_what_must_stay(queue: Queue, how: str, kept: list[int]) -> None:
    """This holds before it, behind it, in its page and in others. It follows once it is released; the first is named with the reason."""
    hold, why = HOLDS[how]
    await _restore(queue, lambda _: None)
    first = await queue.value("SELECT id::text FROM queue_message WHERE attempts = %s", kept[0])
    async with hold(queue, kept):
        assert f"message {first} stays: {why}" == await _walk(queue)
        assert kept == [number for number, _ in await queue.sql(STAY, FAR)]

    assert await _walk(queue) is None
    assert [] == await queue.sql(STAY, FAR)
    rest = [number for number in range(SIZE) if number not in kept]
    assert rest + kept == [number for (number,) in await queue.sql(ORDER, None)]


@pytest.mark.parametrize("kept", [[0], [1], [SIZE // 2], [SIZE - 1], [3, 4, 5, 11]], ids=str)
@pytest.mark.parametrize("how", HOLDS)
async def test_what_stands_behind_it_under_its_key_stays_and_keeps_its_order(queue: Queue, how: str, kept: list[int]) -> None:
    """Other keys go past it. A message inserted meanwhile under another key comes after the renumbered ones."""
    hold, _ = HOLDS[how]
    await _restore(queue, lambda number: f"k{number % 3}")
    first = {number % 3: number for number in reversed(kept)}
    async with hold(queue, kept):
        assert await _walk(queue)
        stays = [number for number in range(SIZE) if number >= first.get(number % 3, SIZE)]
        assert stays == [number for number, _ in await queue.sql(STAY, FAR)]

    assert await _walk(queue) is None
    for key in range(3):
        assert [*range(key, SIZE, 3)] == [number for (number,) in await queue.sql(ORDER, f"k{key}")]


@pytest.mark.parametrize("how", HOLDS)
async def test_a_second_restore_goes_past_what_stays_of_the_first(queue: Queue, how: str) -> None:
    """Above it and below it; the keys of both keep their order."""
    hold, _ = HOLDS[how]
    await _restore(queue, lambda number: f"k{number % 3}")
    async with hold(queue, [4]):
        await _walk(queue)
        for restore, xid in enumerate((FAR - 10, FAR + 10), start=1):
            await _restore(queue, lambda number: f"r{number % 3}", first=restore * SIZE, xid=xid)
            assert await _walk(queue)
            assert {"k1"} == {key for _, key in await queue.sql(STAY, FAR - 10)}

    assert await _walk(queue) is None
    assert [*range(1, SIZE, 3)] == [number for (number,) in await queue.sql(ORDER, "k1")]


async def test_an_error_that_meets_every_message_ends_the_call(queue: Queue) -> None:
    """An example is a server without room. No message counts as refused, and the walk continues where it was."""
    await _restore(queue, lambda _: None)
    await queue.sql(REFUSE.format("RAISE disk_full;", "7"))
    for _ in range(2):
        with pytest.raises(psycopg.errors.DiskFull):
            await _walk(queue)
    await queue.sql("DROP TRIGGER refuse ON queue_message")
    assert await _walk(queue) is None
    assert [*range(SIZE)] == [number for (number,) in await queue.sql(ORDER, None)]


@pytest.mark.parametrize("number", [SIZE, 1_000_003])
@pytest.mark.parametrize("pages", [0, 1, 2, 7])
async def test_numbers_that_begin_anew_beside_a_walk_turn_no_order_round(queue: Queue, pages: int, number: int) -> None:
    """A restore sets the sequence of the dump after its rows, and so during a walk that has seen them."""
    await queue.sql("SELECT setval(pg_get_serial_sequence('queue_message', 'seq'), 1000000)")
    await _restore(queue, lambda number: f"k{number % 3}")
    for _ in range(pages):
        await queue.sql(STEP, PAGE)
    await queue.sql("SELECT setval(pg_get_serial_sequence('queue_message', 'seq'), %s)", number)
    while await _walk(queue):
        pass
    for key in range(3):
        assert [*range(key, SIZE, 3)] == [number for (number,) in await queue.sql(ORDER, f"k{key}")]


async def test_what_is_gone_holds_nothing(queue: Queue) -> None:
    """A relay may settle a message between the look at its page and its lock."""
    await _restore(queue, lambda _: "k")
    await queue.sql("SELECT queue_message_renumber(1)")
    await queue.sql("SELECT queue_message_renumber_hold(%s::text::xid8, %s, 'k', 'x')", FAR, SIZE + 1)
    assert 0 == await queue.value("SELECT count(*) FROM queue_message_cluster_key")
    assert await _walk(queue) is None


async def test_own_messages_of_a_key_hold_none_that_was_restored(queue: Queue) -> None:
    """Where one of another key must stay below them, too."""
    await bring(queue, {"xid": 10, "key": "held", "attempts": 100})
    await queue.insert(ordering_key="k0")
    await _restore(queue, lambda number: f"k{number % 3}", first=1)
    hold, _ = HOLDS["update"]
    async with hold(queue, [100]):
        await _walk(queue)
        assert [] == await queue.sql(STAY, FAR)


async def test_a_long_key_behind_a_message_that_stays_costs_no_more_than_others(queue: Queue) -> None:
    """What was renumbered leaves dead entries of its key, which no page walks again."""
    await bring(queue, {"xid": FAR, "key": "held"}, *({"xid": FAR, "key": "long"} for _ in range(6000)))
    async with await psycopg.AsyncConnection.connect(queue.url) as other:
        await other.execute("SELECT FROM queue_message WHERE ordering_key = 'held' FOR UPDATE")
        pages = []
        while await queue.value("SELECT coalesce(bool_or(walked_xid IS NOT NULL), true) FROM queue_message_cluster"):
            [[[answer]]] = await queue.sql("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM queue_message_renumber(500)")
            pages.append(answer["Plan"]["Shared Hit Blocks"])
    assert [("held",)] == await queue.sql("SELECT ordering_key FROM queue_message WHERE xid <> '2'")
    assert max(pages) < 100 * 500


@pytest.mark.parametrize("how", HOLDS)
async def test_own_messages_that_somebody_moves_in_time_keep_their_order(queue: Queue, how: str) -> None:
    """A walk comes each minute while a restored message must stay; only the head of a key may go before others."""
    order = "SELECT routing_key FROM queue_message WHERE ordering_key = 'own' ORDER BY xid, seq"
    for name in ("first", "next"):
        await queue.insert(ordering_key="own", routing_key=name, available_at="2031-01-01T00:00:00Z")
    await _restore(queue, lambda _: None)
    hold, _ = HOLDS[how]
    async with hold(queue, [3]):
        await _walk(queue)
        await queue.sql("UPDATE queue_message SET available_at = available_at + interval '1 s' WHERE routing_key = 'next'")
        await _walk(queue)
        assert [("first",), ("next",)] == await queue.sql(order)
    await _walk(queue)
    assert [("first",), ("next",)] == await queue.sql(order)
