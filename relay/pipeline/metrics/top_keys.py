"""Chooses the exchanges and routing keys that the numbers name: the busiest of each UTC day. The others count as `*other*`.

Exchanges and routing keys may contain ids, and there may be very many of them. A day therefore names only the exchanges with the most
messages, and for each of them only the keys with the most messages. Among equals, the first in byte order is named. Messages of other
exchanges count as `*other*` in both names. For a past day, the choice depends only on the messages of that day, not on the order of their
export or on other days. A day's windows can therefore be added up name by name. A late message can change the choice. Then all windows of
the day are computed with the new choice and replaced together, so a day never mixes two choices. A day that has not ended keeps its names,
and gets further names until the limits are reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.metrics import aggregate as stats
from relay.pipeline.metrics.histogram import Integers

Pair = tuple[str, str]
"""Exchange and routing key."""


class Limits(NamedTuple):
    """How many exchanges a day names, and how many routing keys of each exchange."""

    exchanges: int
    keys: int


class Names(NamedTuple):
    """The exchanges and the pairs of exchange and routing key that one day names."""

    exchanges: frozenset[str] = frozenset()
    pairs: frozenset[Pair] = frozenset()


class Renaming:
    """Replaces the names in rows that their day does not name by `*other*`. The object is sent to Spark's tasks."""

    def __init__(self, names: Names) -> None:
        self._exchanges = sorted(names.exchanges | {stats.OTHER})
        self._keys = sorted({key for _, key in names.pairs} | {stats.OTHER})
        exchange_at, key_at = ({name: number for number, name in enumerate(found)} for found in (self._exchanges, self._keys))
        self._pairs = np.array([exchange_at[exchange] * len(self._keys) + key_at[key] for exchange, key in names.pairs], dtype=np.int64)
        self._other_exchange, self._other_key = exchange_at[stats.OTHER], key_at[stats.OTHER]

    def of_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the exchange and the routing key under which each row is counted."""
        exchange_at, key_at = _places(rows.column("exchange"), self._exchanges), _places(rows.column("routing_key"), self._keys)
        exchange_at = np.where(exchange_at >= 0, exchange_at, self._other_exchange)
        is_named = (key_at >= 0) & np.isin(exchange_at * len(self._keys) + key_at, self._pairs)
        rows = _renamed(rows, "exchange", exchange_at, self._exchanges)
        return _renamed(rows, "routing_key", np.where(is_named, key_at, self._other_key), self._keys)


def of_numbers(windows: pa.Table) -> Names:
    """The names in the numbers of a day."""
    found = windows.select(["exchange", "routing_key"]).group_by(["exchange", "routing_key"]).aggregate([])
    pairs = {pair for pair in zip(*(column.to_pylist() for column in found.columns), strict=True) if pair[0] != stats.OTHER}
    return Names(frozenset(exchange for exchange, _ in pairs), frozenset(pair for pair in pairs if pair[1] != stats.OTHER))


def fill(named: Names, busiest: Iterable[Pair], limits: Limits) -> Names:
    """The names so far, and names of further pairs until the limits are reached; `busiest` begins with the pairs with the most messages."""
    exchanges, pairs = set(named.exchanges), set(named.pairs)
    taken = Counter(exchange for exchange, _ in pairs)
    for exchange, key in busiest:
        if exchange != stats.OTHER and len(exchanges) < limits.exchanges:
            exchanges.add(exchange)
        if exchange in exchanges and (exchange, key) not in pairs and taken[exchange] < limits.keys:
            pairs.add((exchange, key))
            taken[exchange] += 1
    return Names(frozenset(exchanges), frozenset(pairs))


def _places(names: pa.Array, known: list[str]) -> Integers:
    """The place of each name in the list; -1 if the name is not there."""
    found = pc.fill_null(pc.index_in(names, value_set=pa.array(known, pa.string())), -1)
    places: Integers = found.to_numpy().astype(np.int64)
    return places


def _renamed(rows: pa.RecordBatch, column: str, places: Integers, names: list[str]) -> pa.RecordBatch:
    """The rows with other names in a column; `places` says which name of the list each row gets."""
    named = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(names, pa.string()))
    return rows.set_column(rows.schema.get_field_index(column), column, named)
