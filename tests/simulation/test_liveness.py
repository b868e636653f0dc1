"""That the checks see what they are for: each fails where the part of the relay that keeps its promise is switched off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import pytest

from relay.claims.lanes import Lanes
from relay.claims.rate_limits import RateLimits
from relay.claims.scrub import Scrub
from relay.maintenance.renumbering import Renumbering
from relay.postgres.store import LAG
from tests.simulation.ending import finish
from tests.simulation.ledger import BrokenError
from tests.simulation.liveness import RENUMBERED
from tests.simulation.people import People
from tests.simulation.schedule import POLLED, play, prepare
from tests.simulation.troubles import HOUR
from tests.simulation.world import KEYS, World

BOTH = pytest.mark.parametrize("safe", [True, False])
"""With the part of the relay that keeps the promise, and without it."""


async def _nothing(part: object) -> bool:
    """Stand for a part of a relay that does nothing, such as a scan whose page never comes."""
    del part
    return False


def _run(seed: int, steps: int, menu: str) -> None:
    with World(seed).running() as world:
        prepare(world, menu)
        play(world, steps, menu)


def test_what_somebody_had_locked_stays_for_ever_without_the_scrub() -> None:
    """A claim has stepped over it and moved the head past it: nothing else ever finds it, and the check says so."""
    with mock.patch.object(Scrub, "page", _nothing), pytest.raises(BrokenError, match="stays where it is"):
        _run(1, 300, "messages that somebody holds")


@pytest.mark.parametrize("lag", [LAG, 0.0])
def test_a_message_that_commits_after_its_wait_is_late_without_the_overlap_of_scans(lag: float) -> None:
    """A scan had already looked at that time when the message committed: the next poll finds it by the overlap alone."""
    with World(1).running() as world, mock.patch.object(Scrub, "page", _nothing), mock.patch("relay.postgres.store.LAG", lag):
        world.start()
        world.step(30.0)
        world.promises.patience = POLLED
        with nullcontext() if lag else pytest.raises(BrokenError, match="is still there"):
            _commit_late(world)


def _commit_late(world: World) -> None:
    """Its wait is over before that of another one, for which a scan looks, and it commits after that."""
    for _ in range(5):
        world.insert("orders", wait=0.5)
        world.begin()
        world.insert("orders", wait=0.1)
        world.step(1.5)
        world.commit(-1)
        for _ in range(30):
            world.step(0.1)


@contextmanager
def _kept_only_if(safe: bool, words: str) -> Iterator[None]:
    """The check says these words unless the run is a safe one."""
    with nullcontext() if safe else pytest.raises(BrokenError, match=words):
        yield


@contextmanager
def _world(*relays: str) -> Iterator[World]:
    """One with so many relays that have long begun."""
    with World(1).running() as world:
        for _ in relays:
            world.start()
        _pass(world, 30)
        yield world


def _pass(world: World, seconds: int) -> None:
    for _ in range(seconds * 4):
        world.step(0.25)


@BOTH
def test_what_a_dump_brought_stays_if_no_relay_renumbers(safe: bool) -> None:
    """A living relay does so within a minute; then it goes like everything else."""
    with nullcontext() if safe else mock.patch.object(Renumbering, "run", _nothing), _world("one") as world:
        world.restore(20, higher=True)
        with _kept_only_if(safe, "after it came from another cluster"):
            _pass(world, int(RENUMBERED) + 30)
        assert safe == (not world.database.rows)


@BOTH
def test_a_limit_that_never_lets_go_is_told_from_one_that_holds(safe: bool) -> None:
    """It moves at least at one relay's part of the rate, whatever else there is."""
    with _world("one", "other") as world:
        world.limit("orders", 3.0)
        world.step(5.0)
        world.flood("orders", 60)
        off = mock.patch.object(RateLimits, "allowance", lambda _limits, name: 0 if name == "orders" else None)
        with nullcontext() if safe else off, _kept_only_if(safe, r"Of orders .* messages stay although its limit of 3\.0"):
            _pass(world, 40)


@BOTH
def test_keys_stay_if_nobody_takes_the_lanes_of_a_relay_that_died(safe: bool) -> None:
    """Its lease ends, and another relay has them soon after that."""
    with _world("one", "other") as world, nullcontext() if safe else mock.patch.object(Lanes, "keep", _nothing):
        world.crash(0)
        for key in KEYS * 3:
            world.insert("mail", key)
        with _kept_only_if(safe, "after it needed another owner of its lane"):
            _pass(world, 40)


@BOTH
def test_locks_stay_if_nobody_sees_that_the_clock_was_set_back(safe: bool) -> None:
    """They end an hour later than they should, and who has them is dead."""
    with _world("one", "other") as world:
        world.broker.become("mail", "silent")
        world.flood("mail", 20)
        world.step(1.0)
        world.set_clock(-HOUR)
        world.crash(0)
        world.crash(0)
        world.start()
        world.broker.become("mail", "well")
        off = mock.patch("tests.simulation.sweeps._note_clock")
        with nullcontext() if safe else off, _kept_only_if(safe, "after it was left locked"):
            _pass(world, 150)
        assert safe == (not world.database.rows)


@BOTH
def test_what_came_due_while_its_exchange_was_paused_stays_without_the_scrub(safe: bool) -> None:
    """The scan of waits has passed it when the exchange is resumed."""
    with _world("one") as world, nullcontext() if safe else mock.patch.object(Scrub, "page", _nothing):
        world.pause("mail", True)
        world.step(5.0)
        for _ in range(20):
            world.insert("mail", wait=0.5)
        _pass(world, 20)
        world.pause("mail", False)
        with _kept_only_if(safe, "after it could be claimed"):
            _pass(world, 30)
        assert safe == (not world.database.rows)


def test_the_end_of_a_run_names_what_no_relay_will_find() -> None:
    """By the rules of `relay check`: here the messages that a dump brought get no position of this cluster."""
    with _world("one") as world, mock.patch.object(People, "renumber"):
        world.restore(5, higher=True)
        with pytest.raises(BrokenError, match=r"is lost: its transaction id .* is of another cluster"):
            finish(world)


def test_a_lane_that_is_not_the_keys_is_named_whenever_the_check_looks() -> None:
    """Before messages of another cluster are renumbered those alone are excused."""
    with _world("one") as world:
        world.park(KEYS[0], True)
        world.insert("mail", KEYS[0])
        [row] = world.database.rows.values()
        row.lane = (world.database.lane(KEYS[0]) + 1) % 64
        with pytest.raises(BrokenError, match="is lost: its lane is"):
            finish(world)


@pytest.mark.parametrize(("lost", "words"), [(40, None), (41, "expired although nothing had happened to relay")])
def test_a_clock_that_is_set_costs_a_relay_one_window_of_locks(lost: int, words: str | None) -> None:
    """What earlier steps allowed for does not add up."""
    with _world("one") as world:
        for _ in range(2):
            world.set_clock(HOUR if world.database.ahead == 0.0 else 0.0)
        for _ in range(lost):
            world.insert("mail")
        rows = [*world.database.rows.values()]
        for row in rows:
            world.database.lock(row, world.database.now() - 1.0, "lost", world.living[0].id)
        with nullcontext() if words is None else pytest.raises(BrokenError, match=words):
            for row in rows:
                world.ledger.expired(row)
        for relay in world.living:
            relay.kill()
