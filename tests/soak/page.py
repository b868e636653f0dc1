"""Writes `docs/soak.md` and `docs/soak.svg` from what a soak has seen."""

from __future__ import annotations

import json
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.soak.plot import Panel, drawn
from tests.soak.verdict import LIFE, LIMITS, SHORTEST, Judged, Limit, Line, is_long, judged

PAGE, PLOT = ROOT / "docs" / "soak.md", ROOT / "docs" / "soak.svg"
INTRODUCTION = """\
# The soak

For operators.

The soak runs two relays under a steady load, with a random fault each minute. Relays are killed, stopped and frozen, and servers are
killed and restarted. Connections are reset or closed, or lose answers or all data. RabbitMQ runs out of memory, and an exchange is paused.
One relay, the survivor, is never killed, so its memory can be measured over the whole time. At the end the records of producers, consumer
and archive are joined by id as in [faults](faults.md), and no line of the plot may rise.

```sh
make soak HOURS=2                                           # private servers; Ctrl-C ends it with a verdict so far
.venv/bin/python -m tests.soak --page build/soak.jsonl      # writes this page
```
"""
SHOWN = ("committed", "delivered", "dead", "waiting", "rolled_back", "lost", "phantom", "order_breaks", "duplicates", "in_flight")


def write(path: Path) -> None:
    """Write the page and its plot."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    PAGE.write_text(page(lines), encoding="utf-8")
    PLOT.write_text(plot(lines), encoding="utf-8")


def page(lines: Sequence[Line]) -> str:
    """The page as Markdown."""
    [begin], samples, faults = _of(lines, "begin"), _of(lines, "sample"), _of(lines, "fault")
    parts = [INTRODUCTION, _verdict(lines), _about(begin, samples, faults)]
    parts += ["## Messages\n", *(_messages(ledger["report"]) for ledger in _of(lines, "ledger"))]
    parts += ["## Lines\n", _lines(lines), "![Lines over time, with a tick at each fault](soak.svg)\n"]
    parts += ["## Faults\n", *(_faults(faults, ledger["repeats"]) for ledger in _of(lines, "ledger"))]
    return "\n".join(parts)


def plot(lines: Sequence[Line]) -> str:
    """Every line that there is a limit for, over the whole time, and the rate."""
    samples = _of(lines, "sample")
    panels = [Panel("messages delivered a second", [[*_rates(samples)]])]
    panels += [Panel(_title(limit), [_points(limit, samples)]) for limit in LIMITS]
    panels.insert(4, Panel(_title(LIFE), [_points(LIFE, [*life]) for _, life in groupby(samples, lambda each: each.get("victim_life"))]))
    panels.append(Panel("shared buffers a claim", [[(each["at"], each["claim_buffers"]) for each in samples if "claim_buffers" in each]]))
    seen = [panel for panel in panels if any(panel.pieces)]
    return drawn(seen, [fault["at"] for fault in _of(lines, "fault")], max(sample["at"] for sample in samples))


def _of(lines: Sequence[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["kind"] == kind]


def _verdict(lines: Sequence[Line]) -> str:
    [verdict] = _of(lines, "verdict") or [{"passed": False, "mismatches": ["The run ended before its verdict."]}]
    if verdict["passed"]:
        return "**Passed:** nothing was lost, invented, or out of order; a fault explains each duplicate" + (
            ", and no line rises.\n" if is_long(lines) else f"; slopes are judged in runs of {SHORTEST / 60:g} minutes or more.\n"
        )
    return "**Not passed:**\n\n" + "\n".join(f"- {sentence}" for sentence in verdict["mismatches"]) + "\n"


def _about(begin: Line, samples: Sequence[Line], faults: Sequence[Line]) -> str:
    plan, loads = begin["plan"], [sample["machine_load"] for sample in samples if "machine_load" in sample]
    versions = ", ".join(f"{name} {version}" for name, version in begin["versions"].items())
    wanted = f"of {plan['seconds'] / 60:.0f} that were asked for; begun {begin['started']}"
    played = f"{samples[-1]['at'] / 60:.0f} minutes, {wanted}" if samples else "nothing"
    rows = [
        ("played", played),
        ("load", f"{plan['rate']:g} messages a second, as far as the machine and the faults let them through"),
        ("faults", f"{len(faults)}, of {len(begin['faults'])} kinds, in random order, each once before a repeat; seed {plan['seed']}"),
        ("machine", f"{begin['machine']}; load average {min(loads):.1f} to {max(loads):.1f}" if loads else begin["machine"]),
        ("versions", f"{versions}, Python {begin['python']}, commit {begin['commit']}"),
        ("harness", f"at most {max(sample['harness_rss'] for sample in samples) / 1e6:.0f} MB of memory" if samples else ""),
    ]
    return _table(("", ""), rows)


def _messages(report: dict[str, Any]) -> str:
    names = [name.replace("_", " ") for name in SHOWN]
    note = (
        "The dead messages are bad messages, one in a hundred, that were inserted on purpose. The column `in flight` counts the"
        " messages that may arrive twice because of the faults, at the most. If a relay died or was stopped, they are counted by id."
        " Otherwise the number is an upper bound: the windows of both relays.\n"
    )
    return _table(names, [[f"{report[name]:,}" for name in SHOWN]]) + "\n" + note


def _lines(lines: Sequence[Line]) -> str:
    heads = ("line", "median", "highest", "rises an hour by", "allowed", "", "why")
    body = [_row(one, long=is_long(lines)) for one in judged(lines)]
    note = (
        "The slopes are Theil-Sen slopes over the second half. Samples during a fault, and until its backlog was gone, are left out. A line"
        " rises if the lower end of the slope's 95 % interval is above the allowed slope. The cost of a claim is compared between samples"
        " with similar numbers of messages in a claim, or similar times of the control statement: an UPDATE of one row of another table.\n"
    )
    return note + _cost(_of(lines, "sample")) + "\n" + _table(heads, body)


def _cost(samples: Sequence[Line]) -> str:
    """What a claim takes, in the median."""
    told = [sample for sample in samples if sample["calm"] and {"claim_buffers", "claim_rows", "claim_p50"} <= sample.keys()]
    if not told:
        return ""
    buffers, rows, p50, p99, control = (
        statistics.median(sample[name] for sample in told)
        for name in ("claim_buffers", "claim_rows", "claim_p50", "claim_p99", "control_p50")
    )
    times = f"the median claim takes {1000 * p50:.0f} ms, the 99th percentile {1000 * p99:.0f} ms"
    read = f"In the median of all samples a claim reads {buffers:.0f} shared buffers for {rows:.1f} messages"
    return f"{read}; {times}, and the median control statement {1000 * control:.0f} ms.\n"


def _row(one: Judged, *, long: bool) -> tuple[str, ...]:
    unit = f" {one.limit.unit}".rstrip()
    figures = [f"{_figure(value)}{unit}" if value is not None else "" for value in (one.median, one.highest, one.slope, one.allowed)]
    word = "not judged" if not long or one.slope is None else "RISES" if one.rises else "flat"
    return one.limit.title, *figures, word, one.limit.reason


def _faults(faults: Sequence[Line], repeats: Sequence[float]) -> str:
    """One row for each kind; what came twice counts with the last fault before."""
    begins = [fault["wall"] for fault in faults]
    after = Counter(bisect_right(begins, at) - 1 for at in repeats)
    rows = []
    for name in sorted({fault["name"] for fault in faults}):
        played = [(place, fault) for place, fault in enumerate(faults) if fault["name"] == name]
        recovered = [fault["recovered"] for _, fault in played]
        spread = f"{statistics.median(recovered):.1f} s, at most {max(recovered):.1f} s"
        longest = f"{max(fault['lasted'] for _, fault in played):.0f} s"
        doubles = sum(after[place] for place, _ in played)
        rows.append((name, str(len(played)), longest, spread, f"{sum(fault['in_flight'] for _, fault in played):,}", f"{doubles:,}"))
    heads = ("fault", "times", "longest", "from its end until no due message waited", "in flight", "duplicates after it")
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, ["---"] * len(heads), *rows))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _title(limit: Limit) -> str:
    return f"{limit.title}, {limit.unit}" if limit.unit else limit.title


def _points(limit: Limit, samples: Sequence[Line]) -> list[tuple[float, float]]:
    """What a claim costs while something is broken would leave no room to see what it costs else."""
    told = [sample for sample in samples if sample.get(limit.name) is not None and (sample["calm"] or not limit.like)]
    return [(sample["at"], sample[limit.name] / limit.scale) for sample in told]


def _rates(samples: Sequence[Line]) -> Iterator[tuple[float, float]]:
    for before, now in pairwise(samples):
        yield now["at"], (now["delivered"] - before["delivered"]) / (now["at"] - before["at"])
