"""What is claimed of limited exchanges, by which claims, and when the relay looks again."""

from __future__ import annotations

import pytest

from relay.claims.flood_control import FloodControl
from relay.claims.intake import Intake
from relay.claims.poll_backoff import FIRST_GAP
from relay.message import SUCCESS, Batch, Position
from relay.ports import At, Claimed, Fresh, Wanted
from tests.support.fakes.adapters import A_HEAD, NOWHERE, Clock, FakeClaims, a_batch, a_claim, a_finding, a_portion, at_once

ROOM = 500


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


def intake_of(store: FakeClaims, clock: Clock, **figures: float) -> Intake:
    """An intake with limits whose buckets are full, and every lane."""
    store.lanes = dict.fromkeys(range(64), 1)
    share = FloodControl(window=2000, in_flight=lambda _: 0, clock=clock)
    intake = Intake(store=store, poll_interval=1.0, share=share, clock=clock)
    at_once(intake.lanes.keep())
    intake.limit(figures, 1)
    clock.now += 1000
    return intake


def claim(intake: Intake) -> Batch | None:
    """The next batch, with room for 500 messages."""
    return at_once(intake.claim(ROOM, 10**6))


def of(exchange: str, messages: int, source: str = "fresh") -> Batch:
    """So many messages of an exchange."""
    return a_batch(*(a_claim(exchange=exchange) for _ in range(messages)), source=source)


def limit_of(store: FakeClaims, source: str) -> int:
    """How many messages the last claim of this kind asked for."""
    return [limit for asked, limit in store.limits if asked == source][-1]


def waiting(intake: Intake, exchange: str, messages: int, kind: str = "waiting") -> None:
    """A scan has found so many messages of an exchange."""
    intake.found(a_finding(kind, exchange=exchange) for _ in range(messages))


def test_a_limited_exchange_that_keeps_within_its_limit_costs_no_statement(clock: Clock) -> None:
    """The main stream has it, in claims no larger than its tokens."""
    store = FakeClaims({"fresh": [of("a", 3)]})
    store.full = False
    intake = intake_of(store, clock, a=50)

    assert claim(intake)
    assert (50, []) == (limit_of(store, "fresh"), [*intake.streams.heads])
    for _ in range(9):
        assert claim(intake) is None
        clock.now += intake.until_next_look()
    assert (47 + 3, "look") == (limit_of(store, "fresh"), store.asked[-1])


def test_a_backlog_is_split_off_and_claimed_by_its_tokens(clock: Clock) -> None:
    """The first claim that is cut short; then the main stream has all its room, and the exchange what it may have."""
    store = FakeClaims({"fresh": [of("a", 50)], "branch": [of("a", 10) for _ in range(5)]})
    intake = intake_of(store, clock, a=50)
    assert claim(intake)
    assert ["a"] == [*intake.streams.heads]

    assert claim(intake) is None
    assert (ROOM, 0) == (limit_of(store, "fresh"), store.asked.count("branch"))
    assert ["a"] == intake.behind
    clock.now += 0.2
    found = claim(intake)
    assert found
    assert (10, 10) == (len(found.claims), limit_of(store, "branch"))


