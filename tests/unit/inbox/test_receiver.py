"""The receiving loop over a source and an inbox in memory: what is acknowledged, when, and what never is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from relay import events
from relay.errors import StoreError
from relay.events.inbox import BatchReceived, DeliveryRejected, InboxFull, InboxOpen, ReceiveFailed
from relay.inbox import held, receiver
from relay.inbox.blame import SILENCES
from relay.inbox.delivery import Delivery, Problem
from relay.inbox.ports import Taken
from relay.inbox.receiver import Receiver

AWAY = StoreError("PostgreSQL does not answer.")
GUILTY = StoreError("A value is refused.", row_is_guilty=True)
SILENT = StoreError("PostgreSQL did not answer a statement.", unanswered=True)
HELD = StoreError("Another session holds a lock.", in_passing=True)


def of(name: str, problem: Problem | None = None) -> Delivery:
    """A delivery of this id."""
    return Delivery("q", name, "e", "k", b"1", "1", "{}", problem)


class Rig:
    """Source and inbox at once; everything that happens is noted in order."""

    def __init__(self, *names: str, troubles: Sequence[StoreError] = (), bad: str = "", limit: int = 1000) -> None:
        self.happened: list[Any] = []
        self.events: list[events.Event] = []
        self.left = [of(name) for name in names]
        self.troubles = list(troubles)
        self.bad = bad
        self.hung = ""
        self.well = True
        self.lost = False
        self.paused = False
        self.prefetch = 100
        self.there = 0
        self.receiver = Receiver(source=self, inbox=self, batch_size=4, batch_bytes=1 << 20, limit=limit, emit=self.emit)

    def emit(self, event: events.Event) -> None:
        """Note it."""
        self.events.append(event)

    async def take(self, most: int, most_bytes: int) -> list[Taken]:
        """The next ones; after the last the receiver is stopped, unless something is held up."""
        assert most_bytes
        taken, self.left = self.left[:most], self.left[most:]
        if not taken:
            if not self.receiver._held:
                self.receiver.stop()
            await asyncio.get_running_loop().create_future()
        return [Taken(each, "channel", tag) for tag, each in enumerate(taken)]

    def acknowledge(self, taken: Sequence[Taken]) -> None:
        """Note it."""
        self.happened.append(("ack", [each.delivery.message_id for each in taken]))

    def is_lost(self, taken: Sequence[Taken]) -> bool:
        """As the test has it."""
        assert taken
        return self.lost

    def is_used_up(self, queue: str, unacknowledged: int) -> bool:
        """As the test has it."""
        assert "q" == queue
        return unacknowledged >= self.prefetch

    def pause(self) -> None:
        """Note it."""
        self.paused = True

    def resume(self) -> None:
        """Note it."""
        self.paused = False

    async def write(self, deliveries: Sequence[Delivery]) -> int:
        """Note it, unless there is trouble."""
        names = [each.message_id for each in deliveries]
        if self.troubles:
            raise self.troubles.pop(0)
        if {*self.bad} & {*names}:
            raise GUILTY
        if self.hung in names:
            self.happened.append(("silent", names))
            assert len(self.happened) < 100, "nothing but silence"
            raise SILENT
        self.happened.append(("write", names))
        self.there += len(names)
        return len(names)

    async def reject(self, delivery: Delivery, problem: Problem) -> bool:
        """Note it."""
        self.happened.append(("reject", delivery.message_id, problem.code))
        return True

    async def takes_others(self) -> bool:
        """As the test has it."""
        return self.well

    async def waiting(self, most: int) -> int:
        """As the test has it."""
        return min(self.there, most + 1)


async def test_nothing_is_acknowledged_before_it_is_written() -> None:
    """Handful by handful, each after its write."""
    rig = Rig("a", "b", "c", "d", "e")
    await rig.receiver.run()
    assert [("write", ["a", "b", "c", "d"]), ("ack", ["a", "b", "c", "d"]), ("write", ["e"]), ("ack", ["e"])] == rig.happened


async def test_a_database_that_is_away_is_waited_for_with_what_is_here() -> None:
    """The same deliveries are written when it answers, and acknowledged then. Readiness says why the receiver waits."""
    rig = Rig("a", troubles=[AWAY])
    reasons: list[dict[str, str]] = []
    plain = rig.emit

    def emit(event: events.Event) -> None:
        if isinstance(event, ReceiveFailed):
            reasons.append(rig.receiver.reasons)
        plain(event)

    rig.receiver._emit = emit
    await rig.receiver.run()
    assert [("write", ["a"]), ("ack", ["a"])] == rig.happened
    assert ([{"database": str(AWAY)}], {}) == (reasons, rig.receiver.reasons)


@pytest.mark.parametrize("bad", ["a", "b", "c", "d"])
async def test_a_delivery_that_the_table_refuses_stands_alone(bad: str) -> None:
    """Its neighbours are written, it is rejected, and all are acknowledged together."""
    rig = Rig("a", "b", "c", "d", bad=bad)
    await rig.receiver.run()
    written = [name for what, *rest in rig.happened if what == "write" for name in rest[0]]
    assert sorted({"a", "b", "c", "d"} - {bad}) == sorted(written)
    assert ("reject", bad, "row_refused") in rig.happened
    assert ("ack", ["a", "b", "c", "d"]) == rig.happened[-1]
    [received] = [event for event in rig.events if isinstance(event, BatchReceived)]
    assert (3, 0, 1) == (received.new, received.known, received.rejected)


async def test_deliveries_whose_options_the_table_refuses_are_found_without_it() -> None:
    """One failed write is enough, however many they are: their neighbours are written together, and each is rejected for its own reason."""
    rig = Rig(*"abcd", bad="ac")
    rig.left = [replace(each, options='{"headers": {"": 1}}') if each.message_id in rig.bad else each for each in rig.left]
    await rig.receiver.run()
    assert [("write", ["b", "d"]), ("reject", "a", "row_refused"), ("reject", "c", "row_refused"), ("ack", [*"abcd"])] == rig.happened
    sentences = {event.detail for event in rig.events if isinstance(event, DeliveryRejected)}
    assert {'PostgreSQL refuses it: options.headers has a name that is empty or longer than 128 bytes: "".'} == sentences


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow each other at once."""
    for module in (receiver, held):
        monkeypatch.setattr(module, "pause", lambda attempt, longest: 0.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("hung", ["a", "b", "c", "d"])
async def test_a_delivery_that_postgresql_does_not_end_with_stands_alone(hung: str) -> None:
    """Its neighbours are written in their order. It is rejected after three silences alone, and each silence is reported."""
    rig = Rig("a", "b", "c", "d")
    rig.hung = hung
    await asyncio.wait_for(rig.receiver.run(), 10)
    assert [[hung]] * SILENCES == [rest[0] for what, *rest in rig.happened[1:] if what == "silent"]
    assert [[name] for name in "abcd" if name != hung] == [rest[0] for what, *rest in rig.happened if what == "write"]
    assert [("reject", hung, "write_unanswered")] == [each for each in rig.happened if each[0] == "reject"]
    assert ("ack", ["a", "b", "c", "d"]) == rig.happened[-1]
    assert 1 + SILENCES == len([event for event in rig.events if isinstance(event, ReceiveFailed)])
    assert {} == rig.receiver.reasons


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("names", ["a", "abcd"])
async def test_a_server_that_takes_nothing_makes_no_delivery_guilty(names: str) -> None:
    """However often it says nothing: the deliveries stay together, and are written when it answers."""
    rig = Rig(*names, troubles=[SILENT] * 10)
    rig.well = False
    await asyncio.wait_for(rig.receiver.run(), 10)
    assert [("write", [*names]), ("ack", [*names])] == rig.happened


@pytest.mark.usefixtures("quick")
async def test_other_troubles_between_silences_neither_count_nor_start_anew() -> None:
    """What an abandoned statement still locks is waited for."""
    rig = Rig("a", troubles=[SILENT, HELD, HELD, HELD, HELD, SILENT, AWAY])
    await asyncio.wait_for(rig.receiver.run(), 10)
    assert [("write", ["a"]), ("ack", ["a"])] == rig.happened
    rig = Rig("a", troubles=[SILENT, HELD, SILENT, AWAY, SILENT])
    await asyncio.wait_for(rig.receiver.run(), 10)
    assert [("reject", "a", "write_unanswered"), ("ack", ["a"])] == rig.happened


@pytest.mark.usefixtures("quick")
async def test_what_waits_for_a_lock_leaves_the_line_and_comes_in_later() -> None:
    """Its neighbours are written and acknowledged in their order meanwhile; it is not rejected, and acknowledged once it is written."""
    rig = Rig(*"abcd", troubles=[HELD, HELD])
    await asyncio.wait_for(rig.receiver.run(), 10)
    writes = [("write", [name]) for name in "bcd"]
    assert [*writes, ("ack", [*"bcd"]), ("write", ["a"]), ("ack", ["a"])] == rig.happened


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("prefetch", "reasons"), [(3, {}), (2, {"queue q": f"Every delivery of queue 'q' waits, so no other comes: {HELD}"})]
)
async def test_readiness_says_what_waits_and_that_nothing_else_comes(prefetch: int, reasons: dict[str, str]) -> None:
    """A note while the queue has other deliveries; a reason once as many wait as the broker sends. Both end with the wait."""
    rig = Rig(*"ab", troubles=[HELD] * 5)
    rig.prefetch = prefetch
    said: list[tuple[dict[str, str], dict[str, str]]] = []
    given = rig.take

    async def take(most: int, most_bytes: int) -> list[Taken]:
        said.append((rig.receiver.reasons, rig.receiver.notes))
        return await given(most, most_bytes)

    rig.take = take  # type: ignore[method-assign]
    await asyncio.wait_for(rig.receiver.run(), 10)
    assert (reasons, {"held": f"Deliveries that wait, unacknowledged: 2. {HELD}"}) in said
    assert ({}, {}) == (rig.receiver.reasons, rig.receiver.notes)


