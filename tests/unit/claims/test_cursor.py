"""Cursors and the streams over them: whatever order transactions end in, every message is claimed once and none is missed."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from relay.claims import crowd_bypass
from relay.claims import cursor as module
from relay.claims import unconfirmed_exchanges as strange
from relay.claims.cursor import LAST_SEQ, LAST_XID, MAX_LATE, Cursor, Snapshot, cut_at
from relay.claims.flood_control import FloodControl
from relay.claims.rate_limits import RateLimits
from relay.claims.stream import Stream
from relay.claims.streams import Streams
from relay.claims.unconfirmed_exchanges import UnconfirmedExchanges
from relay.message import CONFIRMED, START, Portion, Position, PublishResult, Range, Verdict
from tests.support.fakes.adapters import a_claim, at_once
from tests.unit.claims.queue_model import ModelQueue

EXCHANGES = st.sampled_from("abcd")
MAX_RUNNING, LOOKS = 20, 100
"""Of transactions that may run on while a relay looks so often."""
HOLDS = st.sets(EXCHANGES, max_size=3)
RESULTS = st.sampled_from([CONFIRMED, PublishResult(Verdict.REFUSED, "exchange_missing")])


class Relays(RuleBasedStateMachine):
    """Two relays claim while transactions begin, write, and end in any order; exchanges are held, resumed, limited, known, forgotten."""

    transactions = Bundle("transactions")

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(module, "MAX_LATE", 2)
        self.patch.setattr("relay.claims.stream.WALK", 5)
        self.patch.setattr(strange, "CROWD", 0)
        self.patch.setattr(crowd_bypass, "SAME_FOR", 0.0)
        self.patch.setattr("relay.claims.streams.MAX_FLOODS", 1)
        self.now = 0.0
        self.queue = ModelQueue()
        self.strangers = [UnconfirmedExchanges(window=64, in_flight=dict[str, int], clock=lambda: 0.0) for _ in range(2)]
        self.limits = [RateLimits(lambda: self.now) for _ in range(2)]
        self.relays = [
            Streams(self.queue, FloodControl(window=8, in_flight=lambda exchange: 0, clock=lambda: 0.0), *both)
            for both in zip(self.limits, self.strangers, strict=True)
        ]

    @rule(target=transactions)
    def begin(self) -> int:
        """A transaction takes its xid."""
        return self.queue.begin()

    @rule(xid=transactions, exchange=EXCHANGES)
    def insert(self, xid: int, exchange: str) -> None:
        """It writes a row."""
        self.queue.insert(xid, exchange)

    @rule(xid=consumes(transactions))
    def commit(self, xid: int) -> None:
        """It ends well."""
        self.queue.commit(xid)

    @rule(xid=consumes(transactions))
    def roll_back(self, xid: int) -> None:
        """It ends in nothing."""
        self.queue.rollback(xid)

    @rule(target=transactions, exchanges=st.lists(EXCHANGES, min_size=1, max_size=4))
    def write_at_once(self, exchanges: list[str]) -> object:
        """A whole transaction between two claims."""
        xid = self.queue.begin()
        for exchange in exchanges:
            self.queue.insert(xid, exchange)
        self.queue.commit(xid)
        return multiple()

    @rule(relay=st.integers(0, 1), limit=st.integers(1, 4), hold=st.none() | HOLDS)
    def claim(self, relay: int, limit: int, hold: set[str] | None) -> None:
        """A claim, in the middle of which an operator may hold or resume."""
        streams = self.relays[relay]
        self.queue.meanwhile = (lambda: streams.pause(hold)) if hold is not None else lambda: None
        held = streams.paused
        self.now += 1
        batch = at_once(streams.claim(limit=limit, limit_bytes=1))
        self.queue.meanwhile = lambda: None
        if batch:
            streams.took(batch)
        assert batch is None or not {claim.exchange for claim in batch.claims} & {*held}

    @rule(relay=st.integers(0, 1), exchanges=HOLDS)
    def hold(self, relay: int, exchanges: set[str]) -> None:
        """An operator holds and resumes."""
        self.relays[relay].pause(exchanges)

    @rule(relay=st.integers(0, 1), exchanges=HOLDS)
    def limit(self, relay: int, exchanges: set[str]) -> None:
        """He limits some, and lets all others go as they come."""
        if self.limits[relay].set(dict.fromkeys(exchanges, 5.0), 1):
            self.relays[relay].limit(exchanges)

    @rule(relay=st.integers(0, 1), limit=st.integers(1, 4))
    def claim_limited(self, relay: int, limit: int) -> None:
        """A claim of what is limited names no other exchange."""
        self.now += 1
        if batch := at_once(self.relays[relay].claim_limited(limit=limit, limit_bytes=1)):
            assert {claim.exchange for claim in batch.claims} <= {*self.limits[relay].names}
            self.limits[relay].took(batch)

    @rule(relay=st.integers(0, 1), exchange=EXCHANGES, result=RESULTS)
    def answer(self, relay: int, exchange: str, result: PublishResult) -> None:
        """The broker takes what goes to an exchange, or refuses it."""
        self.strangers[relay].learn(Portion([a_claim(exchange=exchange)], [result], [1.0], [1.0]))

    @rule(relay=st.integers(0, 1))
    def reconnect(self, relay: int) -> None:
        """A new connection begins at the left."""
        self.relays[relay].reset()

    @invariant()
    def no_head_is_beyond_the_transactions_that_were_seen(self) -> None:
        """A head beyond the next xid would miss what begins later."""
        unborn = Position(Snapshot.parse(self.queue.snapshot).xmax, 0)
        assert all(stream.cursor.head < unborn for streams in self.relays for stream in _all(streams))

    @invariant()
    def nothing_is_out_of_reach(self) -> None:
        """What is not claimed yet, or may still be written, is above its stream's head or of a late transaction."""
        left = {at: exchange for at, exchange in self.queue.committed.items() if at not in self.queue.claimed}
        for streams in self.relays:
            assert all(_reaches(streams._branches[exchange], at) for at, exchange in left.items())
            assert all(_reaches(stream, Position(xid, LAST_SEQ)) for stream in _all(streams) for xid in self.queue.running)

    @precondition(lambda self: len(self.queue.running) < MAX_RUNNING)
    @rule(limit=st.integers(1, 4))
    def what_has_committed_goes_although_others_run_on(self, limit: int) -> None:
        """One relay alone comes to everything that is visible and not held."""
        streams = self.relays[0]
        streams.pause([])
        self.limits[0].set({}, 1)
        for _ in range(LOOKS):
            at_once(streams.claim(limit=limit, limit_bytes=1))
        assert self.queue.committed == self.queue.claimed

    def teardown(self) -> None:
        """When every transaction has ended and nothing is held, either relay alone comes to everything that is left."""
        self.patch.undo()
        for xid in list(self.queue.running):
            self.queue.commit(xid)
        streams = self.relays[0]
        streams.pause([])
        self.limits[0].set({}, 1)
        while at_once(streams.claim(limit=3, limit_bytes=1)) or streams.unfinished or streams.pending or [*streams._branches]:
            pass
        assert self.queue.committed == self.queue.claimed


