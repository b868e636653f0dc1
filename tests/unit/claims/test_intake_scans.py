"""What scans have found, and where the intake claims it."""

from __future__ import annotations

import pytest

from relay.message import Position
from relay.ports import At, Claimed, DuePlace, Page, Wanted
from tests.support.fakes.adapters import Clock, FakeClaims, a_batch, a_claim, a_finding
from tests.support.fakes.intakes import claim, intake_of, waiting


@pytest.fixture
def clock() -> Clock:
    """A clock that moves only when a test moves it."""
    return Clock()


def test_what_a_scan_of_waits_finds_is_claimed_by_its_position(clock: Clock) -> None:
    """In the same turn, without another look."""
    batch = a_batch(source="waiting")
    store = FakeClaims({"waiting": [batch]})
    store.due = [a_finding(position=Position(7, 1)), a_finding(position=Position(5, 2))]
    intake = intake_of(store, clock)

    assert batch is claim(intake)
    assert At([Position(7, 1), Position(5, 2)], "waiting") == store.wanted[-1]


class Pages(FakeClaims):
    """Waits in pages of which nothing can be claimed, or one finding each."""

    def __init__(self, *kinds: str | None) -> None:
        super().__init__()
        self.pages = list(kinds)
        self.afters: list[str] = []

    async def scan_due(self, *, after: DuePlace, **asked: object) -> Page:
        """The next page."""
        del asked
        self.afters.append(after.time)
        kind = self.pages.pop(0) if self.pages else None
        return Page([a_finding(kind)] if kind else [], Position(7, 1) if self.pages else None, None, DuePlace(str(len(self.afters))))


def test_a_scan_of_waits_goes_on_where_its_page_ended(clock: Clock) -> None:
    """At once, as long as there is more, whether or not something was found."""
    store = Pages(None, None, "waiting", None)
    intake = intake_of(store, clock)

    for _ in range(5):
        assert claim(intake) is None

    assert ["-infinity", "1", "2", "3"] == store.afters


def test_what_waits_for_a_limit_is_not_looked_for_all_the_time(clock: Clock) -> None:
    """Each scan sees it again, as it goes over the last seconds once more."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    intake.limit({"orders": 0.001}, 1)
    began, due = clock.now, [a_finding() for _ in range(10)]
    while clock.now < began + 2.0:
        store.due = list(due)
        claim(intake)
        clock.now += max(0.001, intake.until_next_look())

    assert store.asked.count("scan_due") < 12


def test_waits_are_scanned_from_the_left_after_a_new_connection(clock: Clock) -> None:
    """Another server may have another clock."""
    store = Pages()
    intake = intake_of(store, clock)
    claim(intake)

    intake.reset()
    claim(intake)

    assert ["-infinity", "-infinity"] == store.afters


def test_what_a_scan_finds_goes_where_it_is_claimed(clock: Clock) -> None:
    """Keys to the lanes, suspects apart, all else by its position."""
    store = FakeClaims()
    intake = intake_of(store, clock)
    kinds = {kind: a_finding(kind) for kind in ("waiting", "stranded", "suspect")}

    intake.found([*kinds.values(), a_finding("key", key="k", lane=3)])
    for _ in range(5):
        claim(intake)

    asked = {one.source: one.positions for one in store.wanted if isinstance(one, At)}
    assert [kinds["waiting"].position, kinds["stranded"].position] == asked["waiting"]
    assert [kinds["suspect"].position] == asked["suspect"]
    assert [["k"]] == store.found


class Cut(FakeClaims):
    """Claims by position take the first message, and have room for no more where `cut` says so."""

    cut = True

    async def claim(self, wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        """Take one; of a claim of fresh messages nothing."""
        nothing = await super().claim(wanted, limit=limit, limit_bytes=limit_bytes)
        if not isinstance(wanted, At):
            return nothing
        first, *others = wanted.positions
        batch = a_batch(a_claim(xid=first.xid, seq=first.seq), source=wanted.source)
        return Claimed(batch, nothing.snapshot, self.cut and bool(others), first, refused=[])


@pytest.mark.parametrize("kind", ["waiting", "stranded", "suspect"])
def test_what_a_claim_left_out_for_want_of_room_is_tried_again(clock: Clock, kind: str) -> None:
    """What another one did not find is left to the next scan: somebody else may have it."""
    store = Cut()
    intake = intake_of(store, clock)
    intake.found(a_finding(kind, position=Position(1, seq)) for seq in (1, 2, 3, 4))

    for _ in range(2):
        assert claim(intake)
        clock.now += 10.0
    store.cut = False
    while claim(intake):
        clock.now += 10.0

    seqs = [[one.seq for one in wanted.positions] for wanted in store.wanted if isinstance(wanted, At)]
    assert ([[1, 2, 3, 4], [2, 3, 4], [3, 4]], 3 * (kind == "stranded")) == (seqs, intake.stranded)


def test_what_stands_in_a_late_transaction_is_not_stranded(clock: Clock) -> None:
    """Its stream asks for it; what has waited is claimed all the same."""
    intake = intake_of(FakeClaims(), clock)
    intake.streams.main.late[7] = 0

    intake.found([a_finding("stranded", position=Position(7, 1)), a_finding("waiting", position=Position(7, 2))])

    assert [Position(7, 2)] == [one.position for one in intake.backlog.next(10, ())]


def test_scans_are_asked_for_nothing_that_has_no_room(clock: Clock) -> None:
    """Messages of an exchange of which many are known already, and keys where many are asked for; all others are looked for as ever."""
    intake = intake_of(FakeClaims(), clock)
    crowded = []
    for messages in (5000, 1):
        waiting(intake, messages)
        crowded.append(intake.sought.crowded)
    assert [[], ["orders"]] == crowded

    lanes = intake.sought.lanes
    intake.found(a_finding("key", key=f"k{n}", lane=3) for n in range(15_000))
    assert ([], [*lanes]) == (intake.sought.lanes, intake.lanes.owned)
    assert 3 in lanes
