"""Messages whose lock has expired before: in groups after the first time, alone after that, and one group after the other."""

from __future__ import annotations

import pytest

from relay.claims.rate_limits import RateLimits
from relay.claims.suspects import ALONE_PATIENCE, GROUP_PATIENCE, MAX_GROUP, Suspects
from relay.message import Batch
from relay.ports import ScanFinding
from tests.support.fakes.adapters import Clock, a_batch, a_claim, a_finding


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


@pytest.fixture
def suspects(clock: Clock) -> Suspects:
    """None yet."""
    return Suspects(RateLimits(clock), clock)


def put(suspects: Suspects, count: int = 1, **given: object) -> list[ScanFinding]:
    """A scan has found so many."""
    found = [a_finding("suspect", **given) for _ in range(count)]
    for one in found:
        suspects.backlog.put(one)
    return found


def claimed(suspects: Suspects, group: list[ScanFinding], attempts: int = 2) -> Batch:
    """All of a group was claimed."""
    batch = a_batch(*(a_claim(exchange=one.exchange, attempts=attempts) for one in group))
    suspects.backlog.drop(group)
    suspects.took(batch)
    return batch


def test_those_that_are_trusted_go_together_and_the_others_alone(suspects: Suspects) -> None:
    """The group first; the others one by one."""
    alone = put(suspects, 2, trusted=False)
    group = put(suspects, 3)

    assert group == suspects.next(10, ())
    suspects.settled(claimed(suspects, group).claims)
    assert alone[:1] == suspects.next(10, ())
    suspects.settled(claimed(suspects, alone[:1]).claims)
    assert alone[1:] == suspects.next(10, ())


def test_a_group_is_no_larger_than_the_room_nor_than_is_good(suspects: Suspects) -> None:
    """What kills a relay takes so many with it at the most."""
    put(suspects, MAX_GROUP + 50)

    assert [7, MAX_GROUP] == [len(suspects.next(most, ())) for most in (7, 1000)]


@pytest.mark.parametrize(("attempts", "patience"), [(2, GROUP_PATIENCE), (3, ALONE_PATIENCE)])
def test_the_next_group_waits_until_the_last_is_through_or_has_had_its_time(
    suspects: Suspects, clock: Clock, attempts: int, patience: float
) -> None:
    """If it had killed the relay, no relay would be here to wait."""
    first = put(suspects, 2)
    batch = claimed(suspects, first, attempts)
    second = put(suspects, 1)
    assert [] == suspects.next(10, ())
    clock.now += patience - 0.01
    assert [] == suspects.next(10, ())
    clock.now += 0.02
    assert second == suspects.next(10, ())
    clock.now -= 1.0

    assert suspects.settled(batch.claims)
    assert second == suspects.next(10, ())


def test_a_group_of_which_one_is_not_through_has_its_time(suspects: Suspects) -> None:
    """The others of it are no reason to begin."""
    batch = claimed(suspects, put(suspects, 2))
    put(suspects, 1)

    assert suspects.settled(batch.claims[:1])
    assert [] == suspects.next(10, ())


def test_a_message_that_is_no_suspect_settles_nothing(suspects: Suspects) -> None:
    """Nor does anything while none is in flight."""
    assert not suspects.settled([a_claim()])
    claimed(suspects, put(suspects, 1))
    assert not suspects.settled([a_claim()])


def test_an_exchange_that_does_not_confirm_comes_last(suspects: Suspects, clock: Clock) -> None:
    """One after the other, its messages would hold up all others. Where there are no others, they continue."""
    claimed(suspects, put(suspects, 1, exchange="slow"))
    slow = put(suspects, 1, exchange="slow")
    quick = put(suspects, 1, exchange="quick", trusted=False)
    clock.now += GROUP_PATIENCE + 1

    assert quick == suspects.next(10, ())
    suspects.settled(claimed(suspects, quick).claims)
    assert slow == suspects.next(10, ())


def test_what_is_held_or_has_no_tokens_is_left_out(clock: Clock) -> None:
    """Of a limited exchange as many go as it may have."""
    limits = RateLimits(clock)
    limits.set({"few": 2, "none": 1}, 1)
    clock.now += 1000
    limits.took(a_batch(a_claim(exchange="none")))
    suspects = Suspects(limits, clock)
    for exchange in ("none", "held"):
        put(suspects, 1, exchange=exchange)
    few, free = put(suspects, 3, exchange="few"), put(suspects, 1, exchange="free")

    assert [*few[:2], *free] == suspects.next(10, ["held"])


def test_what_is_held_is_forgotten_and_a_new_connection_forgets_all(suspects: Suspects) -> None:
    """A scan finds it again."""
    put(suspects, 1, exchange="held")
    free = put(suspects, 1)
    suspects.backlog.forget(["held"])
    assert free == suspects.next(10, ())
    claimed(suspects, free)
    put(suspects, 1)

    suspects.clear()

    assert ([], 0) == (suspects.next(10, ()), len(suspects.backlog))
    again = put(suspects, 1)
    assert again == suspects.next(10, ()), "nothing is in flight on a new connection"