def _all(streams: Streams) -> list[Stream]:
    return [*streams._branches.streams]


def _reaches(stream: Stream, at: Position) -> bool:
    own = stream.cursor
    return at > own.head or (at.xid in own.late and at.seq > own.late[at.xid])


Relays.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestRelays = Relays.TestCase


def test_a_snapshot_is_read_from_its_text() -> None:
    """`xmin:xmax:xip` with and without running transactions."""
    assert Snapshot(12, frozenset()) == Snapshot.parse("12:12:")
    assert Snapshot(99, frozenset({12, 40})) == Snapshot.parse("12:99:12,40")


def advance(cursor: Cursor, snapshot: Snapshot, *reached: Position | None) -> None:
    """One statement over all ranges of the cursor."""
    cursor.advance(cursor.ranges(), reached, snapshot)


def test_a_cursor_asks_for_late_transactions_and_then_above_its_head() -> None:
    """In claim order, each late one from where it was seen to."""
    cursor = Cursor(Position(50, 3), {30: 7, 12: 0})

    assert [Range(Position(12, 0), 13), Range(Position(30, 7), 31), Range(Position(50, 3), LAST_XID)] == cursor.ranges()


def test_one_statement_asks_for_some_late_transactions_and_no_more() -> None:
    """The oldest; the others follow when those have ended."""
    cursor = Cursor(Position(500, 3), dict.fromkeys(range(100, 400), 0))

    assert [*range(100, 100 + MAX_LATE), 500] == [one.after.xid for one in cursor.ranges()]


def test_late_transactions_that_have_ended_do_not_wait_behind_those_that_run() -> None:
    """However many sessions leave transactions open for hours."""
    cursor = Cursor(Position(500, 3), dict.fromkeys(range(100, 400), 0))

    advance(cursor, Snapshot(600, frozenset(range(100, 390))), *[None] * (MAX_LATE + 1))
    advance(cursor, Snapshot(600, frozenset(range(100, 390))), *[None] * (MAX_LATE + 1))

    assert {*range(100, 390)} == cursor.late.keys()


