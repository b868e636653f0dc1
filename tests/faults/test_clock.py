"""Relays whose machine has the wrong time: only the database's clock decides when something is due, expires or has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from relay.errors import LocalServerError
from tests.support.database.queue import until
from tests.support.faults.play import SMALL_SEEN, UNHURRIED, producing
from tests.support.faults.scene import Scene
from tests.support.relays.processes import RelayProcess
from tests.support.relays.scrape import metric
from tests.support.servers.shared import Say
from tests.support.servers.wrong_clock import WallClock, libfaketime

HOUR = 3600
NEARLY = 600
"""Seconds by which the time may be another than expected: a machine under load, and far from an hour."""
WRONG_TIMES = """
    SELECT count(*) FROM queue_message_archive
    WHERE least(claimed_at, published_at, confirmed_at, archived_at) < %s OR greatest(claimed_at, published_at, confirmed_at) > now()
"""
MakeClock = Callable[[str, int], WallClock]


@pytest.fixture
def wall_clock(say: Say, tmp_path: Path) -> MakeClock:
    """Makes wall clocks that are wrong."""
    try:
        library = libfaketime(say)
    except LocalServerError as error:
        pytest.skip(f"libfaketime is not to be had here: {error}")
    return lambda name, off: WallClock(library, tmp_path / f"{name}.clock", off)


def is_off_by(relay: RelayProcess, event: str, off: int) -> bool:
    """Whether the relay wrote this line, which is some seconds old at the most, by a clock that is so wrong."""
    written = datetime.fromisoformat(relay.of(event)[-1]["timestamp"]).timestamp()
    return abs(written - time.time() - off) < NEARLY


@pytest.mark.fault(17, repeats=20)
@pytest.mark.ids("A5", "B9")
async def test_a_wrong_clock_that_steps_changes_nothing(scene: Scene, wall_clock: MakeClock) -> None:
    """One relay an hour ahead, one an hour behind, and then the other way round: no lock expires, no deadline passes, no time is wrong."""
    await scene.configure(lock_seconds=UNHURRIED)
    clocks = [wall_clock("ahead", HOUR), wall_clock("behind", -HOUR)]
    begun = await scene.queue.value("SELECT now()")
    to = {"exchange": scene.inbox.exchange, "routing_key": scene.inbox.routing_key}
    relays = [await scene.start(name, **SMALL_SEEN, **clock.environment) for name, clock in zip(("ahead", "behind"), clocks, strict=True)]
    assert is_off_by(relays[0], "started", HOUR)
    assert is_off_by(relays[1], "started", -HOUR)
    await until(lambda: scrapes_are_off(relays, [HOUR, -HOUR]))
    async with producing(scene):
        for offs in ((HOUR, -HOUR), (-HOUR, HOUR), (0, 0), (-HOUR, HOUR)):
            for clock, off in zip(clocks, offs, strict=True):
                clock.step_to(off)
            due = await scene.queue.value("SELECT now() + interval '1 second'")
            deadline = await scene.queue.value("SELECT now() + interval '10 minutes'")
            scene.producer.vouch(await scene.queue.insert(20, **to, expires_at=deadline))
            delayed = await scene.queue.insert(20, **to, available_at=due)
            scene.producer.vouch(delayed, not_before=due.timestamp())
            await until_out(scene, delayed)

    report = await scene.check(*relays)
    assert is_off_by(relays[0], "stopped", -HOUR)
    assert 0 == report.duplicates
    assert 0 == await scene.queue.value(WRONG_TIMES, begun)
    assert [] == [line for relay in relays for line in (*relay.of("lock_lost"), *relay.of("locks_swept"))]


async def scrapes_are_off(relays: Sequence[RelayProcess], offs: Sequence[int]) -> bool:
    """A scraper finds the relays' clocks so many seconds ahead, of its own and of the database's, once they have looked at the queue."""
    read = [await metric(relay, "relay_queue_read_timestamp_seconds") for relay in relays]
    skews = [await metric(relay, "relay_clock_skew_seconds") for relay in relays]
    ahead = [*zip((at - time.time() for at in read), offs, strict=True), *zip(skews, offs, strict=True)]
    return all(abs(seconds - off) < NEARLY for seconds, off in ahead)


async def until_out(scene: Scene, ids: list[str]) -> None:
    """Wait until these are archived."""

    async def are_out() -> bool:
        return not await scene.queue.value("SELECT count(*) FROM queue_message WHERE id = ANY(%s::uuid[])", ids)

    await until(are_out)
