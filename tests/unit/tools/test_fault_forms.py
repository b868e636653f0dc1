"""The two forms of the fault tests: the long one plays everything, the short one something of each fault."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT
from tests.support.faults.catalogue import MENU
from tests.support.pages import docs

HOURS = {30}
"""Faults that take too long for the short form whatever is left out of them."""


class Played(NamedTuple):
    """One test of a file, the fault that it plays, 0 for none, and whether it is for the long form alone."""

    path: Path
    name: str
    fault: int
    long_only: bool


@cache
def parsed() -> list[tuple[Path, ast.Module]]:
    """Every test file."""
    return [(path, ast.parse(docs.text_of(path))) for path in sorted(ROOT.glob("tests/**/test_*.py"))]


@cache
def all_tests() -> list[Played]:
    """Every test of every file."""
    functions = (
        (path, node) for path, module in parsed() for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [played(path, node) for path, node in functions if node.name.startswith("test_")]


def played(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Played:
    """What a test's decorators say."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    faults = [int(found[1]) for each in decorators if (found := re.match(r"pytest\.mark\.fault\((\d+)", each))]
    return Played(path, node.name, sum(faults), "pytest.mark.long_only" in decorators)


@pytest.mark.parametrize("number", sorted(MENU.keys() - HOURS))
def test_the_short_form_plays_something_of_each_fault(number: int) -> None:
    """A fault that only the long form played could be broken for weeks."""
    assert [each.name for each in all_tests() if each.fault == number and not each.long_only]


def test_what_is_in_the_folder_of_faults_names_the_fault_that_it_plays() -> None:
    """Without the marker the long form passes it over."""
    assert [] == [each for each in all_tests() if each.path.parent.name == "faults" and not each.fault]


def test_no_test_file_takes_from_another() -> None:
    """What two of them need is in tests/support, under a name."""
    modules = ((path, node.module or "") for path, module in parsed() for node in ast.walk(module) if isinstance(node, ast.ImportFrom))
    assert [] == [(path.name, module) for path, module in modules if module.rpartition(".")[2].startswith("test_")]
