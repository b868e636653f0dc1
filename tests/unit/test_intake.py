"""Which source is asked when: in turn, at once after a find, seldom after none."""

from __future__ import annotations

from typing import Any

import pytest

from relay.claims.intake import Intake
from relay.claims.source import FIRST_GAP
from relay.claims.streams import WALK
from relay.errors import StoreError
from relay.message import START, SUCCESS, Archive, Batch, GiveBack, Result
from relay.ports import Due, Seen
from tests.support.fakes import A_HEAD, Clock, FakeClaims, a_batch, a_claim, a_portion, at_once

MANY = 20


@pytest.fixture
def clock() -> Clock:
    """A clock that stands."""
    return Clock()


def intake_of(store: FakeClaims, clock: Clock) -> Intake:
    """An intake that owns lane 0 to 63, with a poll interval of a second."""
    store.lanes = dict.fromkeys(range(64), 1)
    intake = Intake(store=store, poll_interval=1.0, clock=clock)
    at_once(intake.lanes.keep())
    return intake


def claim(intake: Intake) -> Batch | None:
    """The next batch, with room for a hundred messages and a thousand bytes."""
    return at_once(intake.claim(100, 1000))


def test_a_full_source_does_not_starve_another(clock: Clock) -> None:
    """Streams that never run dry leave every second claim to waiting messages that never run dry either."""
    store = FakeClaims(
        {Due.ABOVE_HEAD: [a_batch(source="f") for _ in range(MANY)], Due.WAITING: [a_batch(source="w") for _ in range(MANY)]}
    )
    intake = intake_of(store, clock)

    sources = [batch.source for _ in range(10) if (batch := claim(intake))]

    assert [5, 5] == [sources.count("f"), sources.count("w")]


def test_five_full_sources_get_a_fifth_each(clock: Clock) -> None:
    """Streams, lanes, waiting messages, waiting heads of keys and suspects take turns."""
    kinds = (Due.ABOVE_HEAD, Due.ORDERED, Due.WAITING, Due.SUSPECT)
    store = FakeClaims({due: [a_batch(source=due.value) for _ in range(MANY)] for due in kinds})
    intake = intake_of(store, clock)
    sources = []
    for _ in range(25):
        store.keys = store.waiting_keys = ["k"]
        batch = claim(intake)
        assert batch is not None
        sources.append(batch.source)
        intake.settled(a_portion(batch.claims), [SUCCESS])

    assert [5, 10, 5, 5] == [sources.count(due.value) for due in kinds]


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
    assert (7, 1) == (store.asked.count(Due.ABOVE_HEAD), store.asked.count("look"))


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


@pytest.mark.parametrize(
    ("seen", "asked"),
    [
        ("fresh", {Due.ABOVE_HEAD}),
        ("ordered", {"list_keys"}),
        ("waiting", {Due.WAITING, Due.SUSPECT, "list_waiting_keys"}),
    ],
)
def test_what_a_look_saw_is_asked_for_at_once_and_alone(clock: Clock, seen: str, asked: set[Due | str]) -> None:
    """A source that comes up empty all the same goes on resting."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    idle(intake, clock)
    store.asked.clear()
    store.seen = store.seen._replace(**{seen: True})

    for _ in range(2):
        assert claim(intake) is None
        clock.now += 1.0

    assert {*asked, "look"} == {*store.asked}
    assert 2 * (len(asked) + 1) == len(store.asked)


def test_a_resumed_exchange_is_asked_for_until_it_has_caught_up(clock: Clock) -> None:
    """The look sees the main stream alone."""
    store = FakeClaims({Due.EXCHANGE_ABOVE_HEAD: [None] * 8 + [a_batch()]})
    intake = intake_of(store, clock)
    intake.hold({"audit"})
    idle(intake, clock)
    intake.hold(set())
    intake.streams._branches["audit"].caught_up = None
    store.asked.clear()

    claim(intake)

    assert Due.EXCHANGE_ABOVE_HEAD in store.asked


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
    assert {Due.ABOVE_HEAD, "list_keys"} == {*store.asked}


def test_what_came_back_is_looked_for_at_once(clock: Clock) -> None:
    """A sweep that freed something hints at the sources of waiting messages."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    assert claim(intake) is None
    store.asked.clear()

    intake.hint_waiting()

    assert claim(intake) is None
    assert {Due.WAITING, Due.SUSPECT, "list_waiting_keys"} == {*store.asked}


