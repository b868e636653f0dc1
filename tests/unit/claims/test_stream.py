"""Where one stream of fresh messages looks, and how far it takes itself to have come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relay.claims.cursor import LAST_SEQ, Cursor
from relay.claims.stream import WALK, Stream
from relay.message import START, Position
from relay.ports import Claimed, Fresh
from tests.support.fakes.adapters import FakeClaims, a_batch, a_claim, at_once

SNAPSHOT = "20:90:20,30"


class Answers(FakeClaims):
    """Claims that end as the test says."""

    def __init__(self, *answers: Claimed) -> None:
        super().__init__()
        self.answers = list(answers)

    async def claim(self, wanted: object, *, limit: int, limit_bytes: int) -> Claimed:
        """The next answer."""
        assert isinstance(wanted, Fresh)
        self.wanted.append(wanted)
        self.limits.append(("fresh", limit))
        assert limit_bytes
        return self.answers.pop(0)


def answer(*positions: Position, full: bool = False, bounds: Sequence[Position | None] = (None,), snapshot: str = SNAPSHOT) -> Claimed:
    """What a claim found."""
    batch = a_batch(*(a_claim(xid=at.xid, seq=at.seq) for at in positions)) if positions else None
    return Claimed(batch, snapshot, full, max(positions, default=None), bounds)


def claim(stream: Stream, limit: int = 10) -> bool:
    """Claim once; whether something was found."""
    return at_once(stream.claim(limit=limit, limit_bytes=1000, excluded=["audit"])) is not None


def test_a_stream_claims_its_exchange_or_all_but_the_excluded_ones() -> None:
    """In the ranges of its cursor."""
    store = Answers(answer(), answer())

    claim(Stream(store))
    at_once(Stream(store, ["audit"], Cursor(Position(50, 1))).claim(limit=10, limit_bytes=1000))

    main, branch = (one for one in store.wanted if isinstance(one, Fresh))
    assert (Cursor().ranges(), ["audit"], None) == (main.ranges, main.excluded, main.only)
    assert (Cursor(Position(50, 1)).ranges(), [], ["audit"]) == (branch.ranges, branch.excluded, branch.only)


@pytest.mark.parametrize(
    ("claimed", "head", "late", "cut", "full"),
    [
        (answer(), Position(89, LAST_SEQ), {20: 0, 30: 0}, False, False),
        (answer(Position(25, 7)), Position(89, LAST_SEQ), {20: 0, 30: 0}, False, False),
        (answer(Position(25, 7), full=True), Position(25, 7), {20: 0}, True, True),
        (answer(Position(25, 7), bounds=[Position(40, 3)]), Position(40, 2), {20: 0, 30: 0}, True, False),
        (answer(bounds=[Position(40, 3)]), Position(40, 2), {20: 0, 30: 0}, True, False),
        (answer(Position(25, 7), full=True, bounds=[Position(40, 3)]), Position(25, 7), {20: 0}, True, True),
        (answer(full=True), START, {}, True, True),
    ],
)
def test_the_head_goes_to_the_end_to_the_bound_or_to_the_last_message_of_a_full_claim(
    claimed: Claimed, head: Position, late: dict[int, int], cut: bool, full: bool
) -> None:
    """A full claim whose messages were all released again makes no progress."""
    stream = Stream(Answers(claimed))

    claim(stream)

    assert (head, late) == (stream.cursor.head, stream.cursor.late)
    assert (cut, full) == (stream.cut, stream.full)


@pytest.mark.parametrize(
    ("claimed", "late", "head"),
    [
        (answer(Position(12, 8), full=True, bounds=[None, None, None]), {12: 8, 30: 4}, Position(50, 1)),
        (answer(Position(30, 9), full=True, bounds=[None, None, None], snapshot="90:90:"), {30: 9}, Position(50, 1)),
        (answer(Position(30, 9), full=True, bounds=[Position(12, 6), None, None], snapshot="90:90:"), {12: 5, 30: 9}, Position(50, 1)),
        (answer(bounds=[Position(12, 6), None, None], snapshot="90:90:"), {12: 5}, Position(89, LAST_SEQ)),
        (answer(bounds=[None, None, None], snapshot="12:90:12"), {12: 0}, Position(89, LAST_SEQ)),
    ],
)
def test_a_late_transaction_goes_on_from_where_it_was_cut(claimed: Claimed, late: dict[int, int], head: Position) -> None:
    """By a limit or by its bound; it is asked for until all of it was seen after its end."""
    stream = Stream(Answers(claimed), cursor=Cursor(Position(50, 1), {12: 0, 30: 4}))

    claim(stream)

    assert (late, head) == (stream.cursor.late, stream.cursor.head)


def test_a_claim_walks_no_further_than_it_claims_unless_others_messages_are_in_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one then walks as far as one may, and so on until it is full or at the end."""
    short = answer(bounds=[Position(40, 3)])
    store = Answers(answer(), short, short, answer(Position(45, 1), full=True), answer())
    stream = Stream(store)

    for _ in range(5):
        claim(stream)
    assert [20, 20, WALK, WALK, 20] == [one.walk for one in store.wanted if isinstance(one, Fresh)]
    monkeypatch.setattr("relay.claims.stream.WALK", 5)
    store.answers.append(answer())
    claim(stream)
    assert isinstance(store.wanted[-1], Fresh)
    assert 5 == store.wanted[-1].walk


def test_a_claim_under_way_moves_the_cursor_of_before() -> None:
    """A new connection begins again from the left, whatever an answer of the old one says."""

    class Meanwhile(Answers):
        async def claim(self, wanted: object, *, limit: int, limit_bytes: int) -> Claimed:
            stream.restart()
            return await super().claim(wanted, limit=limit, limit_bytes=limit_bytes)

    stream = Stream(Meanwhile(answer(Position(25, 7))))
    claim(stream)

    assert (START, {}) == (stream.cursor.head, stream.cursor.late)