def test_the_head_goes_to_where_a_limit_cut_the_claim() -> None:
    """Transactions below it that were running become late, those above it do not."""
    cursor = Cursor()

    advance(cursor, Snapshot(40, frozenset({12, 30})), Position(20, 5))

    assert (Position(20, 5), {12: 0}) == (cursor.head, cursor.late)


def test_a_transaction_that_was_running_where_the_head_stands_is_late() -> None:
    """A transaction that writes for long may have messages on both sides of it."""
    cursor = Cursor()

    advance(cursor, Snapshot(40, frozenset({20})), Position(20, 5))

    assert {20: 0} == cursor.late


def test_the_head_goes_past_every_finished_transaction_when_nothing_was_left() -> None:
    """But never past an xid that is still to come."""
    cursor = Cursor()

    advance(cursor, Snapshot(40, frozenset({12, 30})), None)

    assert (Position(39, LAST_SEQ), {12: 0, 30: 0}) == (cursor.head, cursor.late)


def test_the_head_never_goes_back_by_a_claim() -> None:
    """A statement with an older snapshot changes nothing."""
    cursor = Cursor(Position(50, 1), {40: 0})

    advance(cursor, Snapshot(45, frozenset({12, 40})), None, None)

    assert (Position(50, 1), {40: 0}) == (cursor.head, cursor.late)


def test_a_late_transaction_is_forgotten_when_it_had_ended_and_nothing_was_cut() -> None:
    """One that runs on, or has begun after the snapshot, is asked for again."""
    cursor = Cursor(Position(70, 1), {12: 0, 30: 0, 65: 0})

    advance(cursor, Snapshot(60, frozenset({30})), None, None, None)

    assert {30: 0, 65: 0} == cursor.late


def test_a_late_transaction_goes_on_from_where_a_limit_cut_it() -> None:
    """Those before it are done with; those behind it, and what is above the head, were not asked for."""
    cursor = Cursor(Position(50, 1), {12: 0, 30: 0, 45: 0})
    ranges, snapshot = cursor.ranges(), Snapshot(60, frozenset())

    cursor.advance(ranges, cut_at(ranges, Position(30, 7)), snapshot)
    assert (Position(50, 1), {30: 7, 45: 0}) == (cursor.head, cursor.late)
    assert [Position(30, 7), Position(45, 0), Position(50, 1)] == [one.after for one in cursor.ranges()]
    advance(cursor, snapshot, None, None, None)

    assert {} == cursor.late


def test_a_claim_that_ended_in_a_late_transaction_leaves_the_head_where_it_is() -> None:
    """What is above it was not looked at."""
    cursor = Cursor(Position(50, 1), {12: 0})

    advance(cursor, Snapshot(60, frozenset({55})), Position(12, 9))

    assert (Position(50, 1), {12: 9}) == (cursor.head, cursor.late)


def test_two_streams_part_where_they_stand() -> None:
    """What one learns from then on is not the other's."""
    main = Cursor(Position(50, 1), {12: 3})

    branch = main.fork()
    advance(main, Snapshot(60, frozenset()), None, None)

    assert (Position(50, 1), {12: 3}) == (branch.head, branch.late)


def test_a_merge_goes_on_from_the_lower_one_of_two_places_in_a_transaction() -> None:
    """Each of the two has left out the other's messages."""
    main, branch = Cursor(Position(50, 1), {12: 9, 30: 5}), Cursor(Position(50, 1), {12: 4, 40: 2})

    assert {12: 4, 30: 5, 40: 2} == main.joined(branch).late


def test_a_merge_leaves_out_what_is_late_above_the_lower_head() -> None:
    """There it is looked for anyhow; asked for before the head, it would take the place of another transaction."""
    main, branch = Cursor(Position(50, 1), {30: 5}), Cursor(Position(89, LAST_SEQ), {55: 0, 12: 0})

    assert main.joined(branch) == branch.joined(main) == Cursor(Position(50, 1), {30: 5, 12: 0})


def test_ranges_before_the_cut_are_done_and_those_behind_it_were_not_begun() -> None:
    """A statement goes through its ranges in claim order."""
    ranges = Cursor(Position(50, 1), {12: 0, 30: 0}).ranges()

    assert [None, Position(30, 7)] == cut_at(ranges, Position(30, 7))
    assert [None, None, Position(70, 7)] == cut_at(ranges, Position(70, 7))
    assert [START] == cut_at(Cursor().ranges(), START)
