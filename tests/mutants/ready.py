"""Fixtures of the surveyed copies: a server that runs already, and a schema that was migrated once for all runs of tests."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

SERVER, TEMPLATE = "SURVEY_SERVER", "SURVEY_TEMPLATE"
CONFTEST = "\nfrom tests.mutants.ready import migrated_template, postgres_server  # noqa: E402, F401\n"
"""What the copy's conftest gets: its own fixtures go before those of plugins."""


@pytest.fixture(scope="session")
def postgres_server() -> SimpleNamespace:
    """The survey's server."""
    return SimpleNamespace(url=os.environ[SERVER])


@pytest.fixture(scope="session")
def migrated_template() -> str:
    """The survey's migrated database."""
    return os.environ[TEMPLATE]
