"""The sentences and single numbers of a report: the verdict on top, the cards, and the facts about the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from relay.pipeline.lake.assessment import Kind, judge
from relay.pipeline.report.model import Figures, Inventory, Report
from relay.pipeline.report.text import (
    NOTHING,
    change,
    length,
    milliseconds,
    number,
    plural,
    points,
    rate,
    seconds,
    share,
    shown,
    size,
    when,
)

State = Literal["good", "warn", "bad", "plain"]
NAMED = 5
"""How many differing partitions are named with their difference."""
LATE_SECONDS = 3600
"""An export lag above this is a warning."""


class Card(NamedTuple):
    """One number."""

    title: str
    value: str
    words: str
    state: State = "plain"
    change: str = ""
    """How the number has changed since the span before."""


class Fact(NamedTuple):
    """One sentence about the data."""

    words: str
    state: State = "plain"


class Empty(NamedTuple):
    """Why the report has no numbers, and what to do."""

    title: str
    words: str


def state(report: Report) -> State:
    """The worst state in the report: unacknowledged dead messages and stale numbers are a warning, a differing partition is bad."""
    states = {fact.state for fact in facts(report)} | {"warn" if report.unacknowledged.total else "good"}
    return "bad" if "bad" in states else "warn" if "warn" in states else "good"


def verdict(report: Report) -> str:
    """The report in a few sentences."""
    counts = report.numbers.total.counts
    said = [f"{plural(counts.published, 'message')} published, {number(counts.dead)} ended dead."] if counts.settled else []
    if report.empty_lake:
        said.append("The lake is empty.")
    elif not counts.settled:
        said.append("No numbers for this time.")
    waiting = report.unacknowledged.total
    said.append(
        f"{plural(waiting, 'dead message')} {'waits' if waiting == 1 else 'wait'} to be acknowledged."
        if waiting
        else "No dead message waits."
    )
    differing = len(report.quality.of("differs"))
    if differing:
        said.append(f"{plural(differing, 'partition')} of the archive {'differs' if differing == 1 else 'differ'} from the lake.")
    return " ".join(said)


def empty(report: Report) -> Empty | None:
    """Why there are no numbers; None if there are numbers."""
    if report.numbers.total.counts.settled:
        return None
    if report.empty_lake:
        return Empty("The lake is empty", "Nothing was exported yet. Run `relay pipeline export`, then `relay pipeline metrics`.")
    if report.quality.archive_rows:
        rows = plural(report.quality.archive_rows, "message")
        return Empty("No numbers yet", f"The lake has {rows} of this time, but they were not counted. Run `relay pipeline metrics`.")
    first, last = report.quality.first, report.quality.last
    return Empty("Nothing in this time", f"No message was archived in this time. The lake has messages from {first} to {last}.")


def cards(report: Report) -> tuple[Card, ...]:
    """The main numbers; only for a report that has settled messages."""
    return (*_counts(report), *_in_time(report), *_now(report))


def _counts(report: Report) -> Iterator[Card]:
    counts, known, span = report.numbers.total.counts, before(report), report.span
    peak = max(moment.figures.counts.published for moment in report.numbers.moments)
    step = length(span.step)
    by_result = ", ".join(
        f"{number(value)} {name}" for name, value in
        (("rejected", counts.rejected), ("failed", counts.failed), ("lock expired", counts.lock_expired)) if value
    )  # fmt: skip
    there = known.counts.published if known else None
    published, each = _than(counts.published, there, number), _than(counts.published, there, lambda messages: rate(messages, span.seconds))
    yield Card("Published", number(counts.published), f"{number(counts.discarded)} discarded", change=published)
    yield Card("Rate", rate(counts.published, span.seconds), f"{rate(peak, span.step.total_seconds())} in the busiest {step}", change=each)
    dead = _than(counts.dead, known.counts.dead if known else None, number)
    yield Card("Ended dead", number(counts.dead), by_result or "none", "warn" if counts.dead else "good", dead)
    tries = _than(counts.tries_each, known.counts.tries_each if known else None, "{:.2f}".format)
    yield Card("Tries each", f"{counts.tries_each:.2f}", "1.00 means one try for each message", change=tries)


def _in_time(report: Report) -> Iterator[Card]:
    total, known = report.numbers.total, before(report)
    counts = total.counts
    if counts.published and report.numbers.targets_ms:
        target = " or ".join(map(milliseconds, report.numbers.targets_ms))
        changed = points(counts.on_time, known.counts.on_time) if known else ""
        yield Card("On time", share(counts.within_target, counts.published), f"confirmed within {target}", change=changed)
    if total.wait:
        changed = _than(total.wait.p95, known.wait.p95 if known and known.wait else None, milliseconds)
        yield Card("Wait, p95", milliseconds(total.wait.p95), "from due until claimed", change=changed)


def _now(report: Report) -> Iterator[Card]:
    """The current state, whatever span the report covers."""
    dead, lag = report.unacknowledged.total, report.quality.lake.lag_seconds
    yield Card("Not acknowledged", number(dead), "dead messages", "warn" if dead else "good")
    yield Card("Export lag", NOTHING if lag is None else seconds(lag), "oldest message not in the lake", _lag_state(lag))


def compared(report: Report) -> str:
    """Which span the changes are relative to."""
    past, first = report.span.before, report.quality.first
    time = f"the time before, {when(past.since)[:16]} to {when(past.until)[:16]}"
    if not report.before.total.counts.settled:
        return f"Nothing was counted in {time}: there is nothing to compare with."
    short = f" The lake begins on {first}, so it lacks a part of that time." if first and first > past.since.date() else ""
    return f"Changes are relative to {time}.{short}"


def before(report: Report) -> Figures | None:
    """Figures of the span before; None if nothing was counted then."""
    return report.before.total if report.before.total.counts.settled else None


def _than(now: float, before: float | None, say: Callable[[float], str]) -> str:
    """How a figure has changed, and its previous value; empty if the previous value is not known."""
    if before is None:
        return ""
    said = change(now, before)
    return f"{said}: {say(before)} before" if before and now != before else said


def dead_words(report: Report) -> str:
    """How many dead messages wait, and for how long."""
    waiting = report.unacknowledged
    if not waiting.total:
        return "Every dead message is acknowledged."
    return (
        f"{plural(waiting.total, 'dead message')} of any time, the oldest from {when(waiting.oldest)}. "
        "`relay dead ack` acknowledges one, `relay replay` sends it again."
    )


def facts(report: Report) -> tuple[Fact, ...]:
    """What was compared, and with what result."""
    if report.empty_lake:
        return (Fact("The lake is empty: nothing to compare.", "warn"), _lake(report))
    return (_verified(report), *_differing(report), *_unverified(report), _counted(report), _lake(report), _retention(report))


def _verified(report: Report) -> Fact:
    closed = [one for one in report.quality.partitions if one.verdict != "open"]
    verified = report.quality.of("verified")
    rows = sum(one.rows or 0 for one in verified)
    whole = len(verified) == len(closed)
    of = f"{number(len(verified))} of {plural(len(closed), 'partition')} verified"
    were = "was" if rows == 1 else "were"
    return Fact(f"{of}: {plural(rows, 'row')} {were} the same in PostgreSQL and in the lake.", "good" if whole else "plain")


def _differing(report: Report) -> Iterator[Fact]:
    found = report.quality.of("differs")
    for one in found[:NAMED]:
        name = f"The day {one.day}" if one.day else shown(one.name)
        yield Fact(f"{name} differs from the lake and is kept: {shown(one.difference, 240)}", "bad")
    if len(found) > NAMED:
        yield Fact(f"{plural(len(found) - NAMED, 'more partition')} of the archive came out different from the lake.", "bad")


def _unverified(report: Report) -> tuple[Fact, ...]:
    found = len(report.quality.of("unverified"))
    return (Fact(f"{plural(found, 'partition')} not verified yet: run `relay pipeline verify`.", "warn"),) if found else ()


def _counted(report: Report) -> Fact:
    counted, there = report.numbers.total.counts.settled, report.quality.archive_rows
    if counted == there:
        return Fact(f"The numbers count each of the {plural(there, 'message')} that the lake has of this time.", "good")
    return Fact(
        f"The lake has {plural(there, 'message')} of this time, the numbers count {number(counted)}: run `relay pipeline metrics`.", "warn"
    )


def _lake(report: Report) -> Fact:
    """The same sentence about the lake as in `relay status`."""
    state = report.quality.lake
    judged = judge(state, seconds)
    kinds: Mapping[Kind, State] = {"whole": "good", "behind": _lag_state(state.lag_seconds), "differs": "bad"}
    return Fact(f"{judged.words[0].upper()}{shown(judged.words[1:], 240)}.", kinds.get(judged.kind, "warn"))


def _lag_state(lag: float | None) -> State:
    return "warn" if lag is None or lag > LATE_SECONDS else "good"


def _retention(report: Report) -> Fact:
    if report.quality.lake.registered:
        return Fact("Retention waits for the export: PostgreSQL drops only what was verified, and only if the lake was seen lately.")
    return Fact("Retention does not wait for the export: register the export with `relay pipeline export --register`.", "warn")


def inventory_facts(inventory: Inventory) -> tuple[Fact, ...]:
    """The size of lake and archive, and when each job last changed something."""
    return (*_sizes(inventory), *_jobs(inventory))


def _sizes(inventory: Inventory) -> Iterator[Fact]:
    files, taken = sum(table.files for table in inventory.tables), sum(table.bytes for table in inventory.tables)
    archive = next((table for table in inventory.tables if table.name == "archive"), None)
    of = f", of which {size(archive.bytes)} hold the {plural(archive.rows, 'row')} of its archive" if archive else ""
    yield Fact(f"The lake has {plural(files, 'file')} of {size(taken)} together{of}.")
    here = [day for day in inventory.days if day.bytes is not None]
    yield Fact(f"The archive in PostgreSQL has {plural(len(here), 'partition')} of {size(sum(day.bytes or 0 for day in here))} together.")


def _jobs(inventory: Inventory) -> Iterator[Fact]:
    for done, at, command in (
        ("Last export of messages", inventory.exported_at, "export"), ("Last change of the numbers", inventory.computed_at, "metrics"),
        ("Last comparison with PostgreSQL", inventory.compared_at, "verify"), ("Last compaction", inventory.compacted_at, "compact"),
    ):  # fmt: skip
        yield Fact(f"{done}: {when(at)}." if at else f"{done}: never yet. `relay pipeline {command}` does it.", "plain" if at else "warn")
