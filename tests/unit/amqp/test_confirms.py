"""The confirm book of a channel, alone and against a naive model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.amqp.confirms import COMPACT_ABOVE, Acked, ConfirmTracker
from relay.amqp.frames import ReplyReason
from relay.errors import BrokerError

NO_ROUTE = ReplyReason(312, "NO_ROUTE")


def book_of(*slots: str) -> ConfirmTracker[str]:
    """Open a book with these slots; a slot is its own relay id."""
    book: ConfirmTracker[str] = ConfirmTracker(str)
    book.open(slots)
    return book


def test_tags_count_from_one_and_go_on() -> None:
    """The first tag of a channel is 1, and the next batch continues where the last one ended."""
    book: ConfirmTracker[str] = ConfirmTracker(str)
    assert book.open(["a", "b"]) == 1
    assert book.open(["c"]) == 3


def test_a_single_ack_resolves_its_own_tag_only() -> None:
    """An ack for tag 2 says nothing of tag 1."""
    book = book_of("a", "b", "c")
    assert book.ack(2, multiple=False) == Acked(["b"], [])
    assert len(book) == 2
    assert book.oldest == "a"


def test_a_multiple_ack_resolves_what_is_still_open_up_to_its_tag() -> None:
    """Tags that were resolved one by one are not given out a second time."""
    book = book_of("a", "b", "c", "d")
    book.ack(2, multiple=False)
    assert book.ack(3, multiple=True) == Acked(["a", "c"], [])
    assert book.oldest == "d"


def test_tag_zero_with_multiple_means_all() -> None:
    """AMQP 0-9-1: delivery tag 0 with `multiple` means everything that is outstanding."""
    assert book_of("a", "b").ack(0, multiple=True) == Acked(["a", "b"], [])


def test_the_same_tag_twice_gives_nothing() -> None:
    """A tag is resolved once, whatever comes after."""
    book = book_of("a", "b")
    book.ack(1, multiple=False)
    assert book.ack(1, multiple=False) == Acked([], [])
    assert book.nack(1, multiple=True) == []
    assert len(book) == 1


@pytest.mark.parametrize("multiple", [False, True])
def test_a_tag_that_was_never_sent_is_an_error(multiple: bool) -> None:
    """A broker that confirms what was not sent cannot be trusted with the rest."""
    with pytest.raises(BrokerError, match="delivery tag 3, which was never sent"):
        book_of("a", "b").ack(3, multiple=multiple)


def test_a_nack_resolves_like_an_ack() -> None:
    """RabbitMQ nacks with `multiple` too."""
    assert book_of("a", "b", "c").nack(2, multiple=True) == ["a", "b"]


def test_a_returned_message_is_told_from_its_neighbours_in_one_ack() -> None:
    """The return names the relay's id; the ack that follows may cover many messages."""
    book = book_of("a", "b", "c")
    book.returned("b", NO_ROUTE)
    assert book.ack(3, multiple=True) == Acked(["a", "c"], [("b", NO_ROUTE)])


def test_two_copies_of_one_message_take_one_return_each() -> None:
    """A message whose lock was lost may be in flight twice; no return is used for both or lost."""
    book = book_of("a", "a", "a")
    book.returned("a", NO_ROUTE)
    book.returned("a", NO_ROUTE)
    assert book.ack(3, multiple=True) == Acked(["a"], [("a", NO_ROUTE), ("a", NO_ROUTE)])


def test_a_nacked_message_leaves_no_return_behind() -> None:
    """The return of a message that was then refused must not fall on its next copy."""
    book = book_of("a")
    book.returned("a", NO_ROUTE)
    book.nack(1, multiple=False)
    book.open(["a"])
    assert book.ack(2, multiple=False) == Acked(["a"], [])


def test_closing_gives_back_what_is_open_and_starts_anew() -> None:
    """A new channel counts its tags from 1 and knows no returns of the old one."""
    book = book_of("a", "b", "c")
    book.ack(2, multiple=False)
    book.returned("c", NO_ROUTE)
    assert book.close() == [(1, "a"), (3, "c")]
    assert len(book) == 0
    assert book.oldest is None
    assert book.open(["c"]) == 1
    assert book.ack(1, multiple=False) == Acked(["c"], [])


def test_closing_names_the_tags_that_are_left_behind_resolved_ones() -> None:
    """Whatever was resolved before them, cut from the list or not."""
    book = book_of("a", "b", "c")
    book.ack(1, multiple=False)
    assert book.close() == [(2, "b"), (3, "c")]

    book.open(["d"])
    book.ack(1, multiple=False)
    book.open(["e", "f"])
    book.ack(2, multiple=False)
    assert book.close() == [(3, "f")]


