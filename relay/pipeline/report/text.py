"""Formats texts and numbers for the page: an application's text in a form that cannot break the page, numbers in common units."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta

from relay.pipeline.text import many

NOTHING = "\N{EN DASH}"
"""Shown where there is no value."""
_SHOWN = 120
_TAIL = 16
_MARKS = 2
"""How many combining marks a character keeps; more of them would pile up over other lines."""
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories of invisible characters: controls, direction marks, lone surrogates, private and unassigned characters, line ends."""
_JOINER = "\u200d"
_SMALL = 1e-6
"""The smallest share that is shown as a number; a smaller one is shown as below this value."""
_TIMES = 10
"""Growth by this factor or more is shown as a factor, not in percent."""
_SIZES = {unit: 1000**power for power, unit in enumerate(("B", "kB", "MB", "GB", "TB", "PB"))}
_MILLISECOND, _SECOND, _MINUTE, _HOUR, _DAY = 1.0, 1e3, 6e4, 3.6e6, 8.64e7


def shown(text: str | None, longest: int = _SHOWN) -> str:
    """Any text on one line: invisible characters are written as code points, and the middle of a long text is left out."""
    if text is None:
        return NOTHING
    if not text:
        return "(empty)"
    if len(text) > longest:
        return f"{_visible(text[: longest - _TAIL])} … {_visible(text[-_TAIL:])} ({len(text):,} characters)"
    return _visible(text)


def label(text: str, longest: int = 18) -> str:
    """Any text as the label of a plot: cut at a width in columns; a wide character takes two."""
    visible, width, kept = shown(text, 200), 0, ""
    for character in visible:
        width += columns(character)
        if width > longest:
            return f"{kept.rstrip()}…"
        kept += character
    return kept


def columns(text: str) -> int:
    """Width of a text in columns; a narrow character takes one."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text if not unicodedata.combining(character))


def number(value: float) -> str:
    """A count with commas between the thousands."""
    return f"{value:,.0f}"


def rate(messages: float, seconds: float) -> str:
    """Messages per second, or per minute or hour if there are few."""
    for unit, length in (("s", 1), ("min", 60), ("h", 3600)):
        each = messages / seconds * length if seconds else 0.0
        if each >= 1 or unit == "h":
            break
    return f"{each:,.0f}/{unit}" if each >= 100 or each == 0 else f"{each:.2g}/{unit}"  # noqa: PLR2004 - three digits are enough


def milliseconds(value: float) -> str:
    """A duration in a suitable unit, with two or three digits."""
    for unit, size, next_size in (("ms", _MILLISECOND, _SECOND), ("s", _SECOND, _MINUTE), ("min", _MINUTE, _HOUR), ("h", _HOUR, 2 * _DAY)):
        if value < next_size:
            return f"{_short(value / size)} {unit}"
    return f"{_short(value / _DAY)} days"


def seconds(value: float) -> str:
    """The same as `milliseconds`, for a value in seconds."""
    return milliseconds(value * 1000)


def share(part: int, whole: int) -> str:
    """A share in percent, rounded down, so that 100 % means all."""
    return f"{part * 10_000 // whole / 100:.2f} %" if whole else NOTHING


def percent(part: int, whole: int) -> str:
    """A small share in percent, rounded to three digits."""
    if not part or not whole:
        return "0 %" if whole else NOTHING
    return f"{100 * part / whole:.3g} %" if part / whole >= _SMALL else f"below {100 * _SMALL:g} %"


def change(now: float | None, before: float | None) -> str:
    """How a figure has changed, in words."""
    if not now or not before:
        return "as before" if now == before else "none now" if before else "none before"
    percents = abs(now / before - 1) * 100
    if now >= _TIMES * before:
        return f"{now / before:,.0f} times as much"
    return f"{_short(percents)} % {_more(now - before)}" if percents >= 0.05 else "as before"  # noqa: PLR2004 - half of what is shown


def points(now: float | None, before: float | None) -> str:
    """How a share, a number from 0 to 1, has changed, in percentage points."""
    if now is None or before is None:
        return change(now, before)
    apart = abs(now - before) * 100
    return f"{apart:.2f} points {_more(now - before)}" if apart >= 0.005 else "as before"  # noqa: PLR2004 - half of what is shown


def size(value: float | None) -> str:
    """A number of bytes in a suitable decimal unit."""
    if value is None:
        return NOTHING
    unit = next((unit for unit in _SIZES if value < 1000 * _SIZES[unit]), "PB")
    return f"{_short(value / _SIZES[unit])} {unit}" if unit != "B" else f"{value:.0f} B"


def when(moment: datetime | None) -> str:
    """A time in UTC, to the second; the page says once that all times are in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if moment else NOTHING


def length(step: timedelta) -> str:
    """The length of a step in words: 5 minutes, hour, day."""
    names = {timedelta(hours=1): "hour", timedelta(days=1): "day"}
    return names.get(step, f"{int(step.total_seconds() // 60)} minutes")


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return many(count, noun)


def _more(difference: float) -> str:
    return "more" if difference > 0 else "less"


def _short(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"  # noqa: PLR2004 - one digit gets a decimal


def _visible(text: str) -> str:
    """Write invisible characters as code points, and drop marks that would pile up; joiners within a text stay, as emoji need them."""
    out, marks = [], 0
    for place, character in enumerate(text):
        marks = marks + 1 if unicodedata.category(character) in {"Mn", "Me"} else 0
        if character == _JOINER and 0 < place < len(text) - 1:
            out.append(character)
        elif unicodedata.category(character) in _UNSEEN:
            out.append(f"⟨U+{ord(character):04X}⟩")
        elif marks <= _MARKS:
            out.append(character)
    return "".join(out)