@pytest.mark.usefixtures("quick")
async def test_a_lock_that_everything_waits_for_divides_nothing() -> None:
    """As that of a migration: the deliveries stay together, in their order."""
    rig = Rig(*"abcd", troubles=[HELD] * 5)
    rig.well = False
    await asyncio.wait_for(rig.receiver.run(), 10)
    assert [("write", [*"abcd"]), ("ack", [*"abcd"])] == rig.happened


async def test_what_the_broker_brings_again_is_not_written_over_and_over() -> None:
    """Once the channel is gone, deliveries cannot be acknowledged. They are dropped here, as they come again."""
    rig = Rig("a", troubles=[AWAY])

    def emit(event: events.Event) -> None:
        if isinstance(event, ReceiveFailed):
            rig.lost = True

    rig.receiver._emit = emit
    await rig.receiver.run()
    assert [] == rig.happened


async def test_a_stop_waits_for_no_database() -> None:
    """What was not written stays unacknowledged."""
    rig = Rig("a", troubles=[AWAY] * 100)

    def emit(event: events.Event) -> None:
        if isinstance(event, ReceiveFailed):
            rig.receiver.stop()

    rig.receiver._emit = emit
    await rig.receiver.run()
    assert [] == rig.happened


async def test_no_rejection_begins_after_the_stop() -> None:
    """Each may wait for a database that hangs."""
    rig = Rig()
    rig.left = [of(name, Problem("content_invalid", "No JSON.")) for name in "abc"]

    def emit(event: events.Event) -> None:
        if isinstance(event, DeliveryRejected):
            rig.receiver.stop()

    rig.receiver._emit = emit
    await rig.receiver.run()
    assert [("reject", "a", "content_invalid"), ("ack", ["a"])] == rig.happened


async def test_a_rejection_that_was_lost_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock that it may still hold is not another's."""
    rig = Rig()

    async def lose(*_: object) -> bool:
        raise SILENT

    monkeypatch.setattr(rig, "reject", lose)
    await rig.receiver._receive([Taken(of("a", Problem("content_invalid", "No JSON.")), "channel", 0)])
    assert rig.receiver._held.pop().blame.lost_at is not None


async def test_a_full_inbox_pauses_the_source_at_once() -> None:
    """It does so as soon as what was written may have filled it, not at the next look. A fifth must be gone before it continues."""
    rig = Rig(*"abcdefghijkl", limit=10)
    await rig.receiver.run()
    assert [InboxFull(11, 10)] == [event for event in rig.events if isinstance(event, InboxFull)]
    assert rig.paused
    room = rig.receiver._backpressure
    for there, opens in ((9, []), (8, []), (7, [InboxOpen(7)])):
        rig.there = there
        await room.count()
        assert opens == [event for event in rig.events if isinstance(event, InboxOpen)]
