"""Fixtures of several files of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest


@pytest.fixture
def database(empty_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the superuser's to the empty database."""
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        yield connection
