"""Latencies in buckets: where each belongs, and percentiles that are right within a bucket's width, in Python and in PostgreSQL."""

from __future__ import annotations

import math

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.pipeline.metrics import histogram
from relay.pipeline.metrics.histogram import BOUNDS_MS, BUCKETS, bucket_of, percentile

MICROSECONDS = st.integers(0, 100_000_000_000)
SHARES = (0.0, 0.01, 0.5, 0.95, 0.99, 1.0)


def _buckets(microseconds: list[int]) -> list[int]:
    return [int(count) for count in np.bincount(bucket_of(np.array(microseconds, dtype=np.int64)), minlength=BUCKETS)]


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    """1 ms is in the first bucket, a microsecond more in the second; more than a day is in the last, less than nothing in the first."""
    latencies = np.array([-5, 0, 1000, 1001, 2000, 86_400_000_000, 86_400_000_001])

    assert [0, 0, 0, 1, 1, BUCKETS - 2, BUCKETS - 1] == bucket_of(latencies).tolist()


def test_percentiles_of_a_few_by_hand() -> None:
    """Ten between 10 and 15 ms and ten between 100 and 150: the middle is the upper end of the lower ones."""
    buckets = [0] * BUCKETS
    buckets[BOUNDS_MS.index(15)] = 10
    buckets[BOUNDS_MS.index(150)] = 10

    assert [10.5, 15.0, 105.0, 150.0] == [percentile(buckets, share) for share in (0, 0.5, 0.51, 1)]
    assert percentile([0] * BUCKETS, 0.5) is None
    assert BOUNDS_MS[-1] == percentile([0] * (BUCKETS - 1) + [3], 0.5)


@given(st.lists(MICROSECONDS, min_size=1, max_size=200), st.floats(0, 1))
def test_a_percentile_is_wrong_by_less_than_its_bucket(latencies: list[int], share: float) -> None:
    """It lies in the bucket of the exact one, which is that of the nearest rank."""
    rank = max(math.ceil(share * len(latencies)), 1)
    exact = sorted(latencies)[rank - 1]
    found = percentile(_buckets(latencies), share)

    number = int(bucket_of(np.array([exact]))[0])
    assert found is not None
    assert (BOUNDS_MS[number - 1] if number else 0) <= found <= (BOUNDS_MS[number] if number < len(BOUNDS_MS) else BOUNDS_MS[-1])


def test_postgresql_has_the_same_bounds(database_url: str) -> None:
    """The list in SQL is the list in Python."""
    with psycopg.connect(database_url) as connection:
        assert (list(BOUNDS_MS),) == connection.execute("SELECT queue_message_bucket_bounds()").fetchone()


def test_postgresql_says_the_same_percentiles(database_url: str) -> None:
    """For empty, full, sparse, open and random histograms; and for several rows at once by their sum."""
    random = np.random.default_rng(4)
    made = [[0] * BUCKETS, [1] * BUCKETS, [0] * (BUCKETS - 1) + [7], *random.integers(0, 1000, (20, BUCKETS)).tolist()]
    with psycopg.connect(database_url) as connection:
        for buckets in made:
            for share in SHARES:
                row = connection.execute("SELECT queue_message_percentile(%s, %s)", (buckets, share)).fetchone()
                assert row is not None
                assert percentile(buckets, share) == (row[0] if row[0] is None else pytest.approx(row[0]))
        summed = f"""SELECT queue_message_buckets_sum(b) FROM (
            SELECT array_agg(n ORDER BY place) AS b FROM unnest(%s::bigint[][]) WITH ORDINALITY AS cell (n, place)
            GROUP BY (place - 1) / {BUCKETS}) AS one"""
        assert (np.sum(made, axis=0).tolist(),) == connection.execute(summed.encode(), (made,)).fetchone()
        assert (None,) == connection.execute("SELECT queue_message_percentile(NULL, 0.5)").fetchone()


def test_bounds_rise() -> None:
    """Each bound is above the one before, or counts would land in buckets that cannot be."""
    assert sorted(set(histogram.BOUNDS_MS)) == list(histogram.BOUNDS_MS)
