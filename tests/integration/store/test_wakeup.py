"""The LISTEN session of a relay: hints, the gate, and what happens when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from relay import events
from relay.postgres.notification_listener import FLOOD, FloodError
from relay.postgres.wakeup import Listener
from tests.support.database.queue import Queue, until
from tests.support.network.proxy import Proxy
from tests.support.servers.logins import login
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.shared import Say

LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'outbox-relay/% listen'"
HOLDERS = """
    SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE datname = current_database() AND locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
"""
KILL = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND application_name LIKE 'outbox-relay/% listen'"
)


class Heard:
    """A listener, what it emitted, and its hints."""

    def __init__(self, url: str, *, mode: str = "idle", name: str = "one", proof_every: float = 10.0) -> None:
        self.mode = mode
        self.now = 1000.0
        self.emitted: asyncio.Queue[events.Event] = asyncio.Queue()
        self.hinted = asyncio.Event()
        self.listener = Listener(
            conninfo=url, schema="public", name=name, mode=lambda: self.mode, on_hint=self.hinted.set, emit=self.emitted.put_nowait,
            clock=self.clock, proof_every=proof_every,
        )  # fmt: skip
        self._moved = 0.0

    def clock(self) -> float:
        """The loop's time, moved ahead by the test."""
        return asyncio.get_running_loop().time() + self._moved

    def move_clock(self, seconds: float) -> None:
        """Let time pass for the listener."""
        self._moved += seconds

    async def next(self) -> events.Event:
        """The next event."""
        return await asyncio.wait_for(self.emitted.get(), 20)

    async def up(self) -> None:
        """Start, and wait until LISTEN is proven and the first hint came."""
        await self.listener.start()
        assert await self.next() == events.ListenUp()
        await self.hint()

    async def hint(self) -> None:
        """The next hint."""
        await asyncio.wait_for(self.hinted.wait(), 20)
        self.hinted.clear()

    async def caught_up(self, queue: Queue) -> None:
        """Wait until everything that was notified before this call has been heard."""
        listener = self.listener._listener
        assert listener is not None
        listener._proved.clear()
        await queue.sql("SELECT pg_notify('queue_message_proof', %s)", listener._payload)
        await asyncio.wait_for(listener._proved.wait(), 20)


Make = Callable[..., Heard]


@pytest.fixture
async def make(database_url: str) -> AsyncIterator[Make]:
    """Make listeners, and close them."""
    made: list[Heard] = []

    def listener(url: str = database_url, **options: object) -> Heard:
        made.append(Heard(url, **options))  # type: ignore[arg-type]
        return made[-1]

    yield listener
    for each in made:
        await each.listener.aclose()


async def answered(queue: Queue, statement: str, value: int) -> None:
    """Wait until the database answers so."""

    async def is_so() -> bool:
        return bool(await queue.value(statement) == value)

    await until(is_so)


@pytest.mark.ids("A4", "B12")
async def test_an_idle_relay_hears_of_an_insert_at_once(queue: Queue, make: Make) -> None:
    """The gate is taken with the first idle call, which asks for one more look; then a commit is a hint."""
    heard = make()
    await heard.up()

    assert await heard.listener.idle()
    assert not await heard.listener.idle()
    assert "up, holds the gate" == heard.listener.state
    await queue.insert()

    await heard.hint()


async def test_before_the_gate_is_taken_an_insert_notifies_nobody(queue: Queue, make: Make) -> None:
    """A busy relay looks by itself; the first hint after the insert is that of the mark."""
    heard = make()
    await heard.up()

    await queue.insert()
    await heard.caught_up(queue)

    assert not heard.hinted.is_set()


async def test_a_relay_does_not_fall_asleep_past_a_transaction(queue: Queue, make: Make) -> None:
    """Who inserted without notifying holds the gate until the commit; the gate comes after it, and with it a hint to look."""
    heard = make()
    await heard.up()

    async with queue.connection.transaction():
        await queue.insert()
        assert not await heard.listener.idle()
    heard.move_clock(1.1)
    assert await heard.listener.idle() or await queue.value(HOLDERS) == 1

    await queue.insert()
    await heard.hint()


