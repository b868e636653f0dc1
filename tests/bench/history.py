"""An archive to measure with: made on the server, in transactions of 500 rows, as a relay settles."""

from __future__ import annotations

from datetime import date

import psycopg
from psycopg import sql

from relay import devservers
from relay.devservers.borrowed import database_at
from relay.devservers.process import Say
from relay.pipeline.source.columns import ArchiveColumn
from relay.postgres.schema.migrate import migrate

SETTINGS = ("autovacuum=off", "max_wal_size=8GB", "checkpoint_timeout=30min")
"""Settings of the private server: it starts no work of its own during a measurement."""
FIRST = date(2024, 5, 1)
TRANSACTION = 500
"""Rows that are archived together."""
_STEP = 200_000
_FILL = """
DO $body$
BEGIN
    FOR lowest IN {first} .. {last} BY {transaction} LOOP
        INSERT INTO queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts, result, handled_by,
            claimed_at, published_at, confirmed_at, archived_at)
        SELECT pg_current_xact_id(), n, gen_random_uuid(), 'exchange-' || n % 5, 'key-' || floor(sqrt(n * 7919 % 1600))::integer,
            jsonb_build_object('order', n, 'customer', 'customer-' || n % 9973, 'lines', md5(n::text) || md5((n + 1)::text)
                || md5((n + 2)::text) || md5((n + 3)::text) || md5((n + 4)::text) || md5((n + 5)::text) || md5((n + 6)::text)
                || left(md5((n + 7)::text), 20)), '{{}}',
            settled - interval '40 ms' - (n * 37 % 900) * interval '1 ms', 1, 'success', 'relay-1',
            settled - interval '20 ms' - (n * 31 % 17) * interval '1 ms', settled - interval '10 ms',
            settled - (n % 9) * interval '1 ms', settled
        FROM (SELECT n, {begin}::timestamptz + (n - 1) * (interval '1 day' / {a_day}) AS settled
            FROM generate_series(lowest::bigint, least(lowest + {transaction} - 1, {last})) AS n) AS row;
        COMMIT;
    END LOOP;
END
$body$
"""
_BORDERS = """
    SELECT percentile_disc(%s::double precision[]) WITHIN GROUP (ORDER BY archived_xid::text::bigint),
        max(archived_xid::text::bigint) + 1
    FROM queue_message_archive
"""


def server(say: Say) -> devservers.Postgres:
    """A private PostgreSQL; runs from `with` on."""
    return devservers.postgres(say=say, settings=SETTINGS, private=True)


class History:
    """A database with an archive that grows from a day on, `a_day` rows each day."""

    def __init__(self, server: devservers.Postgres, name: str, *, a_day: int, first: date = FIRST) -> None:
        self.url = database_at(server.url, name)
        self.a_day = a_day
        self.first = first
        self.rows = 0
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        migrate(self.url, schema="public")

    def grow(self, count: int, *, say: Say = lambda _: None) -> None:
        """Archive so many rows more."""
        wanted = self.rows + count
        days = (wanted - 1) // self.a_day + 1
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT queue_message_ensure_partitions(%s, %s)", [days, self.first])
            while self.rows < wanted:
                last = min(self.rows + _STEP, wanted)
                connection.execute(self._filling(self.rows + 1, last))
                self.rows = last
                say(f"{self.rows:,} of {wanted:,} rows archived")

    def settle_down(self) -> None:
        """What autovacuum would have done some time after so many rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    def empty(self) -> None:
        """Start again with an empty archive, at the first day."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("TRUNCATE queue_message_archive")
        self.rows = 0

    def forget_numbers(self) -> None:
        """Remove the statistics, so that the next ones have to be written."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("TRUNCATE queue_message_stats_window, queue_message_stats_hour, queue_message_stats_day")

    def selects(self, parts: int) -> list[str]:
        """Statements that read the archive in parts of as many rows each, for another reader: by the index, cast on the server."""
        with psycopg.connect(self.url) as connection:
            [(borders, end)] = connection.execute(_BORDERS, [[part / parts for part in range(parts)]]).fetchall()
            kinds = connection.execute(_KINDS).fetchall()
        columns = sql.SQL(", ").join(ArchiveColumn(*kind).expression for kind in kinds).as_string(None)
        select = f"SELECT {columns}, (archived_at AT TIME ZONE 'UTC')::date AS day FROM queue_message_archive"
        pairs = zip(borders, [*borders[1:], end], strict=True)
        return [f"{select} WHERE archived_xid >= '{low}'::xid8 AND archived_xid < '{high}'::xid8" for low, high in pairs]

    def content_bytes(self) -> float:
        """Average length of a content's text."""
        with psycopg.connect(self.url) as connection:
            found = connection.execute("SELECT avg(octet_length(content::text))::float8 FROM queue_message_archive").fetchone()
        return float(found[0]) if found else 0.0

    def _filling(self, first: int, last: int) -> sql.Composed:
        numbers = {"first": first, "last": last, "transaction": TRANSACTION, "a_day": self.a_day}
        return sql.SQL(_FILL).format(
            **{name: sql.Literal(number) for name, number in numbers.items()}, begin=sql.Literal(f"{self.first} 00:00:00+00")
        )


_KINDS = """
    SELECT a.attname::text, t.typname::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = 'queue_message_archive'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
