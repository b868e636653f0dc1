"""How much a claim may bring, by how long those before it took; and what they are not blamed for."""

from __future__ import annotations

import pytest

from relay.engine.policy import Policy
from relay.errors import StoreError
from relay.message import Claim
from relay.postgres.payload_fetcher import FIRST, GROWTH, LARGE, LEAST, USUAL
from tests.support.database.queue import PLENTY
from tests.support.fakes.adapters import Clock, a_claim
from tests.support.fakes.scripted_store import Answer, Played, clock_of, due_rows
from tests.support.fakes.virtual_time import timeless

LEFT = a_claim(payload=None)
"""One whose payload does not travel with it."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the store and of who fetches."""
    return clock_of(monkeypatch, "store", "payload_fetcher")


async def brought(played: Played, answer: Answer | None = None) -> tuple[int, int]:
    """Bytes that a claim may bring, and those of a message that travels with it."""
    await played.claim(answer=answer)
    values = next(values for values in reversed(played.values) if "limit_bytes" in values)
    return values["limit_bytes"], values["large"]


@pytest.mark.parametrize(("unanswered", "less"), [(True, LEAST), (False, PLENTY)])
@timeless
async def test_a_claim_that_did_not_arrive_in_time_is_followed_by_smaller_ones(clock: Clock, unanswered: bool, less: int) -> None:
    """Until they arrive quickly; a server that refused one says nothing about the way."""
    played = Played()

    async def slow() -> list[tuple[object, ...]]:
        clock.now += 1.0
        return due_rows(a_claim(), found=2)

    with pytest.raises(StoreError):
        await played.claim(answer=StoreError("Silent.", unanswered=unanswered))
    assert (less, min(less, LARGE)) == await brought(played, slow)
    assert (less, min(less, LARGE)) == await brought(played)
    assert (less, min(less, LARGE)) == await brought(played, due_rows(a_claim())), "it brought all there was, and shows nothing"
    assert (less, min(less, LARGE)) == await brought(played, due_rows(a_claim(), found=2))
    assert min(2 * less, PLENTY) == (await brought(played))[0]


@timeless
async def test_a_message_that_is_larger_than_a_claim_may_be_travels_apart() -> None:
    """It would hold up the claim as others of its size did."""
    played = Played()
    with pytest.raises(StoreError):
        await played.claim(answer=StoreError("Silent.", unanswered=True))

    assert (LEAST, LEAST) == await brought(played)


@pytest.mark.parametrize(("piece", "length"), [(FIRST, FIRST), (LEAST, 25_000)])
@timeless
async def test_claims_of_payloads_that_fit_one_piece_grow_again(clock: Clock, piece: int, length: int) -> None:
    """The database takes compressed contents for larger than they are: they are fetched one by one, quickly, and no piece grows over it."""
    played = Played()
    with pytest.raises(StoreError):
        await played.claim(answer=StoreError("Silent.", unanswered=True))
    played.store._deferred.pace.piece = piece

    async def quick() -> list[tuple[bytes, int, float, None]]:
        clock.now += 0.01
        return [(bytes(length), length, 0.0, None)]

    bounds: list[int] = []
    while (bounds[-1:] or [0]) != [PLENTY] and len(bounds) < 20:
        played.answers["read_payload"].append(quick)
        bounds.append((await brought(played, due_rows(LEFT, found=2)))[0])
    assert [LEAST << doubled for doubled in range(bounds.index(USUAL) + 1)] + [PLENTY] == bounds
    assert piece == played.store._deferred.pace.piece


@timeless
async def test_a_payload_that_comes_slowly_lets_no_larger_claim_follow(clock: Clock) -> None:
    """Though its claim came at once."""
    played = Played()
    await played.claim()
    played.store._deferred.pace.too_slow()

    async def slow() -> list[tuple[bytes, int, float, None]]:
        clock.now += 1.0
        return [(b"1", 1, 0.0, None)]

    played.answers["read_payload"].append(slow)
    assert [USUAL // GROWTH] * 2 == [(await brought(played, due_rows(LEFT, found=2)))[0], (await brought(played))[0]]


@pytest.mark.parametrize("claims", [[], [a_claim()]])
@timeless
async def test_a_wait_for_connections_makes_no_claim_smaller(clock: Clock, monkeypatch: pytest.MonkeyPatch, claims: list[Claim]) -> None:
    """Times count from when it was sent. One of several hosts may be a black hole, and each connection tries it first."""
    played = Played(Policy(lock_seconds=30.0))

    async def connect() -> None:
        clock.now += 12.0

    for session in (played.store._settles, played.store._claims):
        monkeypatch.setattr(session, "open", connect)
    batch = (await played.claim(*claims)).batch

    assert (PLENTY, LARGE) == await brought(played)
    assert ("claim", "renew_locks") not in played.asked
    assert [(124.0, 124.0 + 24.0)] * len(claims) == ([(batch.claimed_tick, batch.deadline)] if batch else [])


@timeless
async def test_a_claim_that_brought_nothing_makes_none_smaller(clock: Clock) -> None:
    """However late it came: there was nothing that would have to be less."""
    played = Played()

    async def slow() -> list[tuple[object, ...]]:
        clock.now += 12.1
        return due_rows()

    assert [(PLENTY, LARGE)] * 2 == [await brought(played, slow), await brought(played)]


@timeless
async def test_a_claim_is_not_made_smaller_by_the_room_of_a_moment(clock: Clock) -> None:
    """A window that was almost full says nothing of what the network brings."""
    played = Played()
    await played.claim()

    async def slow() -> list[tuple[object, ...]]:
        clock.now += 12.1
        return due_rows(a_claim())

    await played.claim(limit_bytes=300_000, answer=slow)

    assert (USUAL // GROWTH, LARGE) == await brought(played)


@timeless
async def test_a_claim_for_which_the_window_had_no_room_lets_no_larger_one_follow(clock: Clock) -> None:
    """It came quickly because it was allowed next to nothing."""
    played = Played()
    await played.claim()
    played.store._deferred.pace.too_slow()
    await played.claim(limit_bytes=1000, answer=due_rows(a_claim(), found=2))

    assert (USUAL // GROWTH, LARGE) == await brought(played)


@timeless
async def test_claims_that_took_more_memory_than_there_was_are_followed_by_smaller_ones() -> None:
    """The database had printed what went back in vain; they grow again when they leave most of the room."""
    played = Played()
    played.answers["read_payload"] += [[(bytes(5000), 5000, 0.0, None)] for _ in range(3)]
    for _ in range(2):
        await played.claim(limit_bytes=4000, answer=due_rows(LEFT, LEFT, found=9))

    await played.claim(limit_bytes=4 * 5000, answer=due_rows(LEFT, found=9))
    bounds = [(await brought(played, due_rows(a_claim(), found=9)))[0] for _ in range(6)]
    assert [PLENTY // GROWTH**2, PLENTY // 8, PLENTY // 4, PLENTY // 2, PLENTY, PLENTY] == bounds


@timeless
async def test_a_claim_asks_for_one_message_at_least() -> None:
    """However much more memory than expected the others took."""
    played = Played()
    for _ in range(20):
        played.store._deferred.pace.overfull()
    await played.claim(limit_bytes=1)
    assert [1] == [values["limit_bytes"] for values in played.values if "limit_bytes" in values]
