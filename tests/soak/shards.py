"""A ledger in sixteen folders by the first digit of an id, so that hours of load are joined a sixteenth at a time.

All messages of a transaction, and all of an ordering key, are in one shard, so that each shard is a whole ledger of `relay.demo.ledger`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from relay.demo import ledger
from relay.demo.journal import Journal

DIGITS = "0123456789abcdef"
InFlight = Sequence[str] | int
"""The ids that were in flight, or the most that can have been."""


class Noted(NamedTuple):
    """A fault as the ledger needs it."""

    at: float
    in_flight: InFlight

    @property
    def size(self) -> int:
        """How many messages it may have sent twice."""
        return self.in_flight if isinstance(self.in_flight, int) else len(self.in_flight)


class Shards:
    """One file of the ledger, in all shards.

    Args:
        folder: where the shards are.
        name: of the file.

    """

    def __init__(self, folder: Path, name: str) -> None:
        for digit in DIGITS:
            (folder / digit).mkdir(parents=True, exist_ok=True)
        self._journals = {digit: Journal(folder / digit / name) for digit in DIGITS}

    def note(self, shard: str, **line: Any) -> None:
        """Write a line to the shard of this digit, or of this id."""
        self._journals[shard[0]].note(**line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for journal in self._journals.values():
            journal.__exit__(kind, error, traceback)


def join(folder: Path, faults: Sequence[Noted]) -> ledger.Report:
    """Join each shard by itself, and add the numbers up.

    Raises:
        LedgerError: a file is missing or damaged.
    """
    with Shards(folder, ledger.FAULTS) as file:
        for at, in_flight in faults:
            for digit in DIGITS:
                ids = 0 if isinstance(in_flight, int) else [id_ for id_ in in_flight if id_[0] == digit]
                file.note(digit, at=at, in_flight=ids)
    total = added(ledger.check(folder / digit) for digit in DIGITS)
    return replace(total, faults=len(faults), in_flight=sum(fault.size for fault in faults))


def added(reports: Iterable[ledger.Report]) -> ledger.Report:
    """One report over several ledgers that have no message in common."""
    all_of = list(reports)
    values = {field.name: [getattr(report, field.name) for report in all_of] for field in fields(ledger.Report)}
    return ledger.Report(**{name: _total(name)(parts) for name, parts in values.items()})


def repeats(folder: Path) -> Iterator[float]:
    """When each delivery beyond the first of its message came."""
    for digit in DIGITS:
        with (folder / digit / ledger.CONSUMER).open(encoding="utf-8") as file:
            deliveries = sorted((line["id"], line["at"]) for line in map(json.loads, file))
        for _, same in groupby(deliveries, key=itemgetter(0)):
            yield from [at for _, at in same][1:]


def _total(name: str) -> Callable[[list[Any]], Any]:
    if name == "recovery_seconds":
        return lambda parts: max((part for part in parts if part is not None), default=None)
    return lambda parts: sum(parts[1:], parts[0])