def test_a_suspect_blocks_the_next_suspect_and_nothing_else(clock: Clock) -> None:
    """One at a time until it is settled, while everything else goes on."""
    first, second = a_batch(source="s"), a_batch(source="s")
    store = FakeClaims({Due.SUSPECT: [first, second], Due.ABOVE_HEAD: [a_batch() for _ in range(MANY)]})
    intake = intake_of(store, clock)
    found = [claim(intake) for _ in range(6)]
    assert first in found
    assert second not in found

    intake.settled(a_portion(first.claims), [SUCCESS])

    assert second in [claim(intake) for _ in range(2)]


def test_a_suspect_that_was_given_back_frees_the_place_too(clock: Clock) -> None:
    """Whatever became of it, the next one may go."""
    first, second = a_batch(), a_batch()
    store = FakeClaims({Due.SUSPECT: [first, second]})
    intake = intake_of(store, clock)
    assert first is claim(intake)

    intake.settled(a_portion(first.claims), [GiveBack("gone", "It went.")])

    assert second is claim(intake)


def test_after_a_new_connection_everything_is_asked_from_the_left(clock: Clock) -> None:
    """Frontiers, lanes and the suspect are forgotten."""
    store = FakeClaims({Due.SUSPECT: [a_batch(), a_batch()]})
    intake = intake_of(store, clock)
    claim(intake)
    assert claim(intake) is None
    store.asked.clear()
    store.wheres.clear()

    intake.reset()

    assert ([], 0.0) == (intake.lanes.owned, intake.until_next_look())
    assert claim(intake) is not None
    assert {"head_xid": "0", "head_seq": 0, "except": [], "walk": WALK} in store.wheres
    assert not {"list_keys", "list_waiting_keys"} & {*store.asked}


def test_what_may_be_locked_is_swept_after_a_new_connection_too(clock: Clock) -> None:
    """A claim whose answer was lost stands below the highest head of before, although all streams begin again."""
    batch = a_batch()
    intake = intake_of(FakeClaims({Due.ABOVE_HEAD: [batch]}), clock)
    assert batch is claim(intake)
    top = intake.streams.top

    intake.reset()

    assert START == intake.streams.head < top == intake.streams.top


def test_a_failing_database_is_told_and_the_source_asked_again(clock: Clock) -> None:
    """A claim that did not get through is no empty claim."""
    batch = a_batch()
    store = FakeClaims({Due.ABOVE_HEAD: [StoreError("Gone."), batch]})
    intake = intake_of(store, clock)

    with pytest.raises(StoreError):
        claim(intake)

    assert batch is claim(intake)


def test_held_exchanges_are_left_out_by_every_source(clock: Clock) -> None:
    """Holding reaches the claims of fresh, waiting, suspect and ordered messages alike."""
    store = FakeClaims()
    intake = intake_of(store, clock)

    intake.hold({"audit"})
    claim(intake)

    assert {("audit",)} == {tuple(where["except"]) for where in store.wheres}  # type: ignore[arg-type]


def test_what_was_let_go_is_looked_for_at_once(clock: Clock) -> None:
    """Resuming hints at every source and at the lanes from the left; holding hints at none."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    intake.hold({"audit"})
    claim(intake)
    assert intake.until_next_look() > 0

    intake.hold(set())

    assert 0.0 == intake.until_next_look()


def test_a_freed_key_is_asked_for_at_once(clock: Clock) -> None:
    """Settling the head of a key makes the lanes due."""
    head, successor = a_batch(a_claim(ordering_key="k")), a_batch(a_claim(ordering_key="k"))
    store = FakeClaims({Due.ORDERED: [head, successor]})
    store.keys = ["k"]
    intake = intake_of(store, clock)
    assert head is claim(intake)
    assert claim(intake) is None

    intake.settled(a_portion(head.claims), [Archive(Result.FAILED, "x")])

    assert successor is claim(intake)
    assert [["k"], ["k"]] == store.found


class ListedOnce(FakeClaims):
    """What is listed is above the lanes' head, where a look sees it, until then."""

    async def look(self, **asked: Any) -> Seen:
        """See it as long as it is not listed."""
        self.seen = self.seen._replace(ordered=bool(self.keys))
        return await super().look(**asked)


def test_a_look_at_many_keys_comes_to_its_end_although_the_relay_rested_before(clock: Clock) -> None:
    """They stand below the lanes' head meanwhile, where no other look sees them; there was no hint of any."""
    found = a_batch(a_claim(ordering_key="last"))
    store = ListedOnce({Due.ORDERED: [found]})
    intake = intake_of(store, clock)
    idle(intake, clock)
    blocked = [f"k{n}" for n in range(1500)]
    store.keys, store.heads = [*blocked, "last"], dict.fromkeys(blocked, A_HEAD._replace(ready=False))

    began, batches = clock.now, []
    while clock.now < began + 3.0:
        batches.append(claim(intake))
        clock.now += max(0.001, intake.until_next_look())

    assert found in batches
