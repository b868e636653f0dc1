"""What the demo's scenes found, as its summary shows and judges it."""

from __future__ import annotations

import pytest
from rich.console import Console

from relay.demo.scenes.stage import Check
from relay.demo.summary import one_of_each, otherwise


def test_what_is_as_it_must_be_is_no_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """It has a row with both numbers."""
    checks = [Check("ticks", 3, 3)]
    Console(width=100).print(one_of_each(checks))
    assert ["ticks", "3", "3"] == capsys.readouterr().out.splitlines()[-2].split()
    assert [] == otherwise(checks)


@pytest.mark.parametrize("found", [2, 4])
def test_what_is_otherwise_is_a_sentence(found: int) -> None:
    """Too few are as wrong as too many."""
    assert [f"ticks: {found}; it must be 3."] == otherwise([Check("answers", 1, 1), Check("ticks", found, 3)])
