"""Which source is asked when: in turn, at once after a find, seldom after none."""

from __future__ import annotations

import pytest

from relay.claims.cursor import Cursor
from relay.claims.intake import Intake
from relay.claims.poll_backoff import FIRST_GAP
from relay.errors import StoreError
from relay.message import SUCCESS, Archive, GiveBack, Result
from relay.ports import At, Fresh
from tests.support.fakes.adapters import A_HEAD, Clock, FakeClaims, a_batch, a_claim, a_finding, a_portion
from tests.support.fakes.intakes import claim, intake_of, waiting

MANY = 20


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


def sources(intake: Intake, claims: int) -> list[str]:
    """Where the next batches come from."""
    return [batch.source for _ in range(claims) if (batch := claim(intake))]


def test_a_full_source_does_not_starve_another(clock: Clock) -> None:
    """Streams that never run dry leave every second claim to waiting messages that never run dry either."""
    store = FakeClaims({name: [a_batch(source=name) for _ in range(MANY)] for name in ("fresh", "waiting")})
    intake = intake_of(store, clock)
    waiting(intake, 1000)

    found = sources(intake, 10)

    assert [5, 5] == [found.count("fresh"), found.count("waiting")]


def test_four_full_sources_get_a_fourth_each(clock: Clock) -> None:
    """Streams, lanes, waiting messages and suspects take turns."""
    kinds = ("fresh", "ordered", "waiting", "suspect")
    store = FakeClaims({name: [a_batch(source=name) for _ in range(MANY)] for name in kinds})
    intake = intake_of(store, clock)
    waiting(intake, 5000)
    found = []
    for _ in range(20):
        store.keys = {"k": 0}
        intake.found([a_finding("suspect")])
        batch = claim(intake)
        assert batch is not None
        found.append(batch.source)
        intake.settled(a_portion(batch.claims), [SUCCESS])

    assert [5, 5, 5, 5] == [found.count(name) for name in kinds]


def test_a_source_that_came_up_empty_is_asked_later_and_later(clock: Clock) -> None:
    """The gap doubles up to the poll interval."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    gaps = []
    for _ in range(8):
        assert claim(intake) is None
        gaps.append(intake.until_next_look())
        clock.now += gaps[-1]

    assert pytest.approx([min(FIRST_GAP * 2**n, 1.0) for n in range(8)]) == gaps
    assert (7, 1) == (store.asked.count("fresh"), store.asked.count("look"))


def idle(intake: Intake, clock: Clock, looks: int = 8) -> None:
    """Let every source come up empty until it rests."""
    for _ in range(looks):
        assert claim(intake) is None
        clock.now += intake.until_next_look()


def test_a_relay_that_rests_looks_with_one_statement(clock: Clock) -> None:
    """Once in the poll interval; no source is asked while the look sees nothing."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    idle(intake, clock)
    store.asked.clear()

    for _ in range(3):
        assert claim(intake) is None
        assert claim(intake) is None
        assert pytest.approx(1.0) == intake.until_next_look()
        clock.now += 1.0

    assert ["look"] * 3 == store.asked


@pytest.mark.parametrize(("seen", "asked"), [("fresh", "fresh"), ("ordered", "list_keys"), ("waiting", "scan_due")])
def test_what_a_look_saw_is_asked_for_at_once_and_alone(clock: Clock, seen: str, asked: str) -> None:
    """A source that has nothing after all continues to rest."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    idle(intake, clock)
    store.asked.clear()
    store.seen = store.seen._replace(**{seen: True})

    for _ in range(2):
        assert claim(intake) is None
        clock.now += 1.0

    assert ["look", asked] * 2 == store.asked


def test_an_exchange_that_floods_is_asked_for_although_the_relay_rests(clock: Clock) -> None:
    """The look sees the main stream alone."""
    store = FakeClaims({"branch": [None] * 8 + [a_batch()]})
    intake = intake_of(store, clock)
    intake.pause({"audit"})
    idle(intake, clock)
    store.asked.clear()

    claim(intake)
    assert ["look", "fresh"] == store.asked


def test_a_resumed_exchange_is_asked_for_at_once(clock: Clock) -> None:
    """From where it was held, and merged when it has caught up."""
    store = FakeClaims({"branch": [a_batch()]})
    intake = intake_of(store, clock)
    intake.pause({"audit"})
    idle(intake, clock)
    store.asked.clear()

    intake.pause(set())

    assert claim(intake)
    assert {"branch"} <= {*store.asked}
    assert ["audit"] == [*intake.streams.heads]
    assert claim(intake) is None
    assert {} == intake.streams.heads


def test_nothing_is_asked_before_its_time(clock: Clock) -> None:
    """A second look in the same moment costs no statement."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    assert claim(intake) is None
    asked = len(store.asked)

    assert claim(intake) is None

    assert asked == len(store.asked)


def test_a_hint_is_followed_at_once_and_asks_for_fresh_messages_alone(clock: Clock) -> None:
    """An INSERT says nothing about messages that wait."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    assert claim(intake) is None
    store.asked.clear()

    intake.hint()

    assert 0.0 == intake.until_next_look()
    assert claim(intake) is None
    assert {"fresh", "list_keys"} == {*store.asked}


def test_what_came_back_is_looked_for_at_once(clock: Clock) -> None:
    """Freed locks, and messages that were released without their payload, hint at the scan of waits."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    assert claim(intake) is None
    store.asked.clear()

    intake.hint_waiting()

    assert claim(intake) is None
    assert ["scan_due"] == store.asked


