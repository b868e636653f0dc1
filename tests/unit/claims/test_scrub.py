"""The scan from the left: how it handles what it finds, where it continues, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from relay import events
from relay.claims import scrub as module
from relay.claims.intake import PAST, Intake
from relay.claims.scrub import Scrub
from relay.errors import StoreError
from relay.message import START, Position
from relay.ports import At, Page, ScanFinding, Sought
from tests.support.fakes.adapters import Clock, FakeClaims, a_batch, a_claim, a_finding, at_once
from tests.support.fakes.virtual_time import timeless

HEAD = Position(90, 1)
FIRST = Position(7, 5)
"""The first message of the queue."""
BEFORE = Position(7, 4)
SOON = 0.001


def page(*findings: ScanFinding, to: Position | None = None) -> Page:
    """One page; the last one unless it says where it ended."""
    return Page(findings, to, FIRST, PAST)


class Left:
    """Answers pages from a script, then pages without findings that are the last."""

    def __init__(self, *script: Page | StoreError) -> None:
        self.script = list(script)
        self.asked: list[dict[str, Any]] = []
        self.freed: list[Position] = []
        self.refuses: StoreError | None = None
        self.meanwhile: Callable[[], object] = lambda: None
        self.enough = asyncio.Event()
        self.wanted = 0

    async def scan_left(self, *, after: Position, head: Position, heads: Mapping[str, Position], sought: Sought) -> Page:
        """The next page."""
        self.asked.append({"after": after, "head": head, "heads": dict(heads), "sought": sought})
        answer = self.script.pop(0) if self.script else page()
        self.meanwhile()
        if len(self.asked) >= self.wanted:
            self.enough.set()
        if isinstance(answer, StoreError):
            raise answer
        return answer

    async def free_expired(self, positions: Sequence[Position]) -> tuple[int, int]:
        """Note them; the first is archived."""
        if self.refuses:
            raise self.refuses
        self.freed += positions
        return len(positions) - 1, 1


class Rig:
    """A scrub over a store from a script."""

    def __init__(self, *script: Page | StoreError, claims: FakeClaims | None = None) -> None:
        self.store = Left(*script)
        self.claims = claims or FakeClaims()
        self.claims.lanes = {3: 1, 4: 1}
        self.intake = Intake(store=self.claims, poll_interval=1.0, clock=Clock())
        at_once(self.intake.lanes.keep())
        self.told: list[events.Event] = []
        self.nudged = 0
        self.held: list[Position] = []
        self.scrub = Scrub(
            store=self.store, intake=self.intake, emit=self.told.append, nudge=self._nudge, holds=lambda position: position in self.held
        )

    def _nudge(self) -> None:
        self.nudged += 1

    async def run(self, pages: int) -> None:
        """Until so many pages were asked for."""
        self.store.wanted = pages
        task = asyncio.create_task(self.scrub.run())
        await self.store.enough.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def afters(self) -> list[Position]:
        """Where each page began."""
        return [one["after"] for one in self.store.asked]


def test_a_page_begins_where_the_last_one_ended() -> None:
    """It leaves out what is held, and what streams have before them."""
    rig = Rig()
    rig.intake.pause({"audit"})
    rig.intake.streams.main.head = HEAD

    at_once(rig.scrub.page())

    assert [{"after": START, "head": HEAD, "heads": {"audit": START}, "sought": Sought(["audit"], [], [3, 4])}] == rig.store.asked


def test_a_round_goes_on_where_its_last_page_ended_and_the_next_one_begins_from_the_left() -> None:
    """Nothing is left out for good."""
    rig = Rig(page(to=Position(10, 1)), page(to=Position(20, 1)), page())

    assert [True, True, False, False] == [at_once(rig.scrub.page()) for _ in range(4)]
    assert [START, Position(10, 1), Position(20, 1), START] == rig.afters()


def test_a_hint_does_not_begin_the_round_again() -> None:
    """The scan finds a released message by the time that it has come round. Repeated hints would keep it from the right end."""
    rig = Rig(page(to=Position(10, 1)), page(to=Position(20, 1)))
    at_once(rig.scrub.page())

    rig.scrub.hint()
    at_once(rig.scrub.page())

    assert [START, Position(10, 1)] == rig.afters()


def test_rounds_begin_at_the_first_message_and_every_ten_seconds_on_the_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was settled before it is not walked again each time, and what commits late below it is found in the end."""
    now = 1000.0
    monkeypatch.setattr("relay.claims.scrub.time.monotonic", lambda: now)
    rig = Rig()
    for now in (1000.0, 1001.0, 1002.0, 1011.0, 1012.0, 1013.0):  # noqa: B007 - the clock reads it
        at_once(rig.scrub.page())

    assert [START, START, BEFORE, BEFORE, START, BEFORE] == rig.afters()


def test_a_walk_counts_from_where_a_round_on_the_very_left_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """`relay check` blames a relay only for what it has looked at: not before a round has ended, nor by one that began further right."""
    now = 0.0
    monkeypatch.setattr("relay.claims.scrub.time.monotonic", lambda: now)
    rig = Rig(*[page(to=Position(10, 1)), page()] * 3)
    ago = []
    for now in (100.0, 103.0, 104.0, 105.0, 106.0, 107.0):  # noqa: B007 - the clock reads it
        at_once(rig.scrub.page())
        ago.append(rig.scrub.walked_ago)

    assert [START, START, BEFORE] == rig.afters()[::2]
    assert [None, 3.0, 4.0, 1.0, 2.0, 3.0] == ago