async def test_a_gate_that_comes_late_comes_as_a_hint(queue: Queue, make: Make) -> None:
    """The core has long gone to sleep when the transaction in flight ends."""
    heard = make()
    await heard.up()

    async with queue.connection.transaction():
        await queue.insert()
        assert not await heard.listener.idle()

    await heard.hint()
    assert 1 == await queue.value(HOLDERS)


@pytest.mark.ids("A18", "C17")
async def test_of_two_idle_relays_one_holds_the_gate_and_both_hear(queue: Queue, make: Make) -> None:
    """When the holder leaves, the other one takes over within about a second."""
    first, second = make(), make(name="two")
    await first.up()
    await second.up()
    assert await first.listener.idle()
    assert not await second.listener.idle()

    await queue.insert()
    await first.hint()
    await second.hint()
    await first.listener.aclose()

    await second.hint()
    assert "up, holds the gate" == second.listener.state


async def test_sustained_work_opens_the_gate_and_silence_closes_it(queue: Queue, make: Make) -> None:
    """A trickle does not open it. While the work continues, an idle call does not close it."""
    heard = make()
    await heard.up()
    assert await heard.listener.idle()

    for _ in range(6):
        heard.move_clock(0.25)
        heard.listener.busy(50)
    await heard.caught_up(queue)
    assert 1 == await queue.value(HOLDERS)
    for _ in range(4):
        heard.move_clock(0.25)
        heard.listener.busy(500)
    assert not await heard.listener.idle()
    heard.listener.busy(1)
    await answered(queue, HOLDERS, 0)

    assert not await heard.listener.idle()
    heard.move_clock(1.0)
    await heard.hint()
    await answered(queue, HOLDERS, 1)


@pytest.mark.ids("A17")
async def test_a_lost_session_is_told_once_and_comes_back_with_a_hint_and_the_gate(queue: Queue, make: Make) -> None:
    """Messages inserted meanwhile notified no relay, so the first thing is a look."""
    heard = make()
    await heard.up()
    assert await heard.listener.idle()

    await queue.sql(KILL)

    down = await heard.next()
    assert isinstance(down, events.ListenDown)
    assert "server closed the connection" in down.error
    assert await heard.next() == events.ListenUp()
    await heard.hint()
    await answered(queue, HOLDERS, 1)
    await queue.insert()
    await heard.hint()


async def test_a_server_that_turns_everybody_away_is_told_of_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener tries again in silence. Idle and busy still answer, and closing needs no server."""
    monkeypatch.setattr("relay.postgres.wakeup.LONGEST_PAUSE", 0.01)
    came: asyncio.Queue[None] = asyncio.Queue()

    def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        came.put_nowait(None)

    async with await asyncio.start_server(turn_away, "127.0.0.1", 0) as server:
        heard = make(f"host=127.0.0.1 port={server.sockets[0].getsockname()[1]} user=nobody")
        await heard.listener.start()
        down = await heard.next()
        for _ in range(8):
            await asyncio.wait_for(came.get(), 20)

        assert isinstance(down, events.ListenDown)
        assert "LISTEN is lost and the relay polls until it is back" in down.error
        assert not await heard.listener.idle()
        heard.listener.busy(1000)
        assert "down" == heard.listener.state
        await heard.listener.aclose()
    assert heard.emitted.empty()


async def test_the_mode_off_needs_no_connection_and_modes_change_without_a_restart(queue: Queue, make: Make) -> None:
    """From off to always to idle to off, by the provider alone."""
    heard = make(mode="off")
    await heard.listener.start()
    assert not await heard.listener.idle()
    assert ("off", 0) == (heard.listener.state, await queue.value(LISTENERS))

    heard.mode = "always"
    assert await heard.next() == events.ListenUp()
    await heard.hint()
    await heard.caught_up(queue)
    assert 0 == await queue.value(HOLDERS)
    heard.mode = "idle"
    heard.move_clock(1.1)
    await answered(queue, HOLDERS, 1)
    heard.mode = "off"

    await answered(queue, LISTENERS, 0)
    assert heard.emitted.empty()


@pytest.mark.ids("A3", "C4")
async def test_in_mode_always_each_insert_is_a_hint_without_the_gate(queue: Queue, make: Make) -> None:
    """The notification carries the message's id; the relay takes it as a hint."""
    await queue.sql("UPDATE queue_message_setting SET value = 'always' WHERE name = 'notify'")
    heard = make(mode="always")
    await heard.up()

    await queue.insert()

    await heard.hint()
    assert 0 == await queue.value(HOLDERS)


