-- Messages of 300 bytes in one statement, due after a delay where there is one.
INSERT INTO @table@ (exchange, content, available_at)
SELECT %(exchange)s, jsonb_build_object('pad', repeat('x', 250)), now() + make_interval(secs => %(delay)s)
FROM generate_series(1, %(count)s)
RETURNING xid::text::bigint, seq