def test_an_exchange_of_which_nothing_waits_is_not_behind(clock: Clock) -> None:
    """Under a new limit it is apart, since it has no token yet. That does not mean that messages wait."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    intake.limit({"a": 0.01}, 1)
    assert claim(intake) is None

    assert (["a"], []) == ([*intake.streams.heads], intake.behind)


def test_many_limited_exchanges_share_ten_looks_a_second(clock: Clock) -> None:
    """However many stand apart because another is busy."""
    others = a_batch(*(a_claim(exchange=f"b{number}") for number in range(60)))
    store = FakeClaims({"fresh": [others] * 5000})
    intake = intake_of(store, clock)
    intake.limit({f"a{number}": 50 for number in range(100)}, 1)
    run(intake, clock, 5, 0.02)
    store.asked.clear()
    run(intake, clock, 10, 0.02)

    assert 90 <= store.asked.count("branch") <= 110


def test_the_relay_wakes_when_the_next_portion_is_there(clock: Clock) -> None:
    """It asks for that exchange alone: one statement for each portion, in addition to the look of a relay that rests."""
    store = FakeClaims({"fresh": [of("a", 50)], "branch": [of("a", 10) for _ in range(100)]})
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

    assert 9 <= store.asked.count("branch") <= 11
    assert len(store.asked) <= 2 * 10


def test_one_that_has_caught_up_is_merged_where_nothing_else_is_busy(clock: Clock) -> None:
    """Alongside large claims of others it stays apart, and is looked at ten times a second."""
    others = [a_batch(*(a_claim(exchange=f"b{number}") for number in range(400))) for _ in range(20)]
    store = FakeClaims({"fresh": [of("b", 50), *others]})
    intake = intake_of(store, clock, a=50)
    for _ in range(10):
        claim(intake)
    assert (["a"], 1) == ([*intake.streams.heads], store.asked.count("branch"))
    clock.now += 0.11
    for _ in range(3):
        claim(intake)
    assert (["a"], 2) == ([*intake.streams.heads], store.asked.count("branch"))
    while claim(intake):
        pass
    clock.now += 0.11
    claim(intake)
    assert [] == [*intake.streams.heads]


class Claimable(FakeClaims):
    """Claims by position find all that they ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.went: list[str] = []
        self.exchange_of: dict[int, str] = {}

    async def claim(self, wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        """Everything at these positions."""
        claimed = await super().claim(wanted, limit=limit, limit_bytes=limit_bytes)
        if not isinstance(wanted, At):
            return claimed
        names = [self.exchange_of[at.seq] for at in wanted.positions]
        self.went += names
        claims = (a_claim(xid=at.xid, seq=at.seq, exchange=name) for at, name in zip(wanted.positions, names, strict=True))
        return Claimed(a_batch(*claims, source=wanted.source), NOWHERE, full=False)

    def waiting(self, intake: Intake, exchange: str, messages: int, kind: str = "waiting") -> None:
        """A scan has found so many messages of an exchange."""
        found = [a_finding(kind, exchange=exchange) for _ in range(messages)]
        self.exchange_of |= {one.position.seq: exchange for one in found}
        intake.found(found)


def test_what_waits_is_claimed_by_its_tokens_too(clock: Clock) -> None:
    """Together with that of all others, which has no limit; and again as soon as there is a portion."""
    store = Claimable()
    intake = intake_of(store, clock, a=50)
    store.waiting(intake, "a", 100)
    store.waiting(intake, "b", 70)
    while claim(intake):
        pass

    assert (50, 70) == (store.went.count("a"), store.went.count("b"))
    assert (["a"], True) == (intake.behind, intake.until_next_look() <= 0.2)
    clock.now += 0.2
    while claim(intake):
        pass
    assert 60 == store.went.count("a")


@pytest.mark.parametrize("trusted", [True, False])
def test_suspects_go_by_their_tokens_too(clock: Clock, trusted: bool) -> None:
    """In a group as many as there are; one alone."""
    store = Claimable()
    intake = intake_of(store, clock, a=3)
    found = [a_finding("suspect", exchange="a", trusted=trusted) for _ in range(10)]
    store.exchange_of = {one.position.seq: "a" for one in found}
    intake.found(found)

    assert claim(intake)

    assert (3 if trusted else 1) == len(store.went)


def run(intake: Intake, clock: Clock, seconds: float, pace: float = 0.003) -> None:
    """Claim for so long, each claim in so many seconds."""
    end = clock.now + seconds
    while clock.now < end:
        while clock.now < end and claim(intake):
            clock.now += pace
        clock.now += max(intake.until_next_look(), 0.0005)


def test_an_exchange_that_may_have_few_slows_no_other_down(clock: Clock) -> None:
    """What waits of one with a low limit stays where it is while the others go; idle or not."""
    for few in (0, 100):
        store = Claimable()
        intake = intake_of(store, clock, a=1000, b=1)
        store.waiting(intake, "b", few)
        store.waiting(intake, "a", 10_000)
        run(intake, clock, 9)

        assert store.went.count("a") >= 8500
        assert min(few, 8) <= store.went.count("b") <= 10
        assert len(store.asked) <= 60 * 10


def test_a_backlog_does_not_starve_what_waits(clock: Clock) -> None:
    """Of two that never run dry each gets a part of the tokens."""
    store = Claimable()
    store.script = {"fresh": [of("a", 50)], "branch": [of("a", 10, "fresh") for _ in range(50)]}
    intake = intake_of(store, clock, a=50)
    claim(intake)
    store.waiting(intake, "a", 1000)
    sources: list[str] = []
    for _ in range(40):
        clock.now += 0.2
        while batch := claim(intake):
            sources.append(batch.source)

    assert sources.count("waiting") > 5
    assert sources.count("fresh") > 5


def test_keys_wait_for_the_limit_of_their_heads(clock: Clock) -> None:
    """As many heads as there are tokens; the other keys have their turn when there are more, and keys of others go at once."""
    store = FakeClaims({"ordered": [a_batch(*(a_claim(exchange=name, ordering_key=key) for key, name in going)) for going in (
        [("p", "a"), ("z", "b")], [("q", "a")],
    )]})  # fmt: skip
    store.keys = dict.fromkeys("pqz", 0)
    store.heads = {key: A_HEAD._replace(exchange=name) for key, name in zip("pqz", "aab", strict=True)}
    intake = intake_of(store, clock, a=1)

    first = claim(intake)
    assert first
    assert ["p", "z"] == [one.ordering_key for one in first.claims]
    assert (["q"], ["a"]) == ([one.key for one in intake.lanes.backlog._found["a"].values()], intake.behind)
    store.heads |= {key: A_HEAD._replace(kind="blocked") for key in "pz"}
    intake.settled(a_portion(first.claims), [SUCCESS, SUCCESS])
    assert claim(intake) is None
    clock.now += 1
    second = claim(intake)
    assert second
    assert ["q"] == [one.ordering_key for one in second.claims]


@pytest.mark.parametrize("rate", [0.1, 0.5, 3, 50])
def test_keys_that_wait_for_a_limit_go_although_nothing_new_comes(clock: Clock, rate: float) -> None:
    """The look of a relay that rests sees nothing of them: they stand below the head of the lanes."""
    store = FakeClaims({"ordered": [a_batch(a_claim(exchange="a", ordering_key=key)) for key in "pqrstu"]})
    store.full = False
    store.keys = dict.fromkeys("pqrstu", 0)
    store.heads = {key: A_HEAD._replace(exchange="a", position=Position(50, n)) for n, key in enumerate("pqrstu")}
    intake = intake_of(store, clock, a=rate)
    begun, gone = clock.now, 0
    while clock.now < begun + 6 / rate + 2:
        while batch := claim(intake):
            for one in batch.claims:
                store.heads[str(one.ordering_key)] = A_HEAD._replace(kind="blocked")
            intake.settled(a_portion(batch.claims), [SUCCESS] * len(batch.claims))
            gone += len(batch.claims)
        clock.now += max(intake.until_next_look(), 0.001)

    assert (6, []) == (gone, intake.behind)


def test_a_relay_that_rests_looks_no_more_often_for_a_limit(clock: Clock) -> None:
    """Once in a poll interval, also where the last claims had left out an exchange that has tokens again."""
    store = FakeClaims({"fresh": [of("a", 1)]})
    store.full = False
    intake = intake_of(store, clock, a=1)
    run(intake, clock, 60)

    assert store.asked.count("look") <= 60


def test_a_pause_wins(clock: Clock) -> None:
    """Nothing asks for a limited exchange that is held. When the hold ends, it continues under its limit at once."""
    store = FakeClaims({"fresh": [of("a", 50)], "branch": [of("a", 10)]})
    intake = intake_of(store, clock, a=50)
    claim(intake)
    intake.pause({"a"})
    clock.now += 10
    for _ in range(9):
        assert claim(intake) is None
        clock.now += intake.until_next_look()
    assert "branch" not in store.asked

    intake.pause(set())
    assert claim(intake)


def test_a_limit_that_is_lifted_lets_everything_go(clock: Clock) -> None:
    """At once, and its stream is merged as that of any other."""
    store = FakeClaims({"fresh": [of("a", 1)], "branch": [of("a", 400)]})
    intake = intake_of(store, clock, a=0.01)
    claim(intake)
    assert claim(intake) is None
    intake.limit({}, 1)

    assert claim(intake)
    assert ROOM == limit_of(store, "branch")
    while claim(intake):
        pass
    assert [] == [*intake.streams.heads]


def test_what_goes_again_is_debited_again(clock: Clock) -> None:
    """Whichever kind of claim it is."""
    store = FakeClaims({"fresh": [of("a", 1)], "suspect": [of("a", 1, "suspect")]})
    intake = intake_of(store, clock, a=2)
    waiting(intake, "a", 1, "suspect")
    while not (batch := claim(intake)) or batch.source != "suspect":
        clock.now += FIRST_GAP / 1000

    assert intake.limits.allowance("a") == 0


def test_what_waits_for_a_low_limit_costs_few_statements(clock: Clock) -> None:
    """However much of it there is."""
    store = FakeClaims()
    intake = intake_of(store, clock, a=0.001)
    intake.limits.took(of("a", 1))
    store.keys = dict.fromkeys((f"k{n}" for n in range(1000)), 0)
    store.heads = dict.fromkeys(store.keys, A_HEAD._replace(exchange="a"))
    waiting(intake, "a", 20_000)
    began = clock.now
    while clock.now < began + 20:
        assert claim(intake) is None
        clock.now += max(intake.until_next_look(), 0.001)

    assert 3 < len(store.asked) < 100
    assert ["a"] == intake.sought.crowded, "the scrub goes on for the others"


def test_claims_of_the_main_stream_leave_out_what_stands_apart(clock: Clock) -> None:
    """And those of a limited exchange name it."""
    store = FakeClaims({"fresh": [of("a", 50), of("b", 1)]})
    intake = intake_of(store, clock, a=50)
    claim(intake)
    clock.now += 1
    run(intake, clock, 1)

    asked = [one for one in store.wanted if isinstance(one, Fresh)]
    assert [(["a"], None), ([], ["a"])] == sorted(((one.excluded, one.only) for one in asked[1:3]), key=str)
