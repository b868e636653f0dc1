"""What the numbers of windows, hours and days count, with expectations by hand, and that they add up however rows are cut."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.pipeline.metrics import aggregate
from relay.pipeline.metrics.histogram import BOUNDS_MS, BUCKETS, percentile
from tests.support.lake.rows import NOON, dead, row, table

TARGET_MS = 10
BOUND = {bound: number for number, bound in enumerate(BOUNDS_MS)}


def _count(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = aggregate.count(table(rows), target_ms=TARGET_MS).to_pylist()
    return found


def _histogram(**counts: int) -> list[int]:
    made = [0] * BUCKETS
    for bound, count in counts.items():
        made[BOUND[int(bound.removeprefix("ms"))]] = count
    return made


def test_a_window_by_hand() -> None:
    """Three that were published, one of each other result, and a second key: every column of both."""
    numbers = _count(
        row(1, wait=4, publish=1, confirm=3),
        row(2, wait=4, publish=2, confirm=90, at=NOON + timedelta(minutes=4, seconds=59)),
        row(3, wait=40, publish=0.5, confirm=3, attempts=3),
        dead(4, "nack", attempts=12),
        dead(5, "nack", attempts=12),
        dead(6, "too_large", result="rejected"),
        dead(7, "lock_expired", result="lock_expired", attempts=5),
        dead(8, "skipped", result="discarded", attempts=0, claimed_at=None),
        row(9, routing_key="bill"),
    )

    assert numbers[1] == {
        "start": NOON, "exchange": "shop", "routing_key": "order",
        "published": 3, "discarded": 1, "rejected": 1, "failed": 2, "lock_expired": 1, "attempts": 35,
        "codes": '{"lock_expired": 1, "nack": 2, "too_large": 1}',
        "wait": _histogram(ms5=6, ms50=1), "publish": _histogram(ms1=2, ms2=1), "confirm": _histogram(ms3=2, ms100=1),
        "within_target": 1, "target_ms": TARGET_MS,
    }  # fmt: skip
    assert ("bill", 1, 1, "{}") == tuple(numbers[0][name] for name in ("routing_key", "published", "attempts", "codes"))


def test_windows_begin_every_five_minutes_of_the_archive_clock() -> None:
    """The first microsecond belongs to the new window; years 1 and 9999 have windows too."""
    first, last = datetime(1, 1, 1, 0, 7, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    times = [NOON, NOON - timedelta(microseconds=1), first, last]

    assert [first.replace(minute=5), NOON - timedelta(minutes=5), NOON, last.replace(minute=55, second=0, microsecond=0)] == [
        one["start"] for one in _count(*(row(number, at=at) for number, at in enumerate(times)))
    ]


def test_a_delay_that_the_application_asked_for_is_no_wait() -> None:
    """Wait and target are measured from available_at where it is later than the message."""
    later, earlier = NOON - timedelta(milliseconds=9), NOON - timedelta(days=9)
    [one] = _count(row(1, wait=3_600_000, available_at=later), row(2, available_at=earlier))

    assert (2, _histogram(ms5=2)) == (one["within_target"], one["wait"])


def test_retries_do_not_make_a_message_look_fast() -> None:
    """A retry moves available_at; the target is measured from the creation then, the wait from when it was due last."""
    at = NOON - timedelta(milliseconds=9)
    [one] = _count(row(wait=3_600_000, available_at=at, attempts=2))

    assert (0, _histogram(ms5=1)) == (one["within_target"], one["wait"])


@pytest.mark.parametrize(("confirm", "within"), [(5, 1), (5.001, 0)])
def test_the_target_is_met_to_the_microsecond(confirm: float, within: int) -> None:
    """4 ms wait, 1 ms publish and 5 ms confirm are within 10 ms; a microsecond more is not."""
    assert [within] == [one["within_target"] for one in _count(row(confirm=confirm))]


def test_names_are_told_apart_by_their_bytes() -> None:
    """Hostile names are names: the default exchange, quotes, tabs, backslashes, emoji, and what only looks the same."""
    names = ["", "a", "A", "é", "e\u0301", "\\.", 'a"b', "a\tb\nc", "🐘", "x" * 300]

    found = _count(*(row(number, exchange=name, routing_key=name) for number, name in enumerate(names)))

    assert sorted(names) == sorted(one["exchange"] for one in found)
    assert all(one["exchange"] == one["routing_key"] for one in found)


def test_codes_are_counted_whatever_they_are_called() -> None:
    """A code that no relay of today writes, one that looks like JSON, and none."""
    [one] = _count(dead(1, 'a"}'), dead(2, 'a"}'), dead(3, None), dead(4, "ü"))

    assert {'a"}': 2, "": 1, "ü": 1} == json.loads(one["codes"])


@pytest.mark.parametrize("seed", range(5))
def test_very_many_codes_are_added_up_in_little_room(seed: int) -> None:
    """Programs choose codes: each row names the most frequent ones and counts the others together, however its parts were merged."""
    chance = random.Random(seed)
    codes = ["often", *(f"code_{number}" for number in range(700)), *(f"\x01{number:062}" for number in range(700))]
    rows = [dead(number, "often" if number % 3 else chance.choice(codes), at=NOON + timedelta(seconds=number)) for number in range(3000)]
    parts = [aggregate.count(table(rows[start::7]), target_ms=TARGET_MS) for start in range(7)]
    chance.shuffle(parts)

    numbers = aggregate.merge(pa.concat_tables([aggregate.add_up(parts[:3]), aggregate.add_up(parts[3:])]), seconds=aggregate.HOUR_SECONDS)

    [hour] = numbers.to_pylist()
    named = json.loads(hour["codes"])
    assert 3000 == sum(named.values())
    assert aggregate.CODES + 1 == len(named)
    assert sum(one["error_code"] == "often" for one in rows) == named["often"] == max(named.values())
    assert aggregate.OTHER in named


def test_a_percentile_is_within_a_bucket_of_the_exact_one() -> None:
    """Over a thousand waits of every size, merged from many windows."""
    waits = np.random.default_rng(7).lognormal(4, 2, 1000)
    rows = table(row(number, wait=round(wait, 3), at=NOON + timedelta(seconds=number)) for number, wait in enumerate(waits))
    [day] = aggregate.merge(aggregate.count(rows, target_ms=TARGET_MS), seconds=aggregate.DAY_SECONDS).to_pylist()

    for share in (0.5, 0.95, 0.99):
        exact = float(np.quantile(waits, share, method="inverted_cdf"))
        found = percentile(day["wait"], share)
        upper = next(bound for bound in BOUNDS_MS if exact <= bound)
        lower = max((bound for bound in BOUNDS_MS if bound < exact), default=0)
        assert found is not None
        assert abs(found - exact) < upper - lower


def test_hours_and_days_add_up_to_their_windows() -> None:
    """Each sum of every roll-up is that of its windows, by name; a day's histogram is the sum of its hours'."""
    rows = [
        row(number, at=NOON + timedelta(minutes=7 * number), routing_key=f"key {number % 3}", confirm=number, attempts=number % 4)
        for number in range(300)
    ]
    windows = aggregate.count(table([*rows, dead(300, "nack"), dead(301, "nack", result="rejected")]), target_ms=100)
    hours = aggregate.merge(windows, seconds=aggregate.HOUR_SECONDS)
    days = aggregate.merge(windows, seconds=aggregate.DAY_SECONDS)

    assert days.equals(aggregate.merge(hours, seconds=aggregate.DAY_SECONDS))
    assert {0} == {one.minute + one.second for one in hours["start"].to_pylist()}
    assert [2, 3] == sorted({one.day for one in days["start"].to_pylist()})
    for name in aggregate.SUMS:
        assert np.sum(windows[name].to_numpy()) == np.sum(hours[name].to_numpy()) == np.sum(days[name].to_numpy())
    assert sum(aggregate.messages(days).to_pylist()) == 302
    assert ['{"nack": 2}'] == [one for one in days["codes"].to_pylist() if one != "{}"]


def test_codes_add_up_by_name() -> None:
    """Three windows of one hour, with codes that are the same and others."""
    rows = [dead(number, code, at=NOON + timedelta(minutes=5 * number)) for number, code in enumerate(["nack", "too_large", "nack"])]
    [hour] = aggregate.merge(aggregate.count(table(rows), target_ms=TARGET_MS), seconds=aggregate.HOUR_SECONDS).to_pylist()

    assert {"nack": 2, "too_large": 1} == json.loads(hour["codes"])


ROWS = st.lists(
    st.builds(
        lambda minutes, names, latency, attempts, delayed, fate: (
            row(
                at=NOON + timedelta(minutes=minutes), exchange=names[0], routing_key=names[1], wait=latency, confirm=latency / 2,
                attempts=attempts, available_at=NOON if delayed else None,
            )
            | ({} if fate is None else {"result": fate[0], "error_code": fate[1], "confirmed_at": None})
        ),
        st.sampled_from([-1441, -61, -6, 0, 1, 6, 61]),
        st.tuples(st.sampled_from(["", "shop", "\\N"]), st.sampled_from(["a", "b", "", "ö"])),
        st.floats(0, 1e8),
        st.integers(0, 12),
        st.booleans(),
        st.none() | st.tuples(st.sampled_from(["failed", "rejected", "lock_expired", "discarded"]), st.sampled_from(["nack", "x", None])),
    ),
    max_size=40,
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=ROWS, cuts=st.lists(st.integers(0, 40)), mix=st.randoms())
def test_any_cut_of_rows_into_batches_gives_the_same_numbers(rows: list[dict[str, Any]], cuts: list[int], mix: Any) -> None:
    """Rows in any order, counted in any batches, merged in any order and in steps, are what they are at once."""
    whole = aggregate.count(table(rows), target_ms=TARGET_MS)
    mixed = mix.sample(rows, len(rows))
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [aggregate.count(table(mixed[low:high]), target_ms=TARGET_MS) for low, high in pairwise(edges)]
    mix.shuffle(parts)
    half = len(parts) // 2
    steps = [aggregate.merge(pa.concat_tables([aggregate.empty(), *some])) for some in (parts[:half], parts[half:])]

    assert whole.equals(aggregate.merge(pa.concat_tables(steps)))
    assert len(rows) == sum(aggregate.messages(whole).to_pylist())
    assert aggregate.merge(whole, seconds=aggregate.DAY_SECONDS).equals(
        aggregate.merge(
            pa.concat_tables([aggregate.merge(step, seconds=aggregate.HOUR_SECONDS) for step in steps]), seconds=aggregate.DAY_SECONDS
        )
    )
