"""The faults that the promise is tested against, by number; `docs/faults.md` tells what came of each."""

from __future__ import annotations

from collections.abc import Mapping

MENU: Mapping[int, str] = {
    1: "kill -9 of a relay at random moments",
    2: "SIGTERM under load",
    3: "SIGTERM while the broker answers nothing",
    4: "kill -9 of PostgreSQL and its immediate shutdown, and start",
    5: "fast shutdown of PostgreSQL; terminated backends, of the whole relay and of LISTEN alone",
    6: "the answer to COMMIT is lost",
    7: "RabbitMQ stopped, killed, started",
    8: "memory alarm of RabbitMQ, shorter and longer than the lock",
    9: "disk alarm of RabbitMQ",
    10: "network: reset, closed, half-open, one way only, late, slow, in slices, towards both servers",
    11: "connections closed by the broker; exchange, queue, binding, permission, user or vhost gone in flight",
    12: "a full queue that rejects, then emptied",
    13: "a storm of bad messages, 1 % and 50 %",
    14: "one message id for many messages in flight, some of them unroutable",
    15: "a relay stopped (SIGSTOP) for longer than its locks",
    16: "two to eight relays of one name, started and stopped at random",
    17: "a relay's clock wrong by an hour, and stepped",
    18: "a transaction held open over the load, reading and writing",
    19: "transactions that commit late and in any order",
    20: "rollbacks, savepoints, two-phase commits",
    21: "a backlog of millions",
    22: "large bodies, at and over the limits",
    23: "a storm of notifications; LISTEN dead; notification queue full",
    24: "PgBouncer in transaction mode",
    25: "no space for PostgreSQL, or for the relay",
    26: "archive without a partition or a grant, locked, altered under load",
    27: "passwords rotated, certificate expired",
    28: "no connection left at PostgreSQL or RabbitMQ",
    29: "a relay out of memory, or starved of CPU",
    30: "load with a random fault each minute, for hours",
    31: "old and new relay side by side; migration under load",
    32: "`relay receive`: kill -9, PostgreSQL and RabbitMQ killed, connections cut",
    33: "`relay work`: kill -9, PostgreSQL killed, locks that expire while handlers work",
    34: "a dump or a logical copy taken into another cluster, with higher or lower transaction ids",
    35: "failover to a standby that lagged, point-in-time recovery, pg_upgrade",
    36: "the clock of PostgreSQL set ahead or back by an hour",
}