def test_a_suspect_blocks_the_next_suspect_and_nothing_else(clock: Clock) -> None:
    """Suspects go one at a time, each until it is settled, while everything else continues."""
    first, second = a_batch(source="s"), a_batch(source="s")
    store = FakeClaims({"suspect": [first, second], "fresh": [a_batch() for _ in range(MANY)]})
    intake = intake_of(store, clock)
    intake.found(a_finding("suspect", trusted=False) for _ in range(2))
    found = [claim(intake) for _ in range(6)]
    assert first in found
    assert second not in found

    intake.settled(a_portion(first.claims), [SUCCESS])

    assert second in [claim(intake) for _ in range(2)]


def test_a_suspect_that_was_given_back_frees_the_place_too(clock: Clock) -> None:
    """Whatever became of it, the next one may go."""
    first, second = a_batch(), a_batch()
    store = FakeClaims({"suspect": [first, second]})
    intake = intake_of(store, clock)
    intake.found(a_finding("suspect", trusted=False) for _ in range(2))
    assert first is claim(intake)

    intake.settled(a_portion(first.claims), [GiveBack("gone", "It went.")])

    assert second is claim(intake)


def test_a_suspect_head_is_claimed_under_the_fence_of_its_lane(clock: Clock) -> None:
    """One message of its key is in flight then."""
    store = FakeClaims({"suspect": [a_batch(a_claim(ordering_key="k"))]})
    store.heads = {"k": A_HEAD._replace(kind="suspect", lane=3)}
    intake = intake_of(store, clock)
    store.keys = {"k": 3}

    for _ in range(3):
        claim(intake)
    assert At([A_HEAD.position], "suspect", {3: 1}) in store.wanted
    intake.found([a_finding("key", key="k", lane=3)])
    claim(intake)

    assert [["k"]] == store.found


def test_after_a_new_connection_everything_is_asked_from_the_left(clock: Clock) -> None:
    """Cursors, lanes, the backlog and the suspects are forgotten."""
    store = FakeClaims({"suspect": [a_batch(), a_batch()], "fresh": [a_batch()]})
    intake = intake_of(store, clock)
    intake.found([a_finding("suspect"), a_finding("waiting")])
    while claim(intake):
        pass
    intake.found([a_finding("waiting")])
    store.asked.clear()
    store.wanted.clear()

    intake.reset()

    assert ([], 0.0) == (intake.lanes.owned, intake.until_next_look())
    assert claim(intake) is None
    assert [Cursor().ranges()] == [one.ranges for one in store.wanted if isinstance(one, Fresh)]
    assert {"fresh", "scan_due"} == {*store.asked}


def test_a_failing_database_is_told_and_the_source_asked_again(clock: Clock) -> None:
    """A claim that did not get through is no empty claim."""
    batch = a_batch()
    store = FakeClaims({"fresh": [StoreError("Gone."), batch]})
    intake = intake_of(store, clock)

    with pytest.raises(StoreError):
        claim(intake)

    assert batch is claim(intake)


def test_held_exchanges_are_left_out_by_every_source(clock: Clock) -> None:
    """Fresh, waiting, suspect and ordered messages alike, and looks too."""
    store = FakeClaims()
    store.keys = {"k": 3}
    intake = intake_of(store, clock)

    intake.pause({"audit"})
    intake.found(a_finding(kind, exchange="audit") for kind in ("waiting", "suspect"))
    idle(intake, clock)

    assert [["audit"]] == [one.excluded for one in store.wanted if isinstance(one, Fresh)][:1]
    assert {("audit",)} == {tuple(held) for held in store.held}
    assert [] == [one for one in store.wanted if isinstance(one, At) and one.source != "ordered"]


def test_what_was_let_go_is_looked_for_at_once(clock: Clock) -> None:
    """Resuming hints at every source; holding hints at none."""
    intake = intake_of(FakeClaims(), clock)
    assert not intake.pause({"audit"})
    claim(intake)
    assert intake.until_next_look() > 0

    assert intake.pause(set())

    assert 0.0 == intake.until_next_look()


def test_a_freed_key_is_asked_for_at_once(clock: Clock) -> None:
    """Settling the head of a key makes the lanes due."""
    head, successor = a_batch(a_claim(ordering_key="k", lane=3)), a_batch(a_claim(ordering_key="k", lane=3))
    store = FakeClaims({"ordered": [head, successor]})
    store.keys = {"k": 3}
    intake = intake_of(store, clock)
    assert head is claim(intake)
    assert claim(intake) is None

    intake.settled(a_portion(head.claims), [Archive(Result.FAILED, "x")])

    assert successor is claim(intake)
    assert [["k"], ["k"]] == store.found


def test_a_look_at_many_keys_comes_to_its_end_although_the_relay_rested_before(clock: Clock) -> None:
    """They stand below the lanes' head meanwhile, where no other look sees them; there was no hint of any."""
    found = a_batch(a_claim(ordering_key="last"))
    store = FakeClaims({"ordered": [found]})
    intake = intake_of(store, clock)
    idle(intake, clock)
    blocked = [f"k{n}" for n in range(1500)]
    store.keys, store.heads = dict.fromkeys([*blocked, "last"], 0), dict.fromkeys(blocked, A_HEAD._replace(kind="blocked"))
    store.seen = store.seen._replace(ordered=True)
    began, batches = clock.now, [claim(intake)]
    store.seen = store.seen._replace(ordered=False)

    while clock.now < began + 3.0:
        batches.append(claim(intake))
        clock.now += max(0.001, intake.until_next_look())

    assert found in batches
