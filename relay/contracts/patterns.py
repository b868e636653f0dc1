"""Routing key patterns, as in a topic exchange of RabbitMQ. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

_WILDCARDS = frozenset({"*", "#"})


class Patterns:
    """Matches several patterns at once: `*` matches one word, `#` any number of words; words are separated by dots.

    Matching a key takes a few operations for each word while any pattern can still match, and one for each pattern that matches.

    Args:
        patterns: the patterns; `matching` returns places in this sequence.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._exact: dict[str, list[int]] = defaultdict(list)
        # All other patterns share one row of bits: a bit for each place between their words, the lowest bit first. A bit is set if the
        # words read so far lead to that place. Reading a word moves bits on by one, so one shift serves all patterns.
        self._begin = self._stay = self._any = 0
        self._moves: dict[str, int] = defaultdict(int)
        """For each word, the places from which it leads to the next place."""
        self._ends: dict[int, int] = {}
        """The pattern that ends at a place."""
        at = 0
        for number, pattern in enumerate(patterns):
            if has_wildcards(pattern):
                at = self._add(number, pattern, at)
            else:
                self._exact[pattern].append(number)
        self._end = sum(1 << end for end in self._ends)

    def matching(self, key: str) -> list[int]:
        """Places of the patterns that a routing key matches, in order."""
        found = [*self._exact.get(key, ()), *map(self._ends.__getitem__, _set_bits(self._reached(key) & self._end))]
        found.sort()
        return found

    def _add(self, number: int, pattern: str, at: int) -> int:
        """Add a pattern from this place on; return the place after it."""
        self._begin |= 1 << at
        for word in _words(pattern):
            if word == "#":
                self._stay |= 1 << at
                continue
            if word == "*":
                self._any |= 1 << at
            else:
                self._moves[word] |= 1 << at
            at += 1
        self._ends[at] = number
        return at + 1

    def _reached(self, key: str) -> int:
        places, moves, stay, any_word = self._begin, self._moves, self._stay, self._any
        for word in _words(key):
            if not places:
                break
            places = (places & (moves.get(word, 0) | any_word)) << 1 | places & stay
        return places


def matches(pattern: str, key: str) -> bool:
    """Whether a routing key matches a pattern; use `Patterns` for several keys or patterns."""
    return bool(Patterns([pattern]).matching(key))


def has_wildcards(pattern: str) -> bool:
    """Whether the pattern may match more than one key."""
    return not _WILDCARDS.isdisjoint(_words(pattern))


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _set_bits(bits: int) -> Iterator[int]:
    """Positions of the set bits."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
