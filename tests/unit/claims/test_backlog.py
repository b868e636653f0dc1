"""What scans have found and no claim has taken: each exchange in its turn, within its limit, and not more than fits in memory."""

from __future__ import annotations

import pytest

from relay.claims.backlog import MAX_EXCHANGES, Backlog
from relay.claims.rate_limits import RateLimits
from relay.message import Position
from relay.ports import ScanFinding
from tests.support.fakes.adapters import Clock, a_batch, a_claim, a_finding


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


def backlog_of(clock: Clock, most: int = 100, **figures: float) -> Backlog:
    """A backlog under limits whose buckets have filled."""
    limits = RateLimits(clock)
    limits.set(figures, 1)
    clock.now += 1000
    return Backlog(limits, most)


def put(backlog: Backlog, exchange: str, *seqs: int, kind: str = "waiting") -> None:
    """A scan has found these."""
    for seq in seqs:
        backlog.put(a_finding(kind, exchange=exchange, position=Position(1, seq)))


def next_of(backlog: Backlog, most: int = 10, *held: str) -> list[int]:
    """Which may be claimed now."""
    return [one.position.seq for one in backlog.next(most, held)]


def drop(backlog: Backlog, exchange: str, *seqs: int) -> None:
    """A claim has tried these."""
    backlog.drop(a_finding(exchange=exchange, position=Position(1, seq)) for seq in seqs)


def test_what_was_found_first_goes_first(clock: Clock) -> None:
    """It stays until a claim has tried it, and is kept once however often it is found."""
    backlog = backlog_of(clock)
    put(backlog, "a", 3, 1, 2)
    put(backlog, "a", 1)

    assert [[3, 1], [3, 1, 2]] == [next_of(backlog, 2), next_of(backlog)]
    drop(backlog, "a", 3, 2)
    assert ([1], 1) == (next_of(backlog), len(backlog))


def test_exchanges_take_turns(clock: Clock) -> None:
    """One that fills a claim has the last place in the next one."""
    backlog = backlog_of(clock)
    put(backlog, "a", 1, 2, 3, 4)
    put(backlog, "b", 5, 6)

    assert [1, 2] == next_of(backlog, 2)
    drop(backlog, "a", 1, 2)
    assert [5, 6] == next_of(backlog, 2)
    drop(backlog, "b", 5, 6)
    assert [3, 4] == next_of(backlog, 2)


def test_a_limit_lets_so_many_go(clock: Clock) -> None:
    """The others wait, and hold up no other exchange."""
    backlog = backlog_of(clock, a=2)
    put(backlog, "a", 1, 2, 3)
    put(backlog, "b", 5, 6)

    assert [1, 2, 5, 6] == next_of(backlog)
    backlog._limits.took(a_batch(a_claim(exchange="a"), a_claim(exchange="a")))
    drop(backlog, "a", 1, 2)
    drop(backlog, "b", 5, 6)
    assert ([], {"a"}) == (next_of(backlog), backlog.throttled)
    clock.now += 1
    assert [3] == next_of(backlog)


def test_what_is_held_waits(clock: Clock) -> None:
    """It is forgotten when the hold begins, and a scan finds it again when the hold ends."""
    backlog = backlog_of(clock)
    put(backlog, "a", 1)
    put(backlog, "b", 2)

    assert [2] == next_of(backlog, 10, "a")
    backlog.forget(["a"])
    assert [2] == next_of(backlog)
    backlog.clear()
    assert [] == next_of(backlog)


def test_memory_is_bounded_for_each_exchange(clock: Clock) -> None:
    """An exchange that has taken more than half of its room is crowded: it holds up no other."""
    backlog = backlog_of(clock, most=4, slow=1)
    put(backlog, "a", 1, 2)
    put(backlog, "slow", *range(10, 20))
    before = backlog.crowded
    put(backlog, "a", 3, 4, 5)

    assert (["slow"], ["a", "slow"]) == (before, sorted(backlog.crowded))
    assert [1, 2, 3, 4, 10] == sorted(next_of(backlog))


def test_memory_is_bounded_in_all(clock: Clock) -> None:
    """Applications name exchanges: the more there are, the less is remembered of each, and one message at least."""
    backlog = Backlog(RateLimits(clock), most=4, in_all=6)
    put(backlog, "a", 1, 2, 3, 4)
    put(backlog, "b", 11, 12, 13, 14)
    for number in range(10):
        put(backlog, f"x{number}", 100 + number, 200 + number)

    assert [1, 2, 3, 4, 11, 12, 13, *range(100, 110), 200] == sorted(next_of(backlog, 100))


def test_dropping_what_is_forgotten_already_changes_nothing(clock: Clock) -> None:
    """An exchange may be held while a claim is on its way."""
    backlog = backlog_of(clock)
    put(backlog, "a", 1, 2)
    backlog.forget(["a"])
    put(backlog, "a", 2)

    drop(backlog, "a", 1)

    assert [2] == next_of(backlog)


def test_only_what_is_wanted_is_chosen(clock: Clock) -> None:
    """The others neither go nor take the room of those that are."""
    backlog = backlog_of(clock)
    put(backlog, "a", 1, 2, 3)

    assert [3] == [one.position.seq for one in backlog.next(1, (), wanted=lambda one: one.position.seq == 3)]


def test_names_that_nobody_knows_take_no_more_room_than_there_is_for_them(clock: Clock) -> None:
    """Any login that inserts chooses the names; a known exchange finds its place all the same."""
    backlog = backlog_of(clock)
    for number in range(MAX_EXCHANGES + 100):
        put(backlog, f"x{number}", number)
    put(backlog, "stranger", 1)
    backlog.put(a_finding("waiting", exchange="known", position=Position(1, 2)), known=True)

    assert MAX_EXCHANGES + 1 == len(backlog)
    backlog.forget([f"x{number}" for number in range(MAX_EXCHANGES)])
    assert (["known"], 1) == ([*map(exchange_of, backlog.next(9, ()))], len(backlog))


def test_names_that_nobody_knows_leave_known_exchanges_their_room(clock: Clock) -> None:
    """Else thousands of them leave each known one ten messages, and the scrub finds the rest ten at a time."""
    backlog = Backlog(RateLimits(clock))
    for number in range(MAX_EXCHANGES):
        put(backlog, f"x{number}", number)
    for number in range(20_000):
        backlog.put(a_finding("waiting", exchange=f"known {number % 4}", position=Position(1, number)), known=True)
    assert (20_000, []) == (len(backlog) - MAX_EXCHANGES, [name for name in backlog.crowded if "known" in name])
    backlog.forget([f"known {number}" for number in range(4)])
    put(backlog, "x0", *range(100_000, 100_020))
    assert 10 == len([one for one in backlog.next(10**6, ()) if one.exchange == "x0"])


def exchange_of(finding: ScanFinding) -> str:
    """The exchange of a finding."""
    return finding.exchange
