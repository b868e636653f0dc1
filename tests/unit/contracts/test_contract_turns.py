"""Turns of exchanges: equal shares of the time, a newcomer next, and none starves."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.contracts.fair_queue import FairQueue, FairTurns

pytestmark = pytest.mark.ids("A37")


class Asked(NamedTuple):
    """Somebody wants a turn."""

    at: float
    name: str
    seconds: float


class Had(NamedTuple):
    """And had it."""

    name: str
    since: float
    """When it began to wait: it was asked for, and the one before was over."""
    began: float
    ended: float


def played(asked: Sequence[Asked]) -> list[Had]:
    """Who has which turn, one at a time, each name's own in their order."""
    shares, turns, now = FairQueue(), list[Had](), 0.0
    left, waiting, since = deque(sorted(asked, key=lambda one: one.at)), defaultdict[str, deque[Asked]](deque), dict[str, float]()
    while left or any(waiting.values()):
        while left and left[0].at <= now:
            one = left.popleft()
            waiting[one.name].append(one)
            since.setdefault(one.name, one.at)
            shares.arrive(one.name)
        name = shares.next()
        if name is None:
            shares.clear()
            now = left[0].at
            continue
        one = waiting[name].popleft()
        if not waiting[name]:
            shares.leave(name)
        turns.append(Had(name, since.pop(name), now, now + one.seconds))
        now += one.seconds
        shares.charge(name, one.seconds)
        if waiting[name]:
            since[name] = now
    return turns


TURNS = st.lists(st.builds(Asked, st.integers(0, 40), st.sampled_from("abcde"), st.sampled_from([0.0, 0.125, 0.5, 1, 10])), max_size=40)
NEW_IN_A_LONG_TURN = [*[Asked(0, "a", 1)] * 2, *[Asked(0, "b", 0.125)] * 30, *[Asked(3.25, "c", 0.125)] * 10]
"""Its turn began behind where another one is."""
BACK_AFTER_LONG = [Asked(0, "b", 0.125), *[Asked(0, "a", 0.125)] * 60, *[Asked(4, "b", 0.125)] * 30]
"""It had little meanwhile."""


@given(TURNS)
def test_every_turn_is_given_once_and_in_its_order(asked: list[Asked]) -> None:
    """One at a time, and never while somebody waits for nothing."""
    turns = played(asked)

    assert len(asked) == len(turns)
    assert all(other.began == max(one.ended, other.since) for one, other in pairwise(turns))


@given(TURNS)
@example(NEW_IN_A_LONG_TURN)
@example(BACK_AFTER_LONG)
def test_nobody_starves(asked: list[Asked]) -> None:
    """Who waits sees each other one have what it had itself twice, and one turn more, at the most."""
    turns = played(asked)
    for index, mine in enumerate(turns):
        own = max([one.ended - one.began for one in turns[:index] if one.name == mine.name], default=0.0)
        for other in {one.name for one in turns} - {mine.name}:
            its = [one.ended - one.began for one in turns[:index] if one.name == other and one.began >= mine.since]
            assert sum(its) <= 2 * own + max(its, default=0.0) + 1e-3


@given(TURNS)
def test_who_is_new_waits_for_the_turn_under_way_and_for_others_that_are_new(asked: list[Asked]) -> None:
    """Whatever the others have had before."""
    turns = played(asked)
    for index, mine in enumerate(turns):
        if mine.name not in {one.name for one in turns[:index]}:
            before = [one.name for one in turns[:index] if one.began >= mine.since]
            assert len(before) == len({*before})


@given(st.lists(st.sampled_from([0.125, 0.5, 1, 10]), min_size=2, max_size=5), st.integers(20, 60))
def test_who_always_waits_has_an_equal_share(seconds: list[float], count: int) -> None:
    """However long its turns are."""
    names = dict(zip("abcde", seconds, strict=False))
    turns = played([Asked(0, name, each) for name, each in names.items() for _ in range(count)])
    used, left = dict.fromkeys(names, 0.0), dict.fromkeys(names, count)
    for turn in turns:
        used[turn.name] += turn.ended - turn.began
        left[turn.name] -= 1
        if not all(left.values()):
            break
        assert all(used[one] - used[other] <= names[one] + names[other] for one in names for other in names)


@pytest.mark.parametrize("seconds", [[10], [10, 0.125, 0.125]], ids=["long ones", "long ones among short ones"])
def test_short_turns_wait_for_one_long_one_at_the_most(seconds: list[float]) -> None:
    """Also where several exchanges have long ones, once each of these has had one; an equal share would be far more than it asks for."""
    chance = Random(9)  # of those with which only the longest turn of all says enough
    hostile = [Asked(0, f"hostile {n}", each) for n in range(5) for each in [10, *chance.choices(seconds, k=60)]]
    turns = played([*hostile, *[Asked(60 + 3 * n, "short", 0.125) for n in range(600)]])

    assert max(turn.began - turn.since for turn in turns if turn.name == "short") <= 10


