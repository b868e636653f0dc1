"""When schedules are due, in every kind of time zone and on the nights when clocks are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.schedules.ticks import NIGHTS, Rule, rules

MOST = 150
"""Ticks of one example that are compared."""
SPAN = timedelta(days=3)
FOUND = """
WITH RECURSIVE tick AS (
    SELECT queue_message_next_tick(%(spec)s, %(zone)s, %(after)s) AS at
    UNION ALL SELECT queue_message_next_tick(%(spec)s, %(zone)s, at) FROM tick WHERE at <= %(until)s
) SELECT at FROM tick WHERE at <= %(until)s LIMIT %(most)s
"""
Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(database_url: str) -> Any:
    """This test's database."""
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


def moment(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def ticks(connection: Connection, spec: str, zone: str, after: datetime, until: datetime, most: int = MOST) -> list[datetime]:
    """Each tick in a time, the next one asked for from the last."""
    values = {"spec": spec, "zone": zone, "after": after, "until": until, "most": most}
    return [at.astimezone(UTC) for (at,) in connection.execute(FOUND, values)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rule=rules(), night=st.sampled_from(NIGHTS), minutes=st.integers(-2 * 1440, 60))
def test_ticks_are_those_that_a_clock_shows(connection: Connection, rule: Rule, night: tuple[str, str], minutes: int) -> None:
    """As one finds them who looks at the zone's clock once a minute, around the night when it is set."""
    zone, at = night
    after = moment(at) + timedelta(minutes=minutes)
    until = after + SPAN

    expected = list(islice(rule.ticks(zone, after, until), MOST))
    assert expected == ticks(connection, rule.spec, zone, after, until)


@pytest.mark.parametrize(
    ("spec", "zone", "after", "expected"),
    [
        # 02:30 is left out: it comes when the clocks have been set, and the next day as ever.
        ("30 2 * * *", "Europe/Berlin", "2024-03-30T12:00Z", ["2024-03-31T01:00Z", "2024-04-01T00:30Z"]),
        # 02:30 comes twice, and the schedule once.
        ("30 2 * * *", "Europe/Berlin", "2024-10-26T12:00Z", ["2024-10-27T00:30Z", "2024-10-28T01:30Z"]),
        ("*/30 * * * *", "Europe/Berlin", "2024-10-26T23:40Z",
         ["2024-10-27T00:00Z", "2024-10-27T00:30Z", "2024-10-27T01:00Z", "2024-10-27T01:30Z", "2024-10-27T02:00Z"]),
        ("*/30 * * * *", "Europe/Berlin", "2024-03-31T00:10Z", ["2024-03-31T00:30Z", "2024-03-31T01:00Z", "2024-03-31T01:30Z"]),
        # Nothing for 02:20, which no time passes by.
        ("20 * * * *", "Europe/Berlin", "2024-03-31T00:10Z", ["2024-03-31T00:20Z", "2024-03-31T01:20Z"]),
        # At one past midnight it is one past eleven again, of the day before: that day comes twice, between two times of the next.
        ("*/30 * * * *", "America/St_Johns", "2006-10-29T02:25Z", ["2006-10-29T02:30Z", "2006-10-29T03:00Z", "2006-10-29T03:30Z"]),
        # The whole day is left out.
        ("0 9 30 * *", "Pacific/Apia", "2011-12-01T00:00Z", ["2011-12-30T10:00Z", "2012-01-29T19:00Z"]),
        # Either day, as both are given; both, where one of them begins with a star.
        ("0 0 13 * fri", "UTC", "2024-09-05T12:00Z", ["2024-09-06T00:00Z", "2024-09-13T00:00Z", "2024-09-20T00:00Z"]),
        ("0 0 */13 * 5", "UTC", "2024-09-05T12:00Z", ["2024-09-27T00:00Z", "2024-11-01T00:00Z"]),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00Z", ["2104-02-29T00:00Z", "2108-02-29T00:00Z"]),
        # The longest that anything has to be waited for.
        ("0 0 29 2 */7", "UTC", "2088-03-01T00:00Z", ["2128-02-29T00:00Z"]),
        ("  @WEEKLY ", "UTC", "2024-09-05T12:00Z", ["2024-09-08T00:00Z"]),
        ("0 0 1 JAN,Jul *", "UTC", "2024-09-05T12:00Z", ["2025-01-01T00:00Z", "2025-07-01T00:00Z"]),
        ("EVERY 1d 12h", "Europe/Berlin", "2024-03-30T00:00Z", ["2024-03-31T12:00Z", "2024-04-02T00:00Z"]),
        ("every 90 Seconds", "UTC", "1970-01-01T00:00:10Z", ["1970-01-01T00:01:30Z", "1970-01-01T00:03:00Z"]),
    ],
)  # fmt: skip
def test_ticks_of_a_night_are_those_of_the_page(connection: Connection, spec: str, zone: str, after: str, expected: list[str]) -> None:
    """By hand, as docs/schedules.md has them."""
    wanted = [moment(text) for text in expected]

    assert wanted == ticks(connection, spec, zone, moment(after), wanted[-1])


def test_a_length_counts_from_its_anchor(connection: Connection) -> None:
    """Late runs do not move what comes after them, and nothing is due before the first time has passed."""
    found = "SELECT queue_message_next_tick('EVERY 10 minutes', 'UTC', %s, '2024-01-01T00:03:07.5Z')"
    for after, expected in (
        ("2023-01-01T00:00:00Z", "2024-01-01T00:13:07Z"),
        ("2024-01-01T00:13:06Z", "2024-01-01T00:13:07Z"),
        ("2024-01-01T00:13:07Z", "2024-01-01T00:23:07Z"),
        ("2024-01-01T03:29:59Z", "2024-01-01T03:33:07Z"),
    ):
        row = connection.execute(found, [after]).fetchone()
        assert row is not None
        assert moment(expected) == row[0]


ONE_BY_ONE = 2000
"""Ticks that are looked for one by one."""


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rule=rules(), night=st.sampled_from(NIGHTS), minutes=st.integers(1, 5 * 1440), seconds=st.integers(0, 59))
def test_the_last_tick_is_found_without_those_between(
    connection: Connection, rule: Rule, night: tuple[str, str], minutes: int, seconds: int
) -> None:
    """After an outage, from the tick that was due first."""
    zone, at = night
    until = moment(at) + timedelta(minutes=minutes, seconds=seconds) - timedelta(days=2)
    all_of_them = ticks(connection, rule.spec, zone, moment(at) - timedelta(days=2), until, ONE_BY_ONE)
    if not 0 < len(all_of_them) < ONE_BY_ONE:
        return

    found = connection.execute("SELECT queue_message_last_tick(%s, %s, %s, %s, now())", [rule.spec, zone, all_of_them[0], until]).fetchone()
    assert (all_of_them[-1],) == found


@pytest.mark.parametrize("spec", ["* * * * *", "0 3 * * *", "*/7 1-5 * * 1-5", "0 0 29 2 */7", "0 0 30 2 *"])
def test_a_tick_is_found_fast(connection: Connection, spec: str) -> None:
    """Also what comes once in forty years, or never: by days, not by minutes."""
    connection.execute("SET statement_timeout = '20s'")
    for zone in ("UTC", "Europe/Berlin"):
        connection.execute(
            "SELECT queue_message_next_tick(%s, %s, '2088-03-01'::timestamptz + n * interval '1 hour') FROM generate_series(1, 300) AS n",
            [spec, zone],
        )
