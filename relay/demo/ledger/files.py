"""Reads the files of a ledger; their form is described in `relay.demo.ledger`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from relay.errors import RelayError

PRODUCER: Final = "producer.jsonl"
CONSUMER: Final = "consumer.jsonl"
ARCHIVE: Final = "archive.jsonl"
QUEUE: Final = "queue.jsonl"
FAULTS: Final = "faults.jsonl"

T = TypeVar("T")


class LedgerError(RelayError):
    """A ledger is missing or damaged; the message names the file and the line."""


class Sent(NamedTuple):
    """One message, as the producer recorded it before the commit."""

    id: str
    expect: str | None
    key: str | None
    place: int
    not_before: float


class Delivery(NamedTuple):
    """One delivery, as the consumer recorded it."""

    id: str
    at: float


class Archived(NamedTuple):
    """One row of the archive."""

    id: str
    result: str
    error_code: str | None
    at: float


class Fault(NamedTuple):
    """A fault: its time, and the messages in flight at that time, by id or as an upper bound of their number."""

    at: float
    in_flight: frozenset[str] | int

    @property
    def size(self) -> int:
        """How many messages may be delivered twice because of the fault."""
        return self.in_flight if isinstance(self.in_flight, int) else len(self.in_flight)

    @property
    def ids(self) -> frozenset[str]:
        """The messages in flight, if they are known by id."""
        return frozenset() if isinstance(self.in_flight, int) else self.in_flight


class Producer(NamedTuple):
    """The producer's ledger."""

    committed: dict[str, Sent]
    rolled_back: set[str]
    unknown: dict[str, Sent]
    """Messages of transactions whose end was not recorded. Such a message was committed if it is found anywhere."""


class Ledger(NamedTuple):
    """All files of a folder."""

    producer: Producer
    deliveries: list[Delivery]
    archived: list[Archived]
    queued: set[str]
    faults: list[Fault]


class _Line(NamedTuple):
    """One line of the producer's file."""

    transaction: str
    phase: str
    messages: dict[str, Sent]
    undone: set[str]


def read(folder: Path) -> Ledger:
    """Read a folder.

    Raises:
        LedgerError: a file other than that of the faults is missing, or a line is invalid.
    """
    return Ledger(
        producer=_producer(_read(folder / PRODUCER, _line)),
        deliveries=_read(folder / CONSUMER, lambda line: Delivery(str(line["id"]), float(line["at"]))),
        archived=_read(folder / ARCHIVE, _archived),
        queued={*_read(folder / QUEUE, lambda line: str(line["id"]))},
        faults=_read(folder / FAULTS, _fault) if (folder / FAULTS).exists() else [],
    )


def _producer(lines: list[_Line]) -> Producer:
    ends = {line.transaction: line.phase for line in lines if line.phase != "before"}
    found = Producer({}, set(), {})
    for line in lines:
        if line.phase != "before":
            continue
        found.rolled_back.update(line.undone)
        match ends.get(line.transaction):
            case "committed":
                found.committed.update(line.messages)
            case "rolled_back":
                found.rolled_back.update(line.messages)
            case _:
                found.unknown.update(line.messages)
    return found


def _line(line: Mapping[str, Any]) -> _Line:
    messages = {sent.id: sent for sent in map(_sent, line.get("messages", ()))}
    return _Line(str(line["transaction"]), str(line["phase"]), messages, {*line.get("undone", ())})


def _sent(message: Mapping[str, Any]) -> Sent:
    return Sent(
        id=str(message["id"]),
        expect=message.get("expect"),
        key=message.get("key"),
        place=int(message.get("place", 0)),
        not_before=float(message.get("not_before") or 0),
    )


def _archived(line: Mapping[str, Any]) -> Archived:
    return Archived(str(line["id"]), str(line["result"]), line.get("error_code"), float(line["archived_at"]))


def _fault(line: Mapping[str, Any]) -> Fault:
    in_flight = line["in_flight"]
    return Fault(float(line["at"]), in_flight if isinstance(in_flight, int) else frozenset(in_flight))


def _read(path: Path, parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
    found: list[T] = []
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, start=1):  # noqa: B007 - the error below names it
                found.append(parse(json.loads(text)))
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be read ({error.strerror}); name a folder that `relay demo --ledger FOLDER` has written."
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerError(f"{path}, line {number} is not a line of this ledger ({error!r}); write the ledger again.") from error
    return found
