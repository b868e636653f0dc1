"""What enqueueing by COPY costs, compared with a plain COPY without checks.

`python -m tests.bench.copying --rows 50000`; it takes some seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from relay import devservers
from relay.client import Message, OutboxModel, enqueue_copy, enqueue_many
from relay.client.copy import _row
from relay.postgres.schema.migrate import migrate
from relay.queries.statements import statement
from tests.bench.command import positive
from tests.bench.machine import described

ROUNDS = 5
PORTION = 1000
"""Messages of one call where the array statement is measured."""
PAD = "x" * 200


class Order(OutboxModel, exchange="orders", routing_key="paid"):
    """The same message as a model."""

    order: int
    pad: str = PAD


class Figure(NamedTuple):
    """What one round took: rows a second by the clock, and CPU in microseconds a row."""

    rate: float
    client: float
    server: float


def main(words: list[str]) -> None:
    """Measure each way in turns, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.copying", description=__doc__)
    parser.add_argument("--rows", type=positive, default=50_000, help="messages of a round")
    rows = parser.parse_args(words).rows
    with devservers.postgres(say=print, private=True) as server:
        migrate(server.url, schema="public")
        print(", ".join(f"{name} {value}" for name, value in described(server.url, ["psycopg", "pydantic"]).items()))  # noqa: T201
        with psycopg.connect(server.url) as connection:
            found = _measured(connection, rows)
    for name, figures in found.items():
        rate, client, database = (statistics.median(each) for each in zip(*figures, strict=True))
        best = max(figure.rate for figure in figures)
        print(f"{name:38} {rate:8,.0f} rows/s, at best {best:8,.0f}; client {client:5.1f}, server {database:5.1f} us a row")  # noqa: T201


def _measured(connection: psycopg.Connection[Any], rows: int) -> dict[str, list[Figure]]:
    ways: dict[str, Callable[[], object]] = {
        "COPY of rows made before, unchecked": lambda: _raw(connection, ready),
        "enqueue_copy of Message": lambda: enqueue_copy(connection, _messages(rows)),
        "enqueue_copy of mappings": lambda: enqueue_copy(connection, _mappings(rows)),
        "enqueue_copy of models": lambda: enqueue_copy(connection, (Order(order=number) for number in range(rows))),
        f"enqueue_many of {PORTION} Messages": lambda: _portions(connection, rows),
    }
    found: dict[str, list[Figure]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        ready = [_row(message, datetime.now(UTC)) for message in _messages(rows)]
        for name, way in ways.items():
            found[name].append(_timed(connection, way, rows))
    return found


def _timed(connection: psycopg.Connection[Any], way: Callable[[], object], rows: int) -> Figure:
    connection.execute("TRUNCATE queue_message")
    connection.commit()
    began, client, server = time.perf_counter(), time.process_time(), _cpu(connection)
    way()
    connection.commit()
    took = time.perf_counter() - began
    return Figure(rows / took, (time.process_time() - client) / rows * 1e6, (_cpu(connection) - server) / rows * 1e6)


def _cpu(connection: psycopg.Connection[Any]) -> float:
    """Seconds of CPU that the session's process has used."""
    return int(Path(f"/proc/{connection.info.backend_pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def _messages(rows: int) -> Iterator[Message]:
    return (Message(exchange="orders", routing_key="paid", content={"order": number, "pad": PAD}) for number in range(rows))


def _mappings(rows: int) -> Iterator[Mapping[str, Any]]:
    return ({"exchange": "orders", "routing_key": "paid", "content": {"order": number, "pad": PAD}} for number in range(rows))


def _portions(connection: psycopg.Connection[Any], rows: int) -> None:
    messages = _messages(rows)
    for _ in range(0, rows, PORTION):
        enqueue_many(connection, [message for _, message in zip(range(PORTION), messages, strict=False)])


def _raw(connection: psycopg.Connection[Any], ready: list[tuple[Any, ...]]) -> None:
    with connection.cursor().copy(statement("enqueue_copy", "public")) as copy:
        for row in ready:
            copy.write_row(row)


if __name__ == "__main__":
    main(sys.argv[1:])