def test_a_walk_that_rows_were_moved_behind_does_not_count() -> None:
    """Renumbered messages stand on the very left, which this round has passed."""
    rig = Rig(page(to=Position(10, 1)), page(), page())
    at_once(rig.scrub.page())

    rig.scrub.begin_again()

    at_once(rig.scrub.page())
    assert rig.scrub.walked_ago is None
    at_once(rig.scrub.page())
    assert rig.scrub.walked_ago is not None


def test_a_round_over_an_empty_queue_begins_at_the_head() -> None:
    """There is nothing before it."""
    rig = Rig(Page([], None, None, PAST), Page([], None, None, PAST))
    rig.intake.streams.main.head = HEAD
    for _ in range(3):
        at_once(rig.scrub.page())

    assert [START, START, HEAD] == rig.afters()


def test_what_has_moved_to_the_left_is_looked_for_in_the_next_round() -> None:
    """However lately one has begun there."""
    rig = Rig()
    at_once(rig.scrub.page())
    at_once(rig.scrub.page())

    rig.scrub.begin_again()
    at_once(rig.scrub.page())
    at_once(rig.scrub.page())

    assert [START, START, BEFORE, START] == rig.afters()


def test_what_a_page_finds_is_handed_on_although_its_locks_cannot_be_freed() -> None:
    """As where a trigger of the application's refuses."""
    rig = Rig(page(a_finding("waiting", position=Position(5, 1)), a_finding("expired", position=Position(6, 1))))
    rig.store.refuses = StoreError("No.")

    with pytest.raises(StoreError, match="No"):
        at_once(rig.scrub.page())

    assert [Position(5, 1)] == [one.position for one in rig.intake.backlog.next(10, ())]


def test_what_is_found_is_handed_on_and_the_engine_told() -> None:
    """Each kind to where it is claimed."""
    rig = Rig(page(a_finding("stranded"), a_finding("suspect"), a_finding("key", key="k", lane=3)))

    at_once(rig.scrub.page())

    assert (1, 1, ["k"]) == (len(rig.intake.backlog), len(rig.intake.suspects.backlog), rig.intake.lanes.keys.first(10))
    assert 1 == rig.nudged
    at_once(rig.scrub.page())
    assert 1 == rig.nudged, "there is nothing new"


def test_locks_that_are_over_are_freed_and_told() -> None:
    """What came back is looked for at once; nothing is asked where none is over."""
    rig = Rig(page(a_finding("expired", position=Position(5, 1)), a_finding("expired", position=Position(6, 1))))
    for source in rig.intake._turns:
        source.look_at = 1e9

    at_once(rig.scrub.page())
    at_once(rig.scrub.page())

    assert [Position(5, 1), Position(6, 1)] == rig.store.freed
    assert [events.LocksSwept(1, 1)] == rig.told
    assert 0.0 == rig.intake.until_next_look()


def test_a_lock_of_what_the_relay_has_in_hand_is_not_freed() -> None:
    """Its settle is tried again; freed, the message would go out twice. Nothing else takes it up either."""
    rig = Rig(page(a_finding("expired", position=Position(5, 1)), a_finding("expired", position=Position(6, 1))))
    rig.held = [Position(5, 1)]

    at_once(rig.scrub.page())

    assert [Position(6, 1)] == rig.store.freed
    assert [] == rig.intake.backlog.next(10, ())


def test_stranded_messages_are_told_once_they_were_claimed() -> None:
    """With the next page; a message that somebody else has claimed meanwhile was none."""
    batch = a_batch(a_claim(xid=5, seq=1), source="waiting")
    rig = Rig(
        page(a_finding("stranded", position=Position(5, 1)), a_finding("stranded", position=Position(6, 1))),
        claims=FakeClaims({"waiting": [batch]}),
    )
    at_once(rig.scrub.page())
    assert [] == rig.told
    assert batch is at_once(rig.intake.claim(10, 1000))
    assert At([Position(5, 1), Position(6, 1)], "waiting") in rig.claims.wanted

    at_once(rig.scrub.page())
    at_once(rig.scrub.page())

    assert [events.StrandedFound(1)] == rig.told


@timeless
async def test_a_round_comes_every_two_seconds_and_its_pages_in_a_row() -> None:
    """Quick pages follow each other at once."""
    rig = Rig(page(to=Position(10, 1)), page(to=Position(20, 1)))
    began = asyncio.get_running_loop().time()

    await rig.run(4)

    assert [START, Position(10, 1), Position(20, 1), START] == rig.afters()
    assert module.ROUND == pytest.approx(asyncio.get_running_loop().time() - began, abs=0.2)


@timeless
async def test_pages_take_a_quarter_of_the_time_at_the_most() -> None:
    """Slow ones are followed by long pauses: others use the database too. To have waited for other statements counts for nothing."""
    rig = Rig(*[page(to=Position(10, 1))._replace(seconds=0.5)] * 4)
    began = asyncio.get_running_loop().time()
    await rig.run(4)

    assert 3 * 1.5 == pytest.approx(asyncio.get_running_loop().time() - began, abs=0.2)


@timeless
async def test_a_hint_ends_the_pause() -> None:
    """A message was released."""
    rig = Rig()
    loop = asyncio.get_running_loop()
    loop.call_later(0.5, rig.scrub.hint)
    began = loop.time()

    await rig.run(2)

    assert 0.5 == pytest.approx(loop.time() - began, abs=0.1)


@timeless
async def test_a_page_that_fails_is_told_of_and_tried_again() -> None:
    """From where it was to begin."""
    rig = Rig(page(to=Position(10, 1)), StoreError("Away."))

    await rig.run(3)

    assert [START, Position(10, 1), Position(10, 1)] == rig.afters()
    assert [events.MaintenanceFailed("scan of the queue", "Away.")] == rig.told
