"""What is claimed of limited exchanges, by which claims, and when the relay looks again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from relay.claims.bounds import Head
from relay.claims.intake import Intake
from relay.claims.lanes import PAGE
from relay.claims.share import Share
from relay.claims.source import FIRST_GAP
from relay.message import SUCCESS, Batch, Position
from relay.ports import Claimed, Due
from tests.support.fakes import A_HEAD, Clock, FakeClaims, WaitingKeys, a_batch, a_claim, a_portion, at_once

ROOM = 500


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


def intake_of(store: FakeClaims, clock: Clock, **figures: float) -> Intake:
    """An intake with limits whose buckets are full, and every lane."""
    store.lanes = dict.fromkeys(range(64), 1)
    share = Share(window=2000, in_hand=lambda _: 0, clock=clock)
    intake = Intake(store=store, poll_interval=1.0, share=share, clock=clock)
    at_once(intake.lanes.keep())
    intake.limit(figures, 1)
    clock.now += 1000
    return intake


def claim(intake: Intake) -> Batch | None:
    """The next batch, with room for 500 messages."""
    return at_once(intake.claim(ROOM, 10**6))


def of(exchange: str, messages: int, source: str = "above_head") -> Batch:
    """So many messages of an exchange."""
    return a_batch(*(a_claim(exchange=exchange) for _ in range(messages)), source=source)


def limit_of(store: FakeClaims, due: Due, number: int = -1) -> int:
    """How many messages one of the claims of this kind asked for."""
    return [limit for asked, (limit, _) in zip([d for d in store.asked if isinstance(d, Due)], store.limits, strict=True) if asked is due][
        number
    ]


def test_a_limited_exchange_that_keeps_within_its_limit_costs_no_statement(clock: Clock) -> None:
    """The main stream has it, in claims no larger than its tokens."""
    store = FakeClaims({Due.ABOVE_HEAD: [of("a", 3)]})
    store.exhausted = True
    intake = intake_of(store, clock, a=50)

    assert claim(intake)
    assert (50, []) == (limit_of(store, Due.ABOVE_HEAD), intake.streams.apart)
    for _ in range(9):
        assert claim(intake) is None
        clock.now += intake.until_next_look()
    assert (47 + 3, "look") == (limit_of(store, Due.ABOVE_HEAD), store.asked[-1])


def test_a_backlog_is_split_off_and_claimed_by_its_tokens(clock: Clock) -> None:
    """The first claim that is cut short; then the main stream has all its room, and the exchange what it may have."""
    store = FakeClaims({Due.ABOVE_HEAD: [of("a", 50)], Due.EXCHANGE_ABOVE_HEAD: [of("a", 10) for _ in range(5)]})
    intake = intake_of(store, clock, a=50)
    assert claim(intake)
    assert ["a"] == intake.streams.apart

    assert claim(intake) is None
    assert (ROOM, 0) == (limit_of(store, Due.OTHERS_ABOVE_HEAD), store.asked.count(Due.EXCHANGE_ABOVE_HEAD))
    assert ["a"] == intake.behind
    clock.now += 0.2
    found = claim(intake)
    assert found
    assert (10, 10) == (len(found.claims), limit_of(store, Due.EXCHANGE_ABOVE_HEAD))


def test_an_exchange_of_which_nothing_waits_is_not_behind(clock: Clock) -> None:
    """Under a new limit it stands apart, since there is no token yet; that says nothing of messages."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    intake.limit({"a": 0.01}, 1)
    assert claim(intake) is None

    assert (["a"], []) == (intake.streams.apart, intake.behind)


def test_many_limited_exchanges_share_ten_looks_a_second(clock: Clock) -> None:
    """However many stand apart because another is busy."""
    others = a_batch(*(a_claim(exchange=f"b{number}") for number in range(60)))
    store = FakeClaims({Due.OTHERS_ABOVE_HEAD: [others] * 5000})
    intake = intake_of(store, clock)
    intake.limit({f"a{number}": 50 for number in range(100)}, 1)
    run(intake, clock, 5, 0.02)
    store.asked.clear()
    run(intake, clock, 10, 0.02)

    assert 90 <= store.asked.count(Due.EXCHANGE_ABOVE_HEAD) <= 110


def test_the_relay_wakes_when_the_next_portion_is_there(clock: Clock) -> None:
    """And asks for that exchange alone: one statement for each portion, beside the look of a relay that rests."""
    store = FakeClaims({Due.ABOVE_HEAD: [of("a", 50)], Due.EXCHANGE_ABOVE_HEAD: [of("a", 10) for _ in range(100)]})
    intake = intake_of(store, clock, a=50)
    claim(intake)
    begun = clock.now
    while clock.now < begun + 4:
        while claim(intake):
            pass
        clock.now += intake.until_next_look()
    store.asked.clear()
    begun = clock.now
    while clock.now < begun + 2:
        while claim(intake):
            pass
        clock.now += intake.until_next_look()

    assert 9 <= store.asked.count(Due.EXCHANGE_ABOVE_HEAD) <= 11
    assert len(store.asked) <= 2 * 10


