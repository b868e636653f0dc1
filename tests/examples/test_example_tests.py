"""The tests of the examples, each run as its README says: they use relay.testing, and nothing else of this repository's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from relay.devservers.process import plain_environment
from tests import ROOT
from tests.support.applications.example_programs import EXAMPLES
from tests.support.applications.plugin_runs import import_path

RUNS = {
    "psycopg": (["-m", "pytest", "-q", "-p", "no:cacheprovider"], r"3 passed in "),
    "sqlalchemy": (["-m", "pytest", "-q", "-p", "no:cacheprovider"], r"4 passed in "),
    "django": (["manage.py", "test"], r"Ran 3 tests in [\s\S]*\nOK\n"),
}


def test_the_tests_of_the_page_pass_as_they_stand(empty_database_url: str, tmp_path: Path) -> None:
    """They are copied from docs/testing.md next to the program that they test."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    (tmp_path / "test_page.py").write_text(page.split("```python\n", 1)[1].split("```", 1)[0], encoding="utf-8")
    (tmp_path / "pay.py").write_bytes((EXAMPLES / "psycopg" / "pay.py").read_bytes())
    done = subprocess.run(
        [sys.executable, *RUNS["psycopg"][0]], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**plain_environment(tmp_path), "OUTBOX_TEST_DATABASE_URL": empty_database_url, "PYTHONPATH": import_path(tmp_path)},
        timeout=100,
    )  # fmt: skip

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "3 passed in " in done.stdout


@pytest.mark.parametrize("name", RUNS)
def test_an_examples_own_tests_pass(name: str, empty_database_url: str, tmp_path: Path) -> None:
    """On a database without anything in it; what is deprecated is an error."""
    words, told = RUNS[name]
    database = {"DATABASE_URL": empty_database_url, "OUTBOX_TEST_DATABASE_URL": empty_database_url}
    done = subprocess.run(
        [sys.executable, "-W", "error", *words], cwd=EXAMPLES / name, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env={**plain_environment(tmp_path), **database, "PYTHONPATH": import_path(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}, timeout=100,
    )  # fmt: skip

    assert 0 == done.returncode, done.stdout + done.stderr
    assert re.search(told, done.stdout + done.stderr), done.stdout + done.stderr
