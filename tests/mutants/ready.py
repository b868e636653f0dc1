"""Fixtures of the surveyed copies: a server that runs already, and a schema that was migrated once for all runs of tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from types import SimpleNamespace

import pytest

from tests.support.servers.shared import Databases

SERVER, TEMPLATE, DAY = "SURVEY_SERVER", "SURVEY_TEMPLATE", "SURVEY_DAY"
CONFTEST = "\nfrom tests.mutants.ready import databases, postgres_server  # noqa: E402, F401\n"
"""What the copy's conftest gets: its own fixtures go before those of plugins."""


@pytest.fixture(scope="session")
def postgres_server() -> SimpleNamespace:
    """The survey's server."""
    return SimpleNamespace(url=os.environ[SERVER])


@pytest.fixture(scope="session")
def databases(postgres_server: SimpleNamespace) -> Iterator[Databases]:
    """Copies of the survey's migrated database, on its day; all are dropped in the end."""
    made = Databases(postgres_server.url, templates={date.fromisoformat(os.environ[DAY]): os.environ[TEMPLATE]})
    yield made
    made.drop_all()
