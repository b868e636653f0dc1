"""The ledger: each number that it reports, made wrong once by hand-written lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from relay.demo import ledger
from relay.demo.ledger import LedgerError, Report

Lines = dict[str, list[dict[str, Any]]]


def sound() -> Lines:
    """A ledger that adds up: `a` and `b` of a key delivered, `d` is dead, `r` and `s` were rolled back, `b` was in flight at a kill."""
    return {
        ledger.PRODUCER: [
            {
                "transaction": "t1",
                "phase": "before",
                "messages": [
                    {"id": "a", "expect": "success", "key": "k", "place": 1},
                    {"id": "b", "expect": "success", "key": "k", "place": 2, "not_before": 4.0},
                    {"id": "d", "expect": "failed"},
                ],
                "undone": ["s"],
            },
            {"transaction": "t1", "phase": "committed"},
            {"transaction": "t2", "phase": "before", "messages": [{"id": "r"}]},
            {"transaction": "t2", "phase": "rolled_back"},
        ],
        ledger.CONSUMER: [{"id": "a", "at": 3.0}, {"id": "b", "at": 5.0}, {"id": "b", "at": 17.0}],
        ledger.ARCHIVE: [
            {"id": "a", "result": "success", "error_code": None, "archived_at": 3.5},
            {"id": "b", "result": "success", "error_code": None, "archived_at": 18.0},
            {"id": "d", "result": "failed", "error_code": "unroutable", "archived_at": 9.0},
        ],
        ledger.QUEUE: [],
        ledger.FAULTS: [{"at": 6.0, "in_flight": ["b"]}],
    }


@pytest.fixture
def check(tmp_path: Path) -> Callable[[Mapping[str, list[dict[str, Any]]]], Report]:
    """Write lines to a folder and check it."""

    def write(lines: Mapping[str, list[dict[str, Any]]]) -> Report:
        for name, content in lines.items():
            (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in content))
        return ledger.check(tmp_path)

    return write


Check = Callable[[Lines], Report]


def archived(lines: Lines, id_: str) -> dict[str, Any]:
    """The archive's line of a message."""
    return next(line for line in lines[ledger.ARCHIVE] if line["id"] == id_)


def test_a_ledger_that_adds_up_has_no_mismatch(check: Check) -> None:
    """Committed messages are delivered or dead; the one duplicate was in flight at the kill."""
    report = check(sound())

    assert [] == report.mismatches(recovery_limit=15)
    assert (3, 2, 2, 1, 0) == (report.committed, report.rolled_back, report.delivered, report.dead, report.waiting)
    assert (1, 1, 1.0) == (report.duplicates, report.in_flight, report.extra_per_in_flight)
    assert 12.0 == report.recovery_seconds
    assert 1.0 == report.messages_per_second


def test_a_missing_delivery_of_a_success_is_a_loss(check: Check) -> None:
    """One line less in the consumer's ledger, and the sum does not come out."""
    lines = sound()
    del lines[ledger.CONSUMER][0]

    report = check(lines)

    assert ("a",) == report.lost == report.success_without_delivery
    assert "3 messages were committed, and 2 of them can be accounted for." in report.mismatches()
    assert "1 message, such as a: archived as a success without a delivery." in report.mismatches()


def test_a_message_that_is_nowhere_is_lost(check: Check) -> None:
    """Committed, and neither delivered nor archived nor in the queue."""
    lines = sound()
    lines[ledger.ARCHIVE].remove(archived(lines, "d"))

    report = check(lines)

    assert ("d",) == report.lost
    assert () == report.success_without_delivery
    assert not report.adds_up


@pytest.mark.parametrize("file", [ledger.CONSUMER, ledger.ARCHIVE, ledger.QUEUE])
@pytest.mark.parametrize("id_", ["r", "s", "never noted"])
def test_a_message_without_a_committed_transaction_is_a_phantom(check: Check, file: str, id_: str) -> None:
    """Rolled back, undone by a savepoint, or never inserted: it must be seen nowhere."""
    lines = sound()
    lines[file].append({"id": id_, "at": 3.0, "result": "success", "archived_at": 3.0})

    assert (id_,) == check(lines).phantom


def test_a_message_in_the_queue_waits(check: Check) -> None:
    """What is neither delivered nor archived may still be queued, and then it is not lost."""
    lines = sound()
    lines[ledger.ARCHIVE].remove(archived(lines, "d"))
    lines[ledger.QUEUE].append({"id": "d"})

    report = check(lines)

    assert (1, ()) == (report.waiting, report.lost)
    assert ["1 messages are still in the queue; at most 0 may be."] == report.mismatches()
    assert [] == report.mismatches(may_wait=1)


def test_a_delivered_message_archived_as_dead_is_told(check: Check) -> None:
    """The archive must not call dead what the consumer has."""
    lines = sound()
    archived(lines, "a")["result"] = "failed"

    report = check(lines)

    assert ("a",) == report.delivered_not_success == report.unexpected_result


def test_an_unexpected_result_is_told(check: Check) -> None:
    """A relay that archives everything as dead loses nothing, and is wrong all the same."""
    lines = sound()
    archived(lines, "d")["result"] = "rejected"

    assert ("d",) == check(lines).unexpected_result


