"""Messages of another cluster are renumbered step by step, alongside relays that do the same and behind messages that others hold."""

from __future__ import annotations

import asyncio

import pytest

from relay import events
from relay.errors import StoreError
from relay.maintenance.renumbering import OTHER_RELAY_POLL, PAUSE, PROGRESS_MESSAGES, TASK, Renumbered, Renumbering
from tests.support.fakes.virtual_time import timeless

HELD = StoreError("Another session holds it.", in_passing=True)
REFUSED = StoreError("A trigger refuses it.", refused=True)


class Foreign:
    """Answers steps from a script, then that nothing is left."""

    def __init__(self, *script: tuple[int, bool, int | None] | tuple[int, bool, int | None, str] | StoreError) -> None:
        self.script = list(script)
        self.told: list[events.Event] = []
        self.moved = 0
        self.seconds = 0.0
        self.renumbering = Renumbering(self, self.told.append, self._count)

    def _count(self) -> None:
        self.moved += 1

    async def renumber(self) -> Renumbered:
        """The next answer."""
        await asyncio.sleep(self.seconds)
        answer = self.script.pop(0) if self.script else (0, False, None)
        if isinstance(answer, StoreError):
            raise answer
        return Renumbered(*answer)


@timeless
async def test_a_run_goes_on_until_nothing_is_left() -> None:
    """Five thousand every few seconds would let new messages overtake a large restore for minutes. Pages without any do not end it."""
    foreign = Foreign((5000, True, 5000), (0, True, 5000), (5000, True, 5000), (0, True, 0), (7, False, 7), (9, False, 9))

    assert not await foreign.renumbering.run()

    told = [(each.messages, each.more) for each in foreign.told if isinstance(each, events.MessagesRenumbered)]
    assert [(5000, True), (5000, True), (7, False)] == told
    assert (3, 1) == (foreign.moved, len(foreign.script))


@timeless
async def test_a_run_leaves_the_work_to_whoever_is_at_it() -> None:
    """It is tried again with the next minute."""
    foreign = Foreign((0, True, None), (3, False, 3))

    assert not await foreign.renumbering.run()

    assert ([], 1) == (foreign.told, len(foreign.script))


@timeless
async def test_a_relay_that_starts_goes_on_where_it_found_none() -> None:
    """A page without messages of another cluster is no other relay's work."""
    foreign = Foreign((0, True, 5000), (0, True, 0), (0, True, 5000), (3, False, 3))
    began = asyncio.get_running_loop().time()

    await foreign.renumbering.finish()

    assert (began, 0) == (asyncio.get_running_loop().time(), len(foreign.script))


@timeless
async def test_a_long_search_says_how_far_it_is() -> None:
    """A relay that starts on ten million messages would be silent for a minute; the next search begins with nothing."""
    half = PROGRESS_MESSAGES // 2
    foreign = Foreign((0, True, half), (0, True, half + 1), (0, True, half), (0, True, half), (0, False, 1), (0, True, half))

    for _ in range(6):
        await foreign.renumbering.step()

    assert [events.ForeignIdsSought(2 * half + 1), events.ForeignIdsSought(4 * half + 1)] == foreign.told


@timeless
async def test_a_relay_that_starts_waits_for_another_that_is_at_it() -> None:
    """What it would claim before is behind those messages."""
    foreign = Foreign((0, True, None), (0, True, None), (3, False, 3))
    began = asyncio.get_running_loop().time()

    await foreign.renumbering.finish()

    assert pytest.approx(2 * OTHER_RELAY_POLL, abs=0.05) == asyncio.get_running_loop().time() - began


@timeless
@pytest.mark.parametrize("error", [HELD, REFUSED])
async def test_a_message_that_an_application_holds_keeps_no_relay_from_starting(error: StoreError) -> None:
    """What is behind it is renumbered when it is unlocked; everything else goes out."""
    foreign = Foreign((5000, True, 5000), error)

    await foreign.renumbering.finish()

    assert [events.MessagesRenumbered(5000, True), events.MaintenanceFailed(TASK, str(error))] == foreign.told


@timeless
async def test_a_relay_starts_where_messages_have_to_stay_and_says_why() -> None:
    """A walk that cannot renumber them is over."""
    foreign = Foreign((5, True, 5000), (3, False, 7, "message 1 stays: no"))

    await foreign.renumbering.finish()

    assert [
        events.MessagesRenumbered(5, True), events.MessagesRenumbered(3, False), events.MaintenanceFailed(TASK, "message 1 stays: no")
    ] == foreign.told  # fmt: skip


@timeless
async def test_messages_that_have_to_stay_are_not_walked_to_all_the_time() -> None:
    """A walk through a long queue takes long; one that left nothing behind is followed at once by what comes."""
    foreign = Foreign((5, False, 7, "message 1 stays: no"), (1, False, 7), (1, False, 7))
    foreign.seconds = 3

    await foreign.renumbering.run()
    await foreign.renumbering.run()
    assert 2 == len(foreign.script)

    await asyncio.sleep(3 * PAUSE)
    for _ in range(2):
        await foreign.renumbering.run()
    assert [] == foreign.script


@timeless
async def test_a_relay_that_starts_does_not_go_on_where_the_database_refuses() -> None:
    """The caller tries again, and says why."""
    with pytest.raises(StoreError, match="Away"):
        await Foreign(StoreError("Away.")).renumbering.finish()