async def test_the_proof_finds_a_peer_that_went_silent(database_url: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose packets vanish looks alive for minutes; a proof without an answer ends it, and the driver is not waited for."""
    monkeypatch.setattr("relay.postgres.notification_listener.HEARING", 0.3)
    async with Proxy.before(database_url) as proxy:
        heard = make(proxy.url(database_url), proof_every=0.1)
        await heard.up()
        assert await heard.listener.idle()

        proxy.black_hole()

        async with asyncio.timeout(4):
            down = await heard.next()
        assert isinstance(down, events.ListenDown)
        assert "did not answer" in down.error
        await heard.listener.aclose()


async def test_behind_a_pool_that_shares_sessions_the_relay_polls_and_says_so_once(
    queue: Queue, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, say: Say
) -> None:
    """PgBouncer in transaction mode takes LISTEN and the gate without a word; neither may be left behind on a shared session."""
    monkeypatch.setattr("relay.postgres.notification_listener.HEARING", 0.5)
    monkeypatch.setattr("relay.postgres.wakeup.LONGEST_PAUSE", 0.1)
    with pgbouncer(queue.url, pool_mode="transaction", folder=tmp_path, say=say) as url:
        heard = make(url)
        await heard.listener.start()

        down = await heard.next()
        assert isinstance(down, events.ListenDown)
        assert "set RELAY_LISTEN_URL to PostgreSQL itself" in down.error
        assert not await heard.listener.idle()
        await answered(queue, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%UNLISTEN%' AND query NOT LIKE '%count%'", 1)
        assert 0 == await queue.value(HOLDERS)
        await heard.listener.aclose()
        assert heard.emitted.empty()


async def test_behind_a_pool_that_lends_sessions_listen_works(queue: Queue, make: Make, tmp_path: Path, say: Say) -> None:
    """PgBouncer in session mode: hints and gate as without it."""
    with pgbouncer(queue.url, pool_mode="session", folder=tmp_path, say=say) as url:
        heard = make(url)
        await heard.up()
        assert await heard.listener.idle()

        await queue.insert()

        await heard.hint()
        await heard.listener.aclose()


@pytest.mark.ids("A23")
@pytest.mark.parametrize("channel", ["queue_message_notify", "queue_message_proof"])
async def test_a_flood_of_notifications_is_not_listened_to(queue: Queue, make: Make, channel: str) -> None:
    """Any login may send it. The relay hangs up, polls, and listens again later; hardly anything of it was heard."""
    heard = make()
    await heard.up()
    listener = heard.listener._listener
    assert listener is not None

    await queue.sql("SELECT count(pg_notify(%s, n::text)) FROM generate_series(1, %s) AS n", channel, 20 * FLOOD)

    down = await heard.next()
    assert isinstance(down, events.ListenDown)
    assert "notifications came within a second" in down.error
    assert listener._count < 2 * FLOOD
    assert await heard.next() == events.ListenUp()


async def test_a_statement_waits_behind_no_flood(queue: Queue, make: Make) -> None:
    """What is notified before it is looked at first."""
    heard = make()
    await heard.up()
    listener = heard.listener._listener
    assert listener is not None
    listener._count = FLOOD + 1
    listener._counted_from = asyncio.get_running_loop().time()

    with pytest.raises(FloodError):
        await listener.run("read_backend")


async def test_the_role_of_a_relay_suffices(queue: Queue, make: Make) -> None:
    """LISTEN, proof and gate need no more than queue_message_relay has."""
    with login(queue.url, "queue_message_relay") as url:
        heard = make(url)
        await heard.up()
        assert await heard.listener.idle()

        await queue.insert()

        await heard.hint()
        await heard.listener.aclose()


async def test_start_and_close_may_be_called_at_any_time_and_again(queue: Queue, make: Make) -> None:
    """Close before start, start twice, close twice: one session while it runs, none after."""
    heard = make()
    await heard.listener.aclose()
    await heard.listener.start()
    await heard.up()
    assert 1 == await queue.value(LISTENERS)

    await heard.listener.aclose()
    await heard.listener.aclose()

    await answered(queue, LISTENERS, 0)
