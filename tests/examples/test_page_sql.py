"""The SQL of the pages has no syntax error: PL/pgSQL parses each statement, and carries out none."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.support.pages.docs import PAGES

BLOCK = re.compile(r"^ *```sql\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
LEFT_OUT = re.compile(r"…|\b(BEGIN|COMMIT|ROLLBACK|LOOP|CREATE FUNCTION)\b|^\\|\$\$|:'", re.MULTILINE)
"""What PL/pgSQL does not take, what psql reads, and what is left out for the reader."""


def statements(page: Path) -> list[str]:
    """Those of all blocks."""
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        text = re.sub(r"--.*", "", block.replace(r"\gx", ";"))
        found += [each.strip() for each in text.split(";") if each.strip() and not LEFT_OUT.search(each.strip())]
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if statements(page)], ids=lambda page: page.stem)
def test_each_statement_of_a_page_can_be_parsed(page: Path, empty_database_url: str) -> None:
    """A comment that swallowed a line, or a statement that lost its end, is an error."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        for statement in statements(page):
            connection.execute(f"DO $check$ BEGIN IF false THEN {statement}; END IF; END $check$".encode())
