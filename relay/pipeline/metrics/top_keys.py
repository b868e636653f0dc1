"""Which routing keys the numbers name: the busiest of each exchange and UTC day; the others count as `*other*`.

Keys may hold ids, so per exchange and day only those with the most messages are named (of equal ones those first in byte order). Once a day
is over, the choice is made from all of its messages and from nothing else: whatever order they were exported in, the numbers are the same.
No other day's messages can rename a key, and a day's windows can be added up key by key. A late message can move the border; then every
window of that day is computed with the new choice and replaced together, so that no two choices stand side by side. A day that is not over
keeps the names that it has, and gets more while there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.metrics import aggregate as stats
from relay.pipeline.metrics.histogram import Integers

Pair = tuple[str, str]
"""Exchange and routing key."""


class NamedKeys:
    """The pairs of exchange and routing key that one day names. Travels to Spark's tasks."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        named = set(pairs)
        self._exchanges = sorted({exchange for exchange, _ in named})
        self._keys = sorted({key for _, key in named} | {stats.OTHER})
        exchange_at, key_at = ({name: number for number, name in enumerate(names)} for names in (self._exchanges, self._keys))
        self._pairs = np.array([exchange_at[exchange] * len(self._keys) + key_at[key] for exchange, key in named], dtype=np.int64)
        self._other = key_at[stats.OTHER]

    def of_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the routing key that each of them counts as."""
        exchange_at, key_at = _places(rows.column("exchange"), self._exchanges), _places(rows.column("routing_key"), self._keys)
        is_named = (exchange_at >= 0) & (key_at >= 0) & np.isin(exchange_at * len(self._keys) + key_at, self._pairs)
        chosen = pa.array(np.where(is_named, key_at, self._other), pa.int32())
        named = pa.DictionaryArray.from_arrays(chosen, pa.array(self._keys, pa.string()))
        return rows.set_column(rows.schema.get_field_index("routing_key"), "routing_key", named)


def of_numbers(windows: pa.Table) -> set[Pair]:
    """The pairs that the numbers of a day name."""
    pairs = windows.select(["exchange", "routing_key"]).group_by(["exchange", "routing_key"]).aggregate([])
    return {(exchange, key) for exchange, key in zip(*(column.to_pylist() for column in pairs.columns), strict=True) if key != stats.OTHER}


def fill(named: Iterable[Pair], busiest: Iterable[Pair], top_keys: int) -> NamedKeys:
    """Those that are named already, and of the others the busiest, which come first, while an exchange has fewer than `top_keys`."""
    pairs = set(named)
    taken = Counter(exchange for exchange, _ in pairs)
    for exchange, key in busiest:
        if (exchange, key) not in pairs and taken[exchange] < top_keys:
            pairs.add((exchange, key))
            taken[exchange] += 1
    return NamedKeys(pairs)


def _places(names: pa.Array, known: list[str]) -> Integers:
    """Where each name is in the list, -1 where it is not."""
    found = pc.fill_null(pc.index_in(names, value_set=pa.array(known, pa.string())), -1)
    places: Integers = found.to_numpy().astype(np.int64)
    return places