def test_one_that_has_caught_up_is_merged_where_nothing_else_is_busy(clock: Clock) -> None:
    """Beside large claims of others it stands apart, and is looked at ten times a second."""
    others = [a_batch(*(a_claim(exchange=f"b{number}") for number in range(400))) for _ in range(20)]
    store = FakeClaims({Due.ABOVE_HEAD: [of("b", 50)], Due.OTHERS_ABOVE_HEAD: others})
    intake = intake_of(store, clock, a=50)
    for _ in range(10):
        claim(intake)
    assert (["a"], 1) == (intake.streams.apart, store.asked.count(Due.EXCHANGE_ABOVE_HEAD))
    clock.now += 0.11
    for _ in range(3):
        claim(intake)
    assert (["a"], 2) == (intake.streams.apart, store.asked.count(Due.EXCHANGE_ABOVE_HEAD))
    while claim(intake):
        pass
    clock.now += 0.11
    claim(intake)
    assert [] == intake.streams.apart


def test_what_waits_is_claimed_by_its_tokens_too(clock: Clock) -> None:
    """Apart from that of all others, which has no limit; and again as soon as there is a portion."""
    store = FakeClaims({Due.WAITING: [None, of("a", 50, "waiting"), None, of("a", 10, "waiting")]})
    intake = intake_of(store, clock, a=50)
    while not claim(intake):
        pass

    wheres = [where for where in store.wheres if "only" in where and "lanes" not in where]
    assert [(["a"], None), ([], ["a"])] == [(where["except"], where["only"]) for where in wheres]
    assert 50 == limit_of(store, Due.WAITING)
    assert claim(intake) is None
    assert (["a"], True) == (intake.behind, intake.until_next_look() <= 0.2)


class Waiting(FakeClaims):
    """Delayed messages of some exchanges, of which a claim takes the first ones."""

    def __init__(self, **messages: int) -> None:
        super().__init__()
        self.waiting = messages
        self.went: list[str] = []

    async def claim(self, due: Due, *, limit: int, limit_bytes: int, where: Mapping[str, object]) -> Claimed:
        """As many as may go, of one exchange after the other."""
        await super().claim(due, limit=limit, limit_bytes=limit_bytes, where=where)
        only = cast("list[str]", where["only"]) if due is Due.WAITING and where["only"] else []
        found = [name for name, messages in self.waiting.items() if name in only for _ in range(min(messages, limit))]
        for name in found[:limit]:
            self.waiting[name] -= 1
        self.went += found[:limit]
        batch = a_batch(*(a_claim(exchange=name) for name in found[:limit]), source="waiting") if found else None
        return Claimed(batch, "1:1:", exhausted=len(found) < limit)


def run(intake: Intake, clock: Clock, seconds: float, pace: float = 0.003) -> None:
    """Claim for so long, each claim in so many seconds."""
    end = clock.now + seconds
    while clock.now < end:
        while clock.now < end and claim(intake):
            clock.now += pace
        clock.now += max(intake.until_next_look(), 0.0005)


def test_an_exchange_that_may_have_few_slows_no_other_down(clock: Clock) -> None:
    """What waits of one with a low limit is claimed apart from what may have many; idle or not."""
    for few in (0, 100):
        store = Waiting(a=10**5, b=few)
        intake = intake_of(store, clock, a=1000, b=1)
        run(intake, clock, 10)

        assert store.went.count("a") >= 9500
        assert min(few, 10) <= store.went.count("b") <= 11
        assert len(store.asked) <= 60 * 10


def test_exchanges_that_may_have_about_as_many_are_asked_for_together(clock: Clock) -> None:
    """A hundred limits are no hundred statements."""
    store = Waiting()
    intake = intake_of(store, clock, **{f"e{number}": 40 + number % 20 for number in range(100)})
    run(intake, clock, 1)
    store.asked.clear()
    store.seen = store.seen._replace(waiting=True)
    run(intake, clock, 10)

    assert store.asked.count(Due.WAITING) <= 4 * store.asked.count("look")


def test_a_backlog_does_not_starve_what_waits(clock: Clock) -> None:
    """Of two that never run dry each gets half of the portions."""
    store = FakeClaims({
        Due.ABOVE_HEAD: [of("a", 50)],
        Due.EXCHANGE_ABOVE_HEAD: [of("a", 10, "fresh") for _ in range(50)],
    })  # fmt: skip
    intake = intake_of(store, clock, a=50)
    claim(intake)
    store._script[Due.WAITING] = []
    sources: list[str] = []
    for _ in range(40):
        clock.now += 0.2
        store._script[Due.WAITING] = [None, of("a", 10, "waiting")] if store._script[Due.WAITING] == [] else store._script[Due.WAITING]
        while batch := claim(intake):
            sources.append(batch.source)

    assert sources.count("waiting") > 5
    assert sources.count("fresh") > 5


