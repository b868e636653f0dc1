"""Joins by id the messages that an application committed, the deliveries to a consumer, and the rows of the archive.

A ledger is a folder of files with one JSON object a line; `at`, `not_before` and `archived_at` are seconds since 1970:

    producer.jsonl  {"transaction": "t1", "phase": "before", "messages": [{"id": …}, …], "undone": [ids of an undone savepoint]}
                    {"transaction": "t1", "phase": "committed"}    or "rolled_back"; neither: unknown
    consumer.jsonl  {"id": …, "at": …}                              a line for each delivery, in the order of arrival
    archive.jsonl   {"id": …, "result": …, "error_code": …, "archived_at": …}
    queue.jsonl     {"id": …}                                       what is still in the queue
    faults.jsonl    {"at": …, "in_flight": [ids that were locked]}   or an upper bound of their number

A message of the producer may have more fields, which are checked: `expect` (the result in the archive), `key` and `place` (its place among
the messages of its ordering key), `not_before`. The three ledgers are those of the producer, the consumer and the database.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from relay.demo.ledger.files import ARCHIVE, CONSUMER, FAULTS, PRODUCER, QUEUE, Archived, Fault, Ledger, LedgerError, read
from relay.demo.ledger.report import Report
from relay.message import Result

__all__ = ["ARCHIVE", "CONSUMER", "FAULTS", "PRODUCER", "QUEUE", "LedgerError", "Report", "check"]

_DEAD: Final = frozenset({Result.REJECTED, Result.FAILED, Result.LOCK_EXPIRED})


def check(folder: Path) -> Report:
    """Read the ledger in a folder and join it.

    Raises:
        LedgerError: a file other than `faults.jsonl` is missing, or a line is invalid.
    """
    return _Join(read(folder)).report()


class _Join:
    """Joins the three ledgers by id."""

    def __init__(self, ledger: Ledger) -> None:
        self._deliveries = ledger.deliveries
        self._faults = ledger.faults
        self._queued = ledger.queued
        self._archived: dict[str, list[Archived]] = {}
        for row in ledger.archived:
            self._archived.setdefault(row.id, []).append(row)
        self._first: dict[str, float] = {}
        for delivery in ledger.deliveries:
            self._first.setdefault(delivery.id, delivery.at)
        producer = ledger.producer
        seen = self._first.keys() | self._archived.keys() | ledger.queued
        self._sent = producer.committed | {id_: sent for id_, sent in producer.unknown.items() if id_ in seen}
        self._rolled_back = len(producer.rolled_back)
        self._phantom = seen - self._sent.keys()

    def report(self) -> Report:
        """Compute all numbers of the report."""
        places = [self._place(id_) for id_ in self._sent]
        delivered = [id_ for id_ in self._sent if id_ in self._first]
        return Report(
            committed=len(self._sent),
            rolled_back=self._rolled_back,
            delivered=len(delivered),
            dead=places.count("dead"),
            discarded=places.count("discarded"),
            accepted=places.count("accepted"),
            waiting=places.count("waiting"),
            lost=self._ids(lambda id_: self._place(id_) == "lost"),
            phantom=tuple(sorted(self._phantom)),
            success_without_delivery=self._ids(lambda id_: id_ not in self._first and self._has_result(id_, plain_success=True)),
            delivered_not_success=self._ids(lambda id_: id_ in self._first and self._has_result(id_, plain_success=False)),
            unarchived=self._ids(lambda id_: id_ in self._first and id_ not in self._archived and id_ not in self._queued),
            archived_twice=self._ids(lambda id_: len(self._archived.get(id_, ())) > 1),
            unexpected_result=self._ids(self._is_unexpected),
            early=self._ids(lambda id_: self._first.get(id_, float("inf")) < self._sent[id_].not_before),
            order_breaks=self._order_breaks(),
            duplicates=len(self._deliveries) - len(self._first),
            faults=len(self._faults),
            in_flight=sum(fault.size for fault in self._faults),
            unexplained=self._unexplained(),
            recovery_seconds=max((self._recovery(fault) for fault in self._faults), default=None),
            messages_per_second=self._rate(),
        )

    def _ids(self, applies: Callable[[str], bool]) -> tuple[str, ...]:
        return tuple(id_ for id_ in self._sent if applies(id_))

    def _place(self, id_: str) -> str:
        """The sum to which a committed message is added; each message is added to exactly one."""
        results = {row.result for row in self._archived.get(id_, ())}
        if id_ in self._first:
            return "delivered"
        if results & _DEAD:
            return "dead"
        if Result.DISCARDED in results:
            return "discarded"
        if results and not self._has_result(id_, plain_success=True):
            return "accepted"
        return "waiting" if id_ in self._queued else "lost"

    def _has_result(self, id_: str, *, plain_success: bool) -> bool:
        """Whether the message has an archive row that is a plain success or, without `plain_success`, one that is not a success.

        A success with a code was accepted without a route, and counts as neither.
        """
        rows = self._archived.get(id_, ())
        return any((row.result == Result.SUCCESS and not row.error_code) if plain_success else row.result != Result.SUCCESS for row in rows)

    def _is_unexpected(self, id_: str) -> bool:
        expect = self._sent[id_].expect
        return expect is not None and any(row.result != expect for row in self._archived.get(id_, ()))

    def _order_breaks(self) -> tuple[str, ...]:
        highest: dict[str, int] = {}
        late: list[str] = []
        for id_ in self._first:
            sent = self._sent.get(id_)
            if sent is None or sent.key is None:
                continue
            if sent.place < highest.get(sent.key, sent.place):
                late.append(id_)
            highest[sent.key] = max(sent.place, highest.get(sent.key, sent.place))
        return tuple(late)

    def _unexplained(self) -> tuple[str, ...]:
        if any(isinstance(fault.in_flight, int) for fault in self._faults):
            return ()
        times: dict[str, int] = {}
        for delivery in self._deliveries:
            times[delivery.id] = times.get(delivery.id, 0) + 1
        explained = frozenset().union(*(fault.ids for fault in self._faults))
        return tuple(id_ for id_, count in times.items() if count > 1 and id_ not in explained)

    def _recovery(self, fault: Fault) -> float:
        """The longest time in seconds from a fault to the end of a message that was in flight at this fault and no later one.

        The end of a message that is not archived is its first delivery. A later fault before the end may have hit the next sender, such as
        the new owner of the key. Then the time counts from that fault.
        """
        later = frozenset().union(*(other.ids for other in self._faults if other.at > fault.at))
        ends = [max((row.at for row in self._archived.get(id_, ())), default=self._first.get(id_, fault.at)) for id_ in fault.ids - later]
        begins = [max(other.at for other in self._faults if fault.at <= other.at <= max(end, fault.at)) for end in ends]
        return max([end - begin for begin, end in zip(begins, ends, strict=True)], default=0.0)

    def _rate(self) -> float:
        times = [*self._first.values()]
        span = max(times, default=0.0) - min(times, default=0.0)
        return len(times) / span if span > 0 else 0.0
