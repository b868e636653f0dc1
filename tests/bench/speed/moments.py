"""A relay at work, looked at from outside at two moments: what was settled between them, and what that cost."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from tests.bench.speed.counters import Counted
from tests.bench.speed.stage import Stage
from tests.support.relays.processes import RelayProcess

_SETTLED = "SELECT count(*) FROM queue_message_archive WHERE archived_at > %s AND archived_at <= %s"


class Moment(NamedTuple):
    """Counters, and PostgreSQL's clock."""

    at: datetime
    counted: Counted

    @classmethod
    def now(cls, stage: Stage, connection: psycopg.Connection[Any], relay: RelayProcess) -> Moment:
        """Look at everything; nothing of it gets dearer as the archive grows."""
        [at] = connection.execute("SELECT clock_timestamp()").fetchone() or [None]
        counted = Counted.now(connection, relays=[relay.pid], postgres=stage.postgres.pid(), broker=stage.rabbitmq.pid())
        return cls(at, counted)


class Work(NamedTuple):
    """What was settled, and of each message the microseconds that passed, and those of CPU."""

    settled: int
    wall: float
    relay: float
    postgres: float

    @property
    def rate(self) -> float:
        """Messages a second."""
        return 1e6 / self.wall


def between(connection: psycopg.Connection[Any], begin: Moment, end: Moment) -> Work:
    """Count in the archive what was settled between two moments: best when nothing is measured any more."""
    [settled] = connection.execute(_SETTLED, [begin.at, end.at]).fetchone() or [0]
    wall = (end.at - begin.at).total_seconds() * 1e6
    relay, postgres = (getattr(end.counted, name) - getattr(begin.counted, name) for name in ("relays", "postgres"))
    return Work(settled, wall / settled, relay / settled, postgres / settled)
