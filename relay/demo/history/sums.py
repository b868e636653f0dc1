"""Compares the ledger, the lake and PostgreSQL with each other, row by row; no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from relay.demo.history.ledger import GRAINS, Counts, Identity, Ledger, Row
from relay.demo.history.traffic import ORDERS

_HOUR = 3_600_000_000


@dataclass(frozen=True)
class Sums:
    """Where the archived rows are, joined by (xid, seq); each row counts in one of the four numbers."""

    archived: int
    dropped: int
    """Rows that are in the lake, and no longer in PostgreSQL."""
    both: int
    kept: int
    """Rows only in PostgreSQL, of the day that was not exported."""
    later: int
    """Rows only in PostgreSQL that were archived after the last export."""
    checksums: tuple[int, int]
    """Checksums of the exported rows: from the ledger, and from the lake."""

    @property
    def adds_up(self) -> bool:
        """Whether every row is in one of the four places."""
        return self.archived == self.dropped + self.both + self.kept + self.later


@dataclass(frozen=True)
class Promise:
    """A promise, and the number of its violations."""

    words: str
    broken: int
    such_as: str = ""


def sums(ledger: Ledger) -> Sums:
    """Count every archived row once."""
    lake, left = {row.identity for row in ledger.lake}, {row.identity for row in ledger.left}
    late = date.fromisoformat(ledger.outcome["kept"])
    only_here = [row for row in ledger.archived if row.identity in left - lake]
    kept = sum(row.day == late for row in only_here)
    return Sums(
        archived=len(ledger.archived),
        dropped=sum(row.identity in lake - left for row in ledger.archived),
        both=sum(row.identity in lake & left for row in ledger.archived),
        kept=kept,
        later=len(only_here) - kept,
        checksums=(_checksum(row for row in ledger.archived if row.identity in lake), _checksum(ledger.lake)),
    )


def promises(ledger: Ledger) -> list[Promise]:
    """The promises in the order of the story, each with the number of its violations."""
    return [*_exactly_once(ledger), *_exports(ledger), *_retention(ledger), *_replay(ledger), *_consumer(ledger), *_statistics(ledger)]


def _exactly_once(ledger: Ledger) -> list[Promise]:
    archived = {row.identity: row for row in ledger.archived}
    lake = Counter(row.identity for row in ledger.lake)
    left = {row.identity for row in ledger.left}
    return [
        _promise("rows that are neither in the lake nor in PostgreSQL", archived.keys() - lake.keys() - left),
        _promise("rows that are in the lake more than once", [one for one, times in lake.items() if times > 1]),
        _promise("rows of the lake that were never archived", lake.keys() - archived.keys()),
        _promise("rows of the lake with another content", [row.identity for row in ledger.lake if _differs(row, archived)]),
        _promise("rows of PostgreSQL with another content", [row.identity for row in ledger.left if _differs(row, archived)]),
    ]


def _exports(ledger: Ledger) -> list[Promise]:
    said = ledger.outcome
    return [
        Promise("rows of the second export, when nothing was new", said["second_export"]),
        Promise("rows that the killed export has added", said["added_by_the_kill"]),
        Promise("kills of an export between files and commit that failed", int(not said["left_by_the_kill"])),
    ]


def _retention(ledger: Ledger) -> list[Promise]:
    said = ledger.outcome
    dropped = {_partition(day) for day in said["dropped"]}
    exported = {_partition(row.day.isoformat()) for row in ledger.lake if row.is_daily}
    left = {row.identity for row in ledger.left}
    late = [row.identity for row in ledger.archived if row.day.isoformat() == said["kept"] and row.identity not in left]
    return [
        _promise("exported days that were not verified and dropped", exported - (dropped & set(said["verified"]))),
        _promise("partitions that differ from the lake", said["differing"]),
        _promise("rows of the day that was not exported, and yet dropped", late),
    ]


def _replay(ledger: Ledger) -> list[Promise]:
    """Promises about the replay: join each archived row, by the new message's id, to its delivery."""
    wanted = {row.identity: row for row in ledger.archived if _is_wanted(row, ledger.outcome["hour"])}
    delivered = Counter(one.id for one in ledger.deliveries)
    digests = {one.id: one.digest for one in ledger.deliveries}
    originals = {one.id: one.replay_of for one in ledger.deliveries}
    known = {which: id_ for which, id_ in ledger.replayed.items() if which in wanted}
    others = [which for which, id_ in known.items() if (digests.get(id_), originals.get(id_)) != _original(wanted[which], digests)]
    return [
        _promise("messages of the hour that were not replayed", wanted.keys() - ledger.replayed.keys()),
        _promise("messages replayed that are not of the hour", ledger.replayed.keys() - wanted.keys()),
        _promise("replayed messages not delivered exactly once", [id_ for id_ in ledger.replayed.values() if delivered[id_] != 1]),
        _promise("replayed messages with another payload or lineage", others),
        Promise("messages of the same replay job, run again", ledger.outcome["replayed_again"]),
    ]


def _consumer(ledger: Ledger) -> list[Promise]:
    said = ledger.outcome["reconciled"]
    successes = [row.id for row in ledger.archived if row.result == "success"]
    delivered = Counter(one.id for one in ledger.deliveries)
    return [
        _promise("messages sent, and not received exactly once", [id_ for id_ in successes if delivered[id_] != 1]),
        _promise("messages received, and not archived as sent", delivered.keys() - set(successes)),
        Promise("lost, as the reconciliation says", said["lost"]),
        Promise("duplicated, as the reconciliation says", said["duplicated"]),
    ]


def _statistics(ledger: Ledger) -> list[Promise]:
    """Promises about the statistics: each table, in PostgreSQL and in the lake, has the counts of the exported rows."""
    lake = {row.identity for row in ledger.lake}
    truth: Counts = dict(Counter((row.day.isoformat(), row.exchange, row.result) for row in ledger.archived if row.identity in lake))
    names = [f"{place}{grain}" for place in ("", "lake ") for grain in GRAINS]
    return [_promise(f"counts of {name}s that differ from the rows", ledger.stats[name].items() ^ truth.items()) for name in names]


def _promise(words: str, broken: Iterable[object]) -> Promise:
    found = sorted(map(str, broken))
    return Promise(words, len(found), found[0] if found else "")


def _differs(row: Row, archived: dict[Identity, Row]) -> bool:
    return row.identity in archived and archived[row.identity].digest != row.digest


def _is_wanted(row: Row, hour: int) -> bool:
    return (row.archived_at // _HOUR * 3600, row.exchange, row.result) == (hour, ORDERS, "success")


def _original(row: Row, digests: dict[str, str]) -> tuple[str | None, str]:
    return digests.get(row.id), row.id


def _partition(day: str) -> str:
    return f"queue_message_archive_{day.replace('-', '')}"


def _checksum(rows: Iterable[Row]) -> int:
    """The sum of the rows' digests, which does not depend on the order of the rows."""
    return sum(int(row.digest[:15], 16) for row in rows)
