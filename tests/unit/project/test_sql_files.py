"""What every file of SQL holds to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ROOT

FILES = sorted([*ROOT.glob("sql/*.sql"), *ROOT.glob("relay/**/*.sql")])


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_sql_is_ascii(file: Path) -> None:
    """A database that is not in UTF-8 has no place for other letters, not even in a function's comment."""
    assert file.read_bytes().isascii()