def test_keys_wait_for_the_limit_of_their_heads(clock: Clock) -> None:
    """As many heads as there are tokens; the other keys have their turn when there are more, and keys of others go at once."""
    store = FakeClaims({Due.ORDERED: [a_batch(*(a_claim(exchange=name, ordering_key=key) for key, name in going)) for going in (
        [("p", "a"), ("z", "b")], [("q", "a")],
    )]})  # fmt: skip
    store.keys = ["p", "q", "z"]
    store.heads = {key: Head(Position(50, 1), locked=False, ready=True, exchange=name) for key, name in zip("pqz", "aab", strict=True)}
    intake = intake_of(store, clock, a=1)

    first = claim(intake)
    assert first
    assert ["p", "z"] == [one.ordering_key for one in first.claims]
    assert (["q"], ["a"]) == (list(intake.lanes.aside._keys["a"]), intake.behind)
    store.heads |= {key: Head(Position(50, 1), locked=False, ready=False) for key in "pz"}
    intake.settled(a_portion(first.claims), [SUCCESS, SUCCESS])
    assert claim(intake) is None
    clock.now += 1
    second = claim(intake)
    assert second
    assert ["q"] == [one.ordering_key for one in second.claims]


@pytest.mark.parametrize("rate", [0.1, 0.5, 3, 50])
def test_keys_that_wait_for_a_limit_go_although_nothing_new_comes(clock: Clock, rate: float) -> None:
    """The look of a relay that rests sees nothing of them: they stand below the head of the lanes."""
    store = FakeClaims({Due.ORDERED: [a_batch(a_claim(exchange="a", ordering_key=key)) for key in "pqrstu"]})
    store.exhausted = True
    store.keys = list("pqrstu")
    store.heads = {key: Head(Position(50, 1), locked=False, ready=True, exchange="a") for key in "pqrstu"}
    intake = intake_of(store, clock, a=rate)
    begun, gone = clock.now, 0
    while clock.now < begun + 6 / rate + 2:
        while batch := claim(intake):
            for one in batch.claims:
                store.heads[str(one.ordering_key)] = Head(Position(50, 1), locked=False, ready=False)
            intake.settled(a_portion(batch.claims), [SUCCESS] * len(batch.claims))
            gone += len(batch.claims)
        clock.now += max(intake.until_next_look(), 0.001)

    assert (6, []) == (gone, intake.behind)


def test_a_relay_that_rests_looks_no_more_often_for_a_limit(clock: Clock) -> None:
    """Once in a poll interval, also where the last claims had left out an exchange that has tokens again."""
    store = FakeClaims({Due.ABOVE_HEAD: [of("a", 1)]})
    store.exhausted = True
    intake = intake_of(store, clock, a=1)
    run(intake, clock, 60)

    assert store.asked.count("look") <= 60


def test_a_pause_wins(clock: Clock) -> None:
    """Nothing asks for a limited exchange that is held; let go it goes on under its limit at once."""
    store = FakeClaims({Due.ABOVE_HEAD: [of("a", 50)], Due.EXCHANGE_ABOVE_HEAD: [of("a", 10)]})
    intake = intake_of(store, clock, a=50)
    claim(intake)
    intake.hold({"a"})
    clock.now += 10
    for _ in range(9):
        assert claim(intake) is None
        clock.now += intake.until_next_look()
    assert Due.EXCHANGE_ABOVE_HEAD not in store.asked
    assert not [where for where in store.wheres if "a" in (where.get("only") or ())]  # type: ignore[operator]

    intake.hold(set())
    assert claim(intake)


def test_a_limit_that_is_lifted_lets_everything_go(clock: Clock) -> None:
    """At once, and its stream is merged as that of any other."""
    store = FakeClaims({Due.ABOVE_HEAD: [of("a", 1)], Due.EXCHANGE_ABOVE_HEAD: [of("a", 400)]})
    intake = intake_of(store, clock, a=0.01)
    claim(intake)
    assert claim(intake) is None
    intake.limit({}, 1)

    assert claim(intake)
    assert ROOM == limit_of(store, Due.EXCHANGE_ABOVE_HEAD)
    while claim(intake):
        pass
    assert [] == intake.streams.apart


def test_what_goes_again_is_debited_again(clock: Clock) -> None:
    """Whichever kind of claim it is."""
    store = FakeClaims({Due.ABOVE_HEAD: [of("a", 1)], Due.SUSPECT: [None, of("a", 1, "suspect")]})
    intake = intake_of(store, clock, a=2)
    while not (batch := claim(intake)) or batch.source != "suspect":
        clock.now += FIRST_GAP / 1000

    assert intake.limits.allowance("a") == 0


def test_the_longer_a_limited_backlog_of_keys_waits_the_more_seldom_it_is_listed(clock: Clock) -> None:
    """However many pages a look takes: it is one look, and the next one is as far away as after a short one."""
    store = WaitingKeys(3 * PAGE, A_HEAD._replace(exchange="a"))
    intake = intake_of(store, clock, a=0.001)
    intake.limits.took(of("a", 1))
    began = clock.now
    while clock.now < began + 20:
        assert claim(intake) is None
        clock.now += max(intake.until_next_look(), 0.001)

    assert 3 < store.asked.count("list_waiting_keys") < 3 * 30
