"""Rows that combine every two values of any two axes, and all values of some axes, drawn by chance.

A value that stops a row hides what the row's other values do. So such a row shows that value with each of the others, and no more.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, combinations, product

Value = tuple[str, str]
"""An axis, and the name of a value on it."""
Left = dict[Value, set[Value]]
"""The values of other axes with which each value has not yet been combined."""


def covering(
    axes: Mapping[str, Sequence[str]], stops: Collection[Value], chance: random.Random, crossed: Sequence[str] = ()
) -> Iterator[dict[str, str]]:
    """Rows until every pair of values has been shown, and every combination of the values of the crossed axes.

    Args:
        axes: the names of each axis's values, of which at least one stops nothing.
        stops: the values that stop a row.
        chance: decides between rows that show as much.
        crossed: three axes or more, of which every combination is shown; none by default.
    """
    values = [[(axis, name) for name in names] for axis, names in axes.items()]
    left: Left = {one: {other for others in values if mine is not others for other in others} for mine in values for one in mine}
    pairs = [(one, other) for one, others in left.items() for other in sorted(others)]
    chance.shuffle(pairs)
    combined = product(*([(axis, name) for name in axes[axis]] for axis in crossed)) if crossed else ()
    for begun in chain(combined, pairs):
        if len(begun) > 2 or begun[1] in left[begun[0]]:
            row = _fill([*begun], values, stops, left, chance)
            for first, second in _shown(row, stops):
                left[first].discard(second)
                left[second].discard(first)
            yield dict(row)


def _fill(row: list[Value], values: list[list[Value]], stops: Collection[Value], left: Left, chance: random.Random) -> list[Value]:
    """Fill the row with a value of each other axis, each showing as many new pairs as it can; stops only in a row of stops."""
    stopped = all(one in stops for one in row)
    taken = {axis for axis, _ in row}
    for candidates in chance.sample(values, len(values)):
        if candidates[0][0] in taken:
            continue
        some = [one for one in candidates if (one in stops) == stopped] or candidates
        beside = [one for one in row if one in stops] or row
        row.append(max(some, key=lambda one: (len(left[one].intersection(beside)), chance.random())))
    return row


def _shown(row: list[Value], stops: Collection[Value]) -> list[tuple[Value, Value]]:
    stopping = [one for one in row if one in stops]
    if len(stopping) > 1:
        return list(combinations(stopping, 2))
    return [pair for pair in combinations(row, 2) if not stopping or stopping[0] in pair]