def test_resolved_slots_are_let_go_of() -> None:
    """A long-lived channel does not hold what it once sent: when nothing is open, nothing is kept."""
    book: ConfirmTracker[str] = ConfirmTracker(str)
    for tag in range(1, 5000):
        assert book.open([str(tag)]) == tag
        book.ack(tag, multiple=False)
    assert book._slots == []


def test_a_slow_first_message_keeps_the_others_short() -> None:
    """With one tag open behind, the list grows only as far as that tag is behind; after it, it is cut."""
    book = book_of(*map(str, range(1, 4001)))
    for tag in range(2, 4000):
        book.ack(tag, multiple=False)
    book.ack(1, multiple=False)
    assert len(book._slots) == 1


@pytest.mark.parametrize(
    ("opened", "acked", "kept"),
    [
        (10, 6, 10),
        (2000, COMPACT_ABOVE, 2000),
        (4000, 1500, 4000),
        (4000, 2000, 4000),
        (4000, 2001, 1999),
    ],
)
def test_the_list_is_cut_rarely(opened: int, acked: int, kept: int) -> None:
    """Each cut moves what is left: only a long list is cut, and only when more than half of it is resolved."""
    book = book_of(*map(str, range(opened)))

    book.ack(acked, multiple=True)

    assert kept == len(book._slots)
    assert (opened - acked, str(acked)) == (len(book), book.oldest)


@dataclass
class Model:
    """What a book must do, said in the simplest way."""

    tags: dict[int, str] = field(default_factory=dict)
    returns: list[str] = field(default_factory=list)
    last: int = 0

    def open(self, slots: list[str]) -> int:
        """Number the slots."""
        first = self.last + 1
        for slot in slots:
            self.last += 1
            self.tags[self.last] = slot
        return first

    def take(self, tag: int, *, multiple: bool) -> list[str]:
        """Remove what a tag covers."""
        if tag > self.last:
            raise BrokerError
        wanted = [number for number in sorted(self.tags) if (number <= tag or tag == 0 if multiple else number == tag)]
        return [self.tags.pop(number) for number in wanted]

    def ack(self, tag: int, *, multiple: bool) -> tuple[list[str], list[str]]:
        """Part what is taken by the returns."""
        confirmed, returned = [], []
        for slot in self.take(tag, multiple=multiple):
            if slot in self.returns:
                self.returns.remove(slot)
                returned.append(slot)
            else:
                confirmed.append(slot)
        return confirmed, returned

    def nack(self, tag: int, *, multiple: bool) -> list[str]:
        """Take, and forget the returns of what is taken."""
        taken = self.take(tag, multiple=multiple)
        for slot in taken:
            if slot in self.returns:
                self.returns.remove(slot)
        return taken


SLOTS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8)
TAGS = st.integers(0, 40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), SLOTS),
        st.tuples(st.just("ack"), TAGS, st.booleans()),
        st.tuples(st.just("nack"), TAGS, st.booleans()),
        st.tuples(st.just("return"), st.sampled_from("abcdefgh")),
        st.tuples(st.just("close")),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_book_does_what_the_naive_model_does(steps: list[tuple[object, ...]]) -> None:
    """Any run of opens, acks, nacks, returns and closes resolves the same slots, in the same order."""
    book: ConfirmTracker[str] = ConfirmTracker(str)
    model = Model()
    for step in steps:
        match step:
            case ("open", list(slots)):
                assert book.open(slots) == model.open(slots)
            case ("ack", int(tag), bool(multiple)):
                assert acked(book, tag, multiple) == resolved(model.ack, tag, multiple)
            case ("nack", int(tag), bool(multiple)):
                assert resolved(book.nack, tag, multiple) == resolved(model.nack, tag, multiple)
            case ("return", str(slot)):
                book.returned(slot, NO_ROUTE)
                model.returns.append(slot)
            case _:
                assert book.close() == list(model.tags.items())
                model = Model()
        assert len(book) == len(model.tags)
        assert book.oldest == next(iter(model.tags.values()), None)


def acked(book: ConfirmTracker[str], tag: int, multiple: bool) -> tuple[list[str], list[str]] | None:
    """Ack in the book; None for an error."""
    try:
        confirmed, returned = book.ack(tag, multiple=multiple)
    except BrokerError:
        return None
    return confirmed, [slot for slot, _ in returned]


def resolved(take: Callable[..., object], tag: int, multiple: bool) -> object:
    """Ack or nack; None for an error."""
    try:
        return take(tag, multiple=multiple)
    except BrokerError:
        return None
