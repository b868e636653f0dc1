"""That the checks see what they are for: each fails where the part of the relay that keeps its promise is switched off."""

from __future__ import annotations

from contextlib import nullcontext
from unittest import mock

import pytest

from relay.claims.scrub import Scrub
from relay.postgres.store import LAG
from tests.simulation.ledger import BrokenError
from tests.simulation.schedule import POLLED, play, prepare
from tests.simulation.world import World


async def _nothing(scrub: Scrub) -> bool:
    """Stand for a page of a scan that never comes."""
    del scrub
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