def test_a_delivered_message_without_a_row_in_the_archive_is_told(check: Check) -> None:
    """Gone from the queue and not archived, unless only failures are archived."""
    lines = sound()
    lines[ledger.ARCHIVE].remove(archived(lines, "a"))

    report = check(lines)

    assert ("a",) == report.unarchived
    assert [] == report.mismatches(archive_all=False)


def test_a_message_archived_twice_is_told(check: Check) -> None:
    """A settle that happened twice."""
    lines = sound()
    lines[ledger.ARCHIVE].append(archived(lines, "d"))

    assert ("d",) == check(lines).archived_twice


def test_more_duplicates_than_were_in_flight_are_told(check: Check) -> None:
    """A fault explains one duplicate for each message that was in flight."""
    lines = sound()
    lines[ledger.CONSUMER].append({"id": "b", "at": 18.0})

    report = check(lines)

    assert (2, 1, 2.0) == (report.duplicates, report.in_flight, report.extra_per_in_flight)
    assert ["2 deliveries are duplicates; the faults explain at most 1."] == report.mismatches()


def test_a_duplicate_of_a_message_that_no_fault_touched_is_told(check: Check) -> None:
    """Not only the number counts: the message itself must have been in flight."""
    lines = sound()
    lines[ledger.CONSUMER][2]["id"] = "a"

    assert ("a",) == check(lines).unexplained


def test_a_fault_may_give_an_upper_bound(check: Check) -> None:
    """Where the ids in flight are not known, the window bounds the duplicates."""
    lines = sound()
    lines[ledger.FAULTS][0]["in_flight"] = 2

    report = check(lines)

    assert (2, (), 0.5) == (report.in_flight, report.unexplained, report.extra_per_in_flight)


def test_without_faults_no_duplicate_is_allowed(check: Check) -> None:
    """The file of the faults may be missing."""
    lines = sound()
    del lines[ledger.FAULTS]

    report = check(lines)

    assert (0, ("b",), None) == (report.in_flight, report.unexplained, report.recovery_seconds)


def test_first_deliveries_out_of_order_are_told(check: Check) -> None:
    """Within a key the first deliveries come in the order of the commits; repeats do not count."""
    lines = sound()
    lines[ledger.CONSUMER].insert(0, {"id": "b", "at": 5.0})
    del lines[ledger.CONSUMER][2]

    assert ("a",) == check(lines).order_breaks


def test_a_delivery_before_its_time_is_told(check: Check) -> None:
    """A delayed message is not sent before it is due."""
    lines = sound()
    lines[ledger.CONSUMER][1]["at"] = 3.9

    assert ("b",) == check(lines).early


def test_a_slow_recovery_is_told(check: Check) -> None:
    """What was in flight at a fault is settled within the limit."""
    assert ["Messages in flight at a fault took 12.0 s to be settled; 11 s are allowed."] == check(sound()).mismatches(recovery_limit=11)


def test_a_message_taken_out_or_accepted_is_accounted_for(check: Check) -> None:
    """Discarded on purpose, or unroutable where the policy accepts that: neither lost nor a success without delivery."""
    lines = sound()
    del lines[ledger.CONSUMER][0]
    archived(lines, "a")["error_code"] = "unroutable"
    archived(lines, "d")["result"] = "discarded"

    report = check(lines)

    assert (1, 1, (), ()) == (report.accepted, report.discarded, report.lost, report.success_without_delivery)
    assert report.adds_up


@pytest.mark.parametrize(("seen", "committed"), [(True, 3), (False, 0)])
def test_a_transaction_whose_end_is_unknown_counts_by_what_is_seen(check: Check, seen: bool, committed: int) -> None:
    """The answer to COMMIT may be lost: then its messages are neither lost nor phantoms."""
    lines = sound()
    del lines[ledger.PRODUCER][1]
    if not seen:
        lines[ledger.CONSUMER] = lines[ledger.ARCHIVE] = []

    report = check(lines)

    assert (committed, (), ()) == (report.committed, report.phantom, report.lost)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    """The error names the file and what to do."""
    with pytest.raises(LedgerError, match=r"producer\.jsonl cannot be read \(No such file or directory\); name a folder"):
        ledger.check(tmp_path)


@pytest.mark.parametrize("line", ["{", "[]", '{"id": 1}', '{"id": "x", "at": "soon"}'])
def test_a_damaged_line_is_named(check: Check, tmp_path: Path, line: str) -> None:
    """The error names the file and the line."""
    check(sound())
    with (tmp_path / ledger.CONSUMER).open("a") as file:
        file.write(f"{line}\n")

    with pytest.raises(LedgerError, match=r"consumer\.jsonl, line 4 is not a line of this ledger"):
        ledger.check(tmp_path)


def test_what_is_in_flight_at_two_faults_counts_from_the_later_one(check: Check) -> None:
    """The relay that took it over may die as well, and then it waits for a second lock to expire."""
    lines = sound()
    lines[ledger.FAULTS].append({"at": 13.0, "in_flight": ["b"]})

    assert 5.0 == check(lines).recovery_seconds


@pytest.mark.parametrize(("later", "seconds"), [(13.0, 5.0), (19.0, 12.0)])
def test_a_later_fault_counts_while_a_message_is_not_through(check: Check, later: float, seconds: float) -> None:
    """It may have hit the owner of the message's key; one after the end changes nothing."""
    lines = sound()
    lines[ledger.FAULTS].append({"at": later, "in_flight": []})

    assert seconds == check(lines).recovery_seconds
