"""The soak's verdict: lines that rise are found, flat ones are not, however noisy; and ledgers in shards are one ledger."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from inspect import getdoc
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from relay.demo import ledger
from tests.soak import page as pages
from tests.soak.faults import FAULTS
from tests.soak.samples import connections_to, quantile_of_buckets
from tests.soak.shards import DIGITS, Noted, join, repeats
from tests.soak.slopes import slope
from tests.soak.verdict import LIFE, LIMITS, SHORTEST, Line, is_long, judged, mismatches

HOURS = 2 * 3600.0
Shape = Callable[[float, random.Random], float]


def seen(field: str, shape: Shape, *, seconds: float = HOURS, life: Callable[[float], int] = lambda at: 1) -> list[Line]:
    """A sound run in which one field has this shape."""
    chance = random.Random(1)
    times = [30.0 * number for number in range(1, int(seconds / 30) + 1)]
    samples = [
        {"kind": "sample", "calm": True, "at": at, "victim_life": life(at), "delivered": 200 * at, field: shape(at, chance)} for at in times
    ]
    return [*samples, {"kind": "ledger", "problems": []}]


def least_of(field: str) -> float:
    """What a field may rise in an hour where its level is low."""
    [limit] = [limit for limit in LIMITS if limit.name == field]
    return limit.least * limit.scale


@pytest.mark.parametrize("field", [limit.name for limit in LIMITS])
def test_a_rising_line_is_found(field: str) -> None:
    """Thrice what is allowed, under some noise, is found and named."""
    least = least_of(field)
    [sentence] = mismatches(seen(field, lambda at, chance: least * (1 + 3 * at / 3600 + 0.2 * chance.gauss(0, 1))))
    assert "rises by" in sentence


@pytest.mark.parametrize("field", [limit.name for limit in LIMITS])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5])
def test_a_flat_line_is_not(field: str, noise: float) -> None:
    """Nor is one that jumps about by half of its value, with an outlier of a hundred times."""
    level = 20 * least_of(field)
    lines = seen(field, lambda at, chance: 100 * level if at == 6000 else level * (1 + noise * chance.uniform(-1, 1)))
    assert [] == mismatches(lines)


def test_what_rises_in_the_first_half_alone_is_warming_up() -> None:
    """A line that has found its level by the middle is flat."""
    assert [] == mismatches(seen("survivor_rss", lambda at, chance: 50e6 + 20e6 * min(1, at / 3000)))


def test_samples_of_a_fault_count_for_nothing() -> None:
    """A line that rises while something is broken is flat if it does not where nothing is."""
    lines = seen("table_bytes", lambda at, chance: 1e6 + (1e5 * at if at % 60 else 0))
    for line in lines[:-1]:
        line["calm"] = line["at"] % 60 == 0
    assert [] == mismatches(lines)


def test_the_cost_of_a_claim_is_compared_between_like_samples() -> None:
    """Claims that find more messages cost less for each; a machine that gets quieter is no rise, and one that is as it was is judged."""
    quiet: Shape = lambda at, chance: 9.0 if at < 4800 else 13.0 if at < 6000 else 30.0  # noqa: E731 - a shape like the others
    lines = seen("row_buffers", quiet)
    for line in lines[:-1]:
        line["claim_rows"] = {9.0: 15.0, 13.0: 6.0, 30.0: 2.0}[line["row_buffers"]]
    assert [] == mismatches(lines)
    for line in lines[:-1]:
        line["claim_rows"] = 15.0
    assert 1 == len(mismatches(lines))


def test_a_short_run_is_not_judged_by_slopes() -> None:
    """Below ten minutes everything warms up; the ledger counts all the same."""
    lines = seen("survivor_rss", lambda at, chance: 1e6 * at, seconds=SHORTEST - 30)
    assert not is_long(lines)
    assert [] == mismatches(lines)
    assert ["lost"] == mismatches([*lines[:-1], {"kind": "ledger", "problems": ["lost"]}])
    assert [] != mismatches(lines[:-1])


def test_memory_of_a_relay_that_is_killed_is_told_by_its_lives() -> None:
    """Each long life is judged by itself: a small start does not hide that it grows, and short lives are left out."""
    grows: Shape = lambda at, chance: 50e6 + 30e3 * (at % 1800)  # noqa: E731 - a shape like the others
    lines = seen(LIFE.name, grows, life=lambda at: int(at // 1800))
    assert 4 == len([one for one in judged(lines) if one.limit is LIFE and one.rises])
    assert [] == [one for one in judged(seen(LIFE.name, grows, life=lambda at: int(at // 600))) if one.limit is LIFE]


def test_a_slope_needs_points() -> None:
    """Few points say nothing; many on a line say exactly that."""
    assert slope([(float(x), float(x)) for x in range(7)]) is None
    assert (2.0, 2.0) == slope([(float(x), 2.0 * x) for x in range(20)])


def shard(folder: Path, digit: str, *, deliveries: int = 1, archived: bool = True) -> None:
    """One shard with one message of its own."""
    (folder / digit).mkdir()
    id_ = f"{digit}-message"
    sent: list[Line] = [
        {"transaction": "t", "phase": "before", "messages": [{"id": id_, "expect": "success"}]},
        {"transaction": "t", "phase": "committed"},
    ]
    files: dict[str, list[Line]] = {
        ledger.PRODUCER: sent,
        ledger.CONSUMER: [{"id": id_, "at": 10.0 + number} for number in range(deliveries)],
        ledger.ARCHIVE: [{"id": id_, "result": "success", "error_code": None, "archived_at": 20.0}] * archived,
        ledger.QUEUE: [],
    }
    for name, found in files.items():
        (folder / digit / name).write_text("".join(json.dumps(line) + "\n" for line in found))


def test_shards_add_up(tmp_path: Path) -> None:
    """Sixteen ledgers are one: what is lost in one of them is lost, and a fault counts once."""
    for digit in DIGITS:
        shard(tmp_path, digit, deliveries={"3": 0, "4": 3}.get(digit, 1), archived=digit != "3")
    report = join(tmp_path, [Noted(9.0, ["4-message", "5-message"]), Noted(10.0, 400)])
    assert (16, 15, ("3-message",), 2) == (report.committed, report.delivered, report.lost, report.duplicates)
    assert (2, 402) == (report.faults, report.in_flight)
    assert [11.0, 12.0] == [*repeats(tmp_path)]


def test_a_duplicate_that_no_fault_explains_is_told(tmp_path: Path) -> None:
    """Where all that was in flight is known by id, what came twice must be among it; where it is not, their number counts."""
    for digit in DIGITS:
        shard(tmp_path, digit, deliveries=2 if digit == "4" else 1)
    assert ("4-message",) == join(tmp_path, [Noted(9.0, ["5-message"])]).unexplained
    assert [] == join(tmp_path, [Noted(9.0, 1)]).mismatches()
    assert [] != join(tmp_path, [Noted(9.0, 0)]).mismatches()


def test_every_fault_says_what_it_is() -> None:
    """The menu is the functions of its module, each with a sentence."""
    assert {"relay killed", "rabbitmq swallows everything", "exchange paused"} <= FAULTS.keys()
    assert {"until", "postgres back"}.isdisjoint(FAULTS)
    assert all(getdoc(fault) for fault in FAULTS.values())


def test_quantiles_of_buckets() -> None:
    """As if each bucket were filled evenly; beyond the last bound nothing is known but the bound."""
    assert 1.5 == quantile_of_buckets({1.0: 10, 2.0: 20, float("inf"): 20}, 0.75)
    assert 2.0 == quantile_of_buckets({1.0: 10, 2.0: 20, float("inf"): 40}, 0.99)
    assert quantile_of_buckets({1.0: 0, float("inf"): 0}, 0.5) is None


def test_connections_are_those_that_stand() -> None:
    """Only established ones of the server's own side count."""
    table = ["0: 0100007F:1388 0100007F:D431 01", "1: 0100007F:D431 0100007F:1388 01", "2: 0100007F:1388 0100007F:D432 06"]
    assert 1 == connections_to(5000, table)


