"""The safeguards that tests without a server hold, switched off; and what holds the list of all of them."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests import ROOT
from tests.mutants.page import PAGE, row_of, rows
from tests.mutants.runner import Mutant, load, try_all
from tests.mutants.survey import catalog
from tests.support.pages import docs

MUTANTS = load()
FUNCTION: Final = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION @schema@\.(\w+)")
TOOTHLESS = Mutant(
    name="a sentence of a docstring",
    file="relay/engine/retry.py",
    before="Share of a backoff",
    after="Part of a backoff",
    test="tests/unit/engine/test_retry.py::test_every_verdict_is_decided",
)


@pytest.mark.timeout(900)
def test_a_safeguard_that_is_switched_off_turns_its_test_red() -> None:
    """Those that need no server, in some three minutes; `make mutants` does the same with all."""
    verdicts = try_all([mutant for mutant in MUTANTS if mutant.fast], servers={})

    assert len(verdicts) >= 12
    assert [] == [(verdict.mutant.name, verdict.note) for verdict in verdicts if not verdict.killed]


def test_a_mutant_that_nobody_notices_is_told() -> None:
    """A sentence of a docstring holds nothing."""
    [verdict] = try_all([TOOTHLESS], servers={})

    assert (False, "survived") == (verdict.killed, verdict.note)


def test_a_test_that_says_nothing_without_the_mutation_is_told() -> None:
    """One that is not there is as good as one that is red."""
    [verdict] = try_all([TOOTHLESS._replace(test="tests/unit/engine/test_retry.py::test_nothing")], servers={})

    assert (False, "the test is neither without the mutation") == (verdict.killed, verdict.note)


def test_every_mutant_can_be_applied_to_the_code_as_it_is() -> None:
    """Its text is in its file exactly once, its name is unique, and its test exists."""
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert text != mutant.applied(text), mutant.name
        file, *_, test = mutant.test.split("[")[0].split("::")
        assert test in docs.tests() | {"runTest"}, mutant.test
        assert (ROOT / file).exists(), mutant.test
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS}) >= 20


def test_a_mutant_of_a_migration_changes_what_no_later_one_replaces() -> None:
    """Else its test would be green whatever it changes."""
    replaced = {mutant.name: last for mutant in MUTANTS if (last := _last_definition(mutant)) not in {None, mutant.file}}

    assert {} == replaced


def _last_definition(mutant: Mutant) -> str | None:
    """The last migration that creates the function that contains a mutant; None if no function contains it."""
    folder = ROOT / "sql"
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    place = text.find(mutant.before)
    before = [made for made in FUNCTION.finditer(text) if made.start() < place < text.find("$body$;", made.start())]
    if not before or (ROOT / mutant.file).parent != folder:
        return None
    made = [file for file in sorted(folder.glob("0*.sql")) if before[-1][1] in FUNCTION.findall(file.read_text(encoding="utf-8"))]
    return f"sql/{made[-1].name}"


def test_text_that_has_changed_is_told() -> None:
    """A mutant that changes nothing would prove nothing."""
    for text in ("", "Share of a backoff, Share of a backoff"):
        with pytest.raises(LookupError, match=r"write tests/mutants/mutants\.toml anew"):
            TOOTHLESS.applied(text)


def test_the_page_lists_every_mutant_and_nothing_else() -> None:
    """`make mutants` writes it after a run that noticed them all."""
    assert [row_of(mutant) for mutant in MUTANTS] == rows()


def test_survivors_that_are_explained_stand_on_the_page() -> None:
    """`make mutation` writes it after a run in which nothing survived without a reason; a reason that fits no survivor is taken out."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").partition("<!-- survey -->")[2].splitlines()]
    explained = {(cells[0].strip("| `"), cells[-1].removesuffix(" |")) for cells in rows if len(cells) == 3} - {
        ("module", "why that is right")
    }

    assert explained == {(entry["module"], entry["reason"]) for entry in catalog()["survivor"]}


def test_each_surveyed_module_and_test_is_there() -> None:
    """Moved code is surveyed where it is now."""
    for group in catalog()["group"]:
        assert [] == [name for name in group["modules"] + group["tests"] if not (ROOT / name).exists()]
