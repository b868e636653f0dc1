"""The table of docs/compatibility.md: what it says of results, and that it never takes what was not run for passed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import ROOT
from tests.compatibility.__main__ import chosen
from tests.compatibility.cells import LEFT_OUT, SUITES, counts, words
from tests.compatibility.page import PAGE, table
from tests.compatibility.servers import POSTGRES, RABBITMQ

PAIR = {"major": "16", "series": "4.0", "postgres": "16.14", "rabbitmq": "4.0.5"}
RUN = {**PAIR, "suite": "contract", "passed": 9, "failed": 0, "skipped": 1, "commit": "c1", "date": "2026-01-02", "names": []}
THREE = """<testsuites><testsuite>
    <testcase classname='a' name='b'/><testcase><skipped/></testcase><testcase classname='c' name='d'><error/></testcase>
    </testsuite></testsuites>
"""


def row(*lines: dict[str, object]) -> str:
    """The row of PostgreSQL 16 and RabbitMQ 4.0."""
    rows = table(lines).splitlines()
    assert 2 + len(POSTGRES) * len(RABBITMQ) == len(rows)
    return rows[2 + 1 * len(RABBITMQ) + 1]


def test_a_pair_without_a_result_is_not_run() -> None:
    """Nothing is taken for granted."""
    assert f"| 16 | 4.0 | {' | '.join(['not run'] * len(SUITES))} |  |  |" == row()


def test_the_newest_result_of_each_suite_counts() -> None:
    """A failure is shown until a later run has passed; another suite stays not run."""
    failed = {**RUN, "failed": 2}
    assert f"| 16.14 | 4.0.5 | 9 / 0 / 1 | {' | '.join(['not run'] * (len(SUITES) - 1))} | 2026-01-02 | c2 |" == row(
        failed, {**RUN, "commit": "c2"}
    )
    assert "| 9 / 2 / 1 |" in row(RUN, failed)


def test_what_was_run_elsewhere_stays() -> None:
    """A checkout that has run one suite of one pair keeps what the page says of all others."""
    elsewhere = [RUN, {**RUN, "suite": "security", "passed": 4}, {**RUN, **dict.fromkeys(("major", "postgres"), "15")}]
    again = {**RUN, "passed": 8, "rabbitmq": "4.0.6", "date": "2026-02-03", "commit": "c2"}
    before, after = table(elsewhere), table([again], table(elsewhere))
    expected = row(elsewhere[1], again).replace("| 2026-02-03 |", "| 2026-01-02, 2026-02-03 |").replace("| c2 |", "| c1, c2 |")
    changed = {line for line in after.splitlines() if line not in before.splitlines()}
    assert {expected} == changed


@pytest.mark.parametrize(
    ("said", "pairs", "suites"),
    [
        ([], len(POSTGRES) * len(RABBITMQ), [*SUITES]),
        (["18/4.3"], 1, [*SUITES]),
        (["borders", "18/4.3", "15/3.10", "contract"], 2, ["borders", "contract"]),
    ],
)
def test_words_choose_pairs_and_suites(said: list[str], pairs: int, suites: list[str]) -> None:
    """Without a word of a kind it is all of them."""
    found = chosen(said)
    assert (pairs, suites) == (len(found.pairs), found.suites)


def test_a_word_that_is_neither_is_refused() -> None:
    """With what there is."""
    with pytest.raises(SystemExit, match=r"^18/4\.2 is neither a pair such as 18/4\.3 nor a suite: contract, "):
        chosen(["18/4.2"])


def homes(file: str) -> list[str]:
    """The suites that play a file of tests, and what of LEFT_OUT holds it."""
    played = [suite for suite in SUITES if is_in(file, SUITES[suite]) and f"--ignore={file}" not in words(suite)]
    return [*played, *(path for path in LEFT_OUT if is_in(file, [path]))]


def is_in(file: str, paths: Sequence[str]) -> bool:
    """Whether one of these is the file, or a folder that holds it."""
    return any(file == path or file.startswith(f"{path}/") for path in paths)


def test_each_file_is_in_one_suite_or_left_out_with_a_reason() -> None:
    """A new one is played on each pair unless LEFT_OUT says why not, and none is played twice."""
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    assert {} == {file: homes(file) for file in files if len(homes(file)) != 1}


def test_what_suites_and_reasons_name_exists() -> None:
    """One that was renamed would end a suite, or be played although it is left out."""
    named = {word.removeprefix("--ignore=") for suite in SUITES for word in words(suite)}
    assert [] == [word for word in named if word.startswith("tests/") and not (ROOT / word).exists()]


@pytest.mark.parametrize(
    ("report", "found"),
    [(None, (0, 1, 0)), ("<testsuites><testsuite/></testsuites>", (0, 1, 0)), (THREE, (1, 1, 1))],
)
def test_a_run_that_ran_no_test_has_failed(report: str | None, found: tuple[int, int, int], tmp_path: Path) -> None:
    """Whether it wrote no report, or an empty one."""
    path = tmp_path / "report.xml"
    if report is not None:
        path.write_text(report)
    counted = counts(path)
    assert found == (counted["passed"], counted["failed"], counted["skipped"])


def test_the_page_has_every_pair() -> None:
    """It is written by the run, and has the form of today's versions."""
    text = PAGE.read_text(encoding="utf-8")
    header, _, *rows = table([]).splitlines()
    assert header in text
    assert len(rows) == sum(line.startswith("| 1") for line in text.splitlines())
