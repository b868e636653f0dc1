"""Head and pending, and the streams over them: whatever order transactions end in, nothing is missed and nothing twice."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from relay.claims.frontier import LAST_SEQ, Frontier, Snapshot
from relay.claims.share import Share
from relay.claims.stream import Stream
from relay.claims.streams import Streams
from relay.message import START, Position
from tests.support.fakes import at_once
from tests.support.model import ModelQueue

EXCHANGES = st.sampled_from("abc")
HOLDS = st.sets(EXCHANGES, max_size=2)


class Relays(RuleBasedStateMachine):
    """Two relays claim while transactions begin, write, and end in any order, and exchanges are held and resumed."""

    transactions = Bundle("transactions")

    def __init__(self) -> None:
        super().__init__()
        self.queue = ModelQueue()
        self.relays = [Streams(self.queue, Share(window=8, in_hand=lambda exchange: 0, clock=lambda: 0.0)) for _ in range(2)]
        for streams in self.relays:
            streams.walk = 5

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
        self.queue.meanwhile = (lambda: streams.hold(hold)) if hold is not None else lambda: None
        held = streams.held
        batch = at_once(streams.claim(limit=limit, limit_bytes=1))
        self.queue.meanwhile = lambda: None
        if batch:
            streams.took(batch)
        assert batch is None or not {claim.exchange for claim in batch.claims} & {*held}

    @rule(relay=st.integers(0, 1), exchanges=HOLDS)
    def hold(self, relay: int, exchanges: set[str]) -> None:
        """An operator holds and resumes."""
        self.relays[relay].hold(exchanges)

    @rule(relay=st.integers(0, 1))
    def reconnect(self, relay: int) -> None:
        """A new connection begins at the left."""
        self.relays[relay].reset()

    @invariant()
    def no_head_is_beyond_the_transactions_that_were_seen(self) -> None:
        """A head beyond the next xid would miss what begins later."""
        unborn = Position(Snapshot.parse(self.queue.snapshot).xmax, 0)
        assert all(stream.frontier.head < unborn for streams in self.relays for stream in streams._all)

    @invariant()
    def nothing_is_out_of_reach(self) -> None:
        """What is not claimed yet, or may still be written, stands above its stream's head or is pending there."""
        left = {at: exchange for at, exchange in self.queue.committed.items() if at not in self.queue.claimed}
        for streams in self.relays:
            assert all(_reaches(streams._branches.get(exchange, streams._main), at) for at, exchange in left.items())
            assert all(_reaches(stream, Position(xid, LAST_SEQ)) for stream in streams._all for xid in self.queue.running)

    def teardown(self) -> None:
        """When every transaction has ended and nothing is held, either relay alone comes to everything that is left."""
        for xid in list(self.queue.running):
            self.queue.commit(xid)
        streams = self.relays[0]
        streams.hold([])
        while at_once(streams.claim(limit=3, limit_bytes=1)) or streams.unfinished or streams.pending or streams._branches:
            streams.hint()
        assert self.queue.committed == self.queue.claimed


def _reaches(stream: Stream, at: Position) -> bool:
    frontier = stream.frontier
    return at > frontier.head or (at.xid in frontier.pending and at.seq > frontier.reached.get(at.xid, 0))


Relays.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestRelays = Relays.TestCase


def test_a_snapshot_is_read_from_its_text() -> None:
    """`xmin:xmax:xip` with and without running transactions."""
    assert Snapshot(12, frozenset()) == Snapshot.parse("12:12:")
    assert Snapshot(99, frozenset({12, 40})) == Snapshot.parse("12:99:12,40")


def test_the_head_goes_to_the_last_claimed_position_when_a_limit_cut() -> None:
    """Running transactions below it become pending, those above it do not."""
    frontier = Frontier()

    frontier.passed(Position(20, 5), Snapshot(40, frozenset({12, 30})), exhausted=False)

    assert (Position(20, 5), {12}) == (frontier.head, frontier.pending)


def test_the_head_goes_past_every_finished_transaction_when_nothing_was_left() -> None:
    """But never past an xid that is still to come."""
    frontier = Frontier()

    frontier.passed(None, Snapshot(40, frozenset({12, 30})), exhausted=True)

    assert (Position(39, LAST_SEQ), {12, 30}) == (frontier.head, frontier.pending)


def test_the_head_stays_below_what_begins_later_even_among_messages_of_a_restored_database() -> None:
    """Restored messages carry the xids of another server, which may lie far above this one's."""
    frontier = Frontier()

    frontier.passed(Position(5_000_000, 5), Snapshot(40, frozenset({12})), exhausted=False)

    assert (Position(39, LAST_SEQ), {12}) == (frontier.head, frontier.pending)


def test_the_head_never_goes_back_by_a_claim() -> None:
    """A claim below it changes nothing."""
    frontier = Frontier(Position(50, 1), {40})

    frontier.passed(Position(20, 5), Snapshot(40, frozenset({12})), exhausted=False)
    frontier.passed(None, Snapshot(60, frozenset()), exhausted=False)

    assert (Position(50, 1), {40}) == (frontier.head, frontier.pending)


def test_a_pending_transaction_is_forgotten_when_it_had_ended_and_nothing_was_cut() -> None:
    """Still running, or cut by a limit: asked for again."""
    frontier = Frontier(Position(50, 1), {12, 30, 45})

    frontier.probed({12, 30}, Snapshot(60, frozenset({30})), exhausted=False)
    assert {12, 30, 45} == frontier.pending
    frontier.probed({12, 30}, Snapshot(60, frozenset({30})), exhausted=True)
    assert {30, 45} == frontier.pending


def test_a_look_at_a_pending_transaction_goes_on_from_where_a_limit_cut_it() -> None:
    """Those below are done with; those above were not asked for yet."""
    frontier = Frontier(Position(50, 1), {12, 30, 45}, {12, 30, 45})

    frontier.probed([12, 30, 45], Snapshot(60, frozenset()), exhausted=False, last=Position(30, 7))
    assert ({30, 45}, {30, 45}, {30: 7}) == (frontier.pending, frontier.ripe, frontier.reached)
    assert (Position(30, 7), Position(30, 7)) == (frontier.low, frontier.lowest_head)
    frontier.probed([30, 45], Snapshot(60, frozenset()), exhausted=True)

    assert (set(), set(), {}) == (frontier.pending, frontier.ripe, frontier.reached)


def test_a_merge_goes_on_from_the_lower_one_of_two_places_in_a_transaction() -> None:
    """Each of the two has stepped over the other's messages."""
    main, branch = (Frontier(Position(50, 1), {12, 30}, {12}, reached) for reached in ({12: 9, 30: 5}, {12: 4}))

    main.merge(branch, Snapshot(60, frozenset()))

    assert ({12, 30}, {12: 4}) == (main.pending, main.reached)


def test_the_lowest_position_counts_what_is_pending() -> None:
    """A sweep that began at the head would miss what is claimed late below it."""
    assert START == Frontier().low
    assert Position(12, 0) == Frontier(Position(50, 1), {30, 12}).low
    assert Position(50, 1) == Frontier(Position(50, 1)).low
