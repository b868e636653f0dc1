"""When a cron schedule is due, found minute by minute with Python's time zones: an oracle that shares nothing with the SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MINUTE = timedelta(minutes=1)
BEFORE = timedelta(days=2)
"""How long before a time clocks are looked at, so that what they have shown already is known."""
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
NIGHTS = (
    ("Europe/Berlin", "2024-03-31T01:00Z"), ("Europe/Berlin", "2024-10-27T01:00Z"),
    ("America/New_York", "2024-03-10T07:00Z"), ("America/New_York", "2024-11-03T06:00Z"),
    ("Australia/Lord_Howe", "2024-04-06T15:00Z"), ("Australia/Lord_Howe", "2024-10-05T15:30Z"),
    ("Antarctica/Troll", "2024-03-31T01:00Z"), ("Antarctica/Troll", "2023-10-29T01:00Z"),
    ("America/Havana", "2024-03-10T05:00Z"), ("America/Havana", "2024-11-03T05:00Z"),
    ("America/Santiago", "2024-04-07T03:00Z"), ("America/Santiago", "2024-09-08T04:00Z"),
    ("America/St_Johns", "2006-04-02T03:31Z"), ("America/St_Johns", "2006-10-29T02:31Z"),
    ("Asia/Pyongyang", "2015-08-14T15:00Z"), ("Asia/Pyongyang", "2018-05-04T15:00Z"),
    ("Africa/Cairo", "2023-04-27T22:00Z"), ("Africa/Cairo", "2023-10-26T21:00Z"),
    ("Africa/Casablanca", "2023-03-19T02:00Z"), ("Africa/Casablanca", "2023-04-23T02:00Z"),
    ("America/Caracas", "2007-12-09T07:00Z"), ("America/Caracas", "2016-05-01T07:00Z"),
    ("Asia/Tehran", "2022-03-21T20:30Z"), ("Pacific/Chatham", "2024-04-06T14:00Z"), ("Pacific/Kwajalein", "1993-08-21T12:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"), ("Asia/Kathmandu", "2024-03-31T00:00Z"), ("UTC", "2024-02-28T23:00Z"),
)  # fmt: skip
"""Zones, and moments at which their clocks are set: by an hour, half an hour, two hours, at midnight, past it, by a day; or are not."""


@dataclass(frozen=True)
class Field:
    """One field of a cron line: how it is written, and what it names."""

    text: str
    named: frozenset[int]

    @property
    def free(self) -> bool:
        """It restricts nothing, as cron has it."""
        return self.text.startswith("*")


@dataclass(frozen=True)
class Rule:
    """A cron line."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def spec(self) -> str:
        """The line."""
        return " ".join(field.text for field in (self.minute, self.hour, self.day, self.month, self.weekday))

    @property
    def elapsed(self) -> bool:
        """It goes by elapsed time."""
        return self.minute.free or self.hour.free

    def names(self, shown: datetime) -> bool:
        """Whether a clock that shows this time is one of its times."""
        date, weekday = shown.day in self.day.named, shown.isoweekday() % 7 in self.weekday.named
        both_given = not (self.day.free or self.weekday.free)
        of_day = (date or weekday) if both_given else (date and weekday)
        return of_day and shown.minute in self.minute.named and shown.hour in self.hour.named and shown.month in self.month.named

    def ticks(self, zone: str, after: datetime, until: datetime) -> Iterator[datetime]:
        """Every tick in a time, by looking at the zone's clock once a minute; it begins with a whole one."""
        clock, at = ZoneInfo(zone), after - BEFORE
        latest = at.astimezone(clock).replace(tzinfo=None)
        while at < until:
            at += MINUTE
            shown = at.astimezone(clock).replace(tzinfo=None)
            # What it shows for the first time, and what it has left out on the way there; or whatever it shows.
            due = any(map(self.names, [shown] if self.elapsed else _up_to(latest, shown)))
            latest = max(latest, shown)
            if due and at > after:
                yield at


def _up_to(latest: datetime, shown: datetime) -> Iterator[datetime]:
    while latest < shown:
        latest += MINUTE
        yield latest


def _field(low: int, high: int, names: list[str]) -> st.SearchStrategy[Field]:
    def spelled(number: int, *, named: bool) -> str:
        return names[number - low] if named and number - low < len(names) else str(number)

    def stretch(first: int, last: int, step: int | None, *, named: bool) -> Field:
        first, last = min(first, last), max(first, last)
        if last - low >= len(names):
            named = False
        text = f"{spelled(first, named=named)}-{spelled(last, named=named)}" + (f"/{step}" if step else "")
        return Field(text, frozenset(range(first, last + 1, step or 1)))

    numbers, steps = st.integers(low, high), st.integers(1, high)
    single = st.builds(lambda number, named: Field(spelled(number, named=named), frozenset({number})), numbers, st.booleans())
    some = st.builds(stretch, numbers, numbers, st.none() | steps, named=st.booleans())
    joined = st.lists(single | some, min_size=1, max_size=3).map(_joined)
    stepped = steps.map(lambda step: Field(f"*/{step}", frozenset(range(low, high + 1, step))))
    return st.one_of(st.just(Field("*", frozenset(range(low, high + 1)))), joined, single, stepped)


def _joined(parts: list[Field]) -> Field:
    return Field(",".join(part.text for part in parts), frozenset().union(*(part.named for part in parts)))


def _weekday(field: Field) -> Field:
    """Sunday is 0 and 7."""
    return Field(field.text, frozenset(number % 7 for number in field.named))


def rules() -> st.SearchStrategy[Rule]:
    """Cron lines of every kind, half of which are due on any day."""
    anywhen = st.just(Field("*", frozenset(range(32))))
    build: Callable[..., Rule] = Rule
    return st.builds(
        build, _field(0, 59, []), _field(0, 23, []), anywhen | _field(1, 31, []), anywhen | _field(1, 12, MONTHS),
        anywhen | _field(0, 7, WEEKDAYS).map(_weekday),
    )  # fmt: skip