def test_a_page_is_written_of_what_was_seen() -> None:
    """Figures, verdict, faults with their duplicates, and a plot that is XML."""
    report = dict.fromkeys(pages.SHOWN, 0) | {"committed": 1234}
    begin = {
        "kind": "begin",
        "plan": {"seed": 7, "seconds": HOURS, "rate": 200},
        "faults": ["relay killed"],
        "versions": {"PostgreSQL": "15"},
    }
    about = dict.fromkeys(("machine", "python", "commit", "started"), "told")
    fault = {"kind": "fault", "name": "relay killed", "at": 70.0, "wall": 1000.0, "lasted": 2.0, "recovered": 1.0, "in_flight": 17}
    samples = seen("survivor_rss", lambda at, chance: 5e7)[:-1]
    for sample in samples:
        sample |= {"harness_rss": 9e7, "claim_buffers": 30.0, "claim_rows": 3.0, "claim_p50": 0.02, "claim_p99": 0.05, "control_p50": 0.004}
    lines: list[Line] = [begin | about, fault, *samples, {"kind": "ledger", "problems": [], "report": report, "repeats": [1001.0]}]
    text = pages.page([*lines, {"kind": "verdict", "passed": True, "mismatches": []}])
    assert all(
        part in text
        for part in (
            "**Passed:**",
            "1,234",
            "seed 7",
            "30 shared buffers for 3.0 messages",
            "| relay killed | 1 | 2 s | 1.0 s, at most 1.0 s | 17 | 1 |",
        )
    )
    assert "- it rises" in pages.page([*lines, {"kind": "verdict", "passed": False, "mismatches": ["it rises"]}])
    assert "svg" in ET.fromstring(pages.plot(lines)).tag  # noqa: S314 - made here
