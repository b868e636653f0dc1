"""What a relay spends on a contract for each message, and how quick rows with keys are folded."""

from __future__ import annotations

import json
from collections.abc import Sequence

import psycopg

from tests.bench.figures import Figure, figure, ratio
from tests.bench.speed import kinds
from tests.bench.speed.counters import cpu_of_all
from tests.bench.speed.drains import Drain, drain, frozen
from tests.bench.speed.inboxes import counted, value
from tests.bench.speed.stage import Stage, tidy
from tests.support.relays.processes import RelayProcess

CONTRACT = {
    "type": "object",
    "required": ["value", "pad"],
    "properties": {"value": {"type": "integer", "minimum": 100_000}, "pad": {"type": "string", "maxLength": 1000}},
}
ROWS = 60_000
KEYS = 600
FOLDS = {
    "bundle_key": ("bundled", "of a list of 100 messages"),
    "coalesce_key": ("superseded", "of 100 messages with one key"),
}
"""Code of what is folded, and in what a row is."""
INSERT = """
    INSERT INTO queue_message_keyed (exchange, routing_key, content, available_at, {key})
    SELECT %s, %s, jsonb_build_object('value', n, 'pad', repeat('x', 250)), now(), 'key-' || n %% %s FROM generate_series(1, %s) AS n
"""
BROKEN = "INSERT INTO queue_message (exchange, routing_key, content) VALUES (%s, %s, '{}')"
FOUND = "SELECT count(*) FROM queue_message_archive WHERE error_code = %s"
FOLDED_RATE = """
    SELECT sum(messages) FILTER (WHERE at > began) / extract(epoch FROM max(at) - min(at))::float8 FROM (
        SELECT pg_xact_commit_timestamp(archived_xid::text::xid) AS at, count(*) AS messages,
            min(pg_xact_commit_timestamp(archived_xid::text::xid)) OVER () AS began
        FROM queue_message_archive WHERE error_code = %s GROUP BY archived_xid) AS folds
"""
"""What was folded after the first fold's COMMIT, by the time from it to the last."""


async def measure_contracts(stage: Stage, rounds: int) -> list[Figure]:
    """Drain under an enforced contract and without any, in turn, after one uncounted drain of each."""
    free, bound = stage.database(), stage.database()
    with psycopg.connect(bound, autocommit=True) as connection:
        add = "SELECT queue_message_contract_add(%s, %s, %s::jsonb, NULL, 'enforce')"
        connection.execute(add, [kinds.QUEUE, kinds.ROUTING_KEY, json.dumps(CONTRACT)])
    await stage.lay(kinds.PLAIN)
    async with stage.relays(free) as without, stage.relays(bound) as under:
        with psycopg.connect(bound, autocommit=True) as connection:
            connection.execute(BROKEN, [kinds.QUEUE, kinds.ROUTING_KEY])
            await counted(connection, FOUND, 1, "contract_violated")
        pairs = [(await _drained(stage, free, without), await _drained(stage, bound, under)) for _ in range(rounds + 1)]
    plain, checked = zip(*pairs[1:], strict=True)
    return [
        ratio("enforced contract : none", rates(checked), rates(plain)),
        figure(
            "enforced contract of two properties: relay's CPU of a message beyond none", "µs",
            [with_one.relay - none.relay for with_one, none in zip(checked, plain, strict=True)], most=15,
        ),
    ]  # fmt: skip


async def _drained(stage: Stage, url: str, relays: Sequence[RelayProcess]) -> Drain:
    tidy(url)
    one = await drain(stage, url, relays, kinds.PLAIN)
    await stage.purge()
    stage.say(f"contracts: {one.rate:,.0f}/s, relay {one.relay:.1f} µs of CPU")
    return one


async def measure_folds(stage: Stage, rounds: int) -> list[Figure]:
    """Rows with one kind of key, all due, folded by a relay 10,000 at a time."""
    figures = list[Figure]()
    await stage.lay(kinds.PLAIN)
    for key, (code, what) in FOLDS.items():
        found = [await folded(stage, key, code) for _ in range(rounds)]
        figures.append(figure(f"{key}: rows folded, {what}", "rows/s", [rate for rate, _ in found]))
        figures.append(figure(f"{key}: PostgreSQL's CPU of a row, its sending included", "µs", [used for _, used in found]))
    return figures


async def folded(stage: Stage, key: str, code: str) -> tuple[float, float]:
    """One round: rows a second, and the CPU of one."""
    url = stage.database()
    postmaster = stage.postgres.pid()
    async with stage.relays(url) as relays:
        with psycopg.connect(url, autocommit=True) as connection:
            with frozen(relays):
                connection.execute(INSERT.format(key=key).encode(), [kinds.QUEUE, kinds.ROUTING_KEY, KEYS, ROWS])
                tidy(url)
                before = cpu_of_all(postmaster)
            rows = ROWS if code == "bundled" else ROWS - KEYS
            await counted(connection, FOUND, rows, code)
            rate = value(connection, FOLDED_RATE, code)
            used = (cpu_of_all(postmaster) - before) / ROWS
    await stage.purge()
    stage.say(f"{key}: {rate:,.0f} rows/s, {used:.0f} µs of PostgreSQL's CPU each")
    return rate, used


def rates(drains: Sequence[Drain]) -> list[float]:
    """Messages a second."""
    return [one.rate for one in drains]