async def test_who_comes_back_at_once_is_among_those_of_whom_the_next_is_chosen() -> None:
    """So an exchange whose checks follow each other is not passed over by one whose checks take longer."""
    turns, now, order = FairTurns(max_seconds=60, clock=lambda: now[0]), [0.0], list[str]()

    async def checks(name: str, seconds: float, count: int) -> None:
        for _ in range(count):
            async with turns.turn(name):
                order.append(name)
                now[0] += seconds

    await asyncio.gather(checks("long", 10, 3), checks("short", 1, 40))
    assert ["long", *["short"] * 20, "long"] == order[:22]


async def test_all_are_equal_again_once_nobody_waits() -> None:
    """Who had much before that owes nothing."""
    turns, now, order = FairTurns(max_seconds=60, clock=lambda: now[0]), [0.0], list[str]()

    async def checks(name: str, seconds: float, count: int) -> None:
        for _ in range(count):
            async with turns.turn(name):
                order.append(name)
                now[0] += seconds

    await checks("much", 10, 1)
    await asyncio.sleep(0)  # the end of the turn is a timer
    await asyncio.gather(checks("much", 1, 4), checks("new", 1, 4))
    assert 2 == order[1:5].count("much")


async def test_a_rest_follows_each_turn_in_which_nobody_has_one() -> None:
    """It is as long as the turn was, even if the turn was cut off. Everything else continues meanwhile."""
    loop = asyncio.get_running_loop()
    turns = FairTurns(max_seconds=60, rest=1.0, clock=loop.time)

    async def had(seconds: float) -> tuple[float, float]:
        async with turns.turn("a"):
            began = loop.time()
            while loop.time() < began + seconds:
                pass
            return began, loop.time()

    _, ended = await had(0.05)
    began, _ = await had(0.0)
    assert began - ended >= 0.049


@pytest.mark.parametrize("noticed", [True, False], ids=["while it waits", "as its turn comes"])
async def test_who_is_cut_off_leaves_its_turn_to_the_next(noticed: bool) -> None:
    """Before it notices too: its future is cancelled at once, and it wakes up later; and where its turn had just come."""
    loop = asyncio.get_running_loop()
    turns, order = FairTurns(max_seconds=60, clock=loop.time), list[str]()

    async def one(name: str) -> None:
        async with turns.turn(name):
            order.append(name)

    async with turns.turn("first"):
        tasks = {name: asyncio.create_task(one(name)) for name in ("a", "b", "c")}
        await asyncio.sleep(0)
        if noticed:
            tasks["b"].cancel()
        else:
            # Timers go in their order: before the one that gives the next turn, which is the last one's to arrive.
            loop.call_later(0, tasks["c"].cancel)
            loop.call_later(0, tasks["b"].cancel)
    if noticed:
        # Behind what gives the last of them its turn, and before it notices.
        loop.call_later(0, tasks["c"].cancel)
    await asyncio.wait(tasks.values())

    assert ["a"] == order
    async with asyncio.timeout(10):
        await one("d")


@pytest.mark.parametrize("seed", range(20))
async def test_cuts_at_any_moment_leave_no_turn_taken(seed: int) -> None:
    """Turns of several exchanges, with rests, are cut. Afterwards any exchange that comes has a turn."""
    chance, loop = Random(seed), asyncio.get_running_loop()
    turns = FairTurns(max_seconds=60, rest=1.0, clock=loop.time)

    async def checks(name: str) -> None:
        for _ in range(3):
            async with turns.turn(name):
                await asyncio.sleep(0)

    tasks = [asyncio.create_task(checks(chance.choice("abc"))) for _ in range(12)]
    while not all(task.done() for task in tasks):
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        chance.choice(tasks).cancel()
        loop.call_later(0, chance.choice(tasks).cancel)
    async with asyncio.timeout(10):
        await checks("d")


async def test_a_turn_in_which_the_machine_stood_still_counts_for_little() -> None:
    """Neither does everybody rest for as long, nor does that exchange wait for the others to have as much."""
    now = [0.0]
    turns, order = FairTurns(max_seconds=1.0, rest=0.001, clock=lambda: now[0]), list[str]()

    async def checks(name: str, seconds: float, count: int) -> None:
        for _ in range(count):
            async with turns.turn(name):
                order.append(name)
                now[0] += seconds
                seconds = 0.1

    async with asyncio.timeout(10):
        await asyncio.gather(checks("frozen", 3600, 2), checks("other", 0.1, 40))
    assert order.index("frozen", 1) < 25
