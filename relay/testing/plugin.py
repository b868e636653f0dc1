"""The pytest plugin: fixtures with which an application tests its outbox. It loads other modules only when a fixture is used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from relay.testing.outbox import Outbox

DATABASE_URL = "OUTBOX_TEST_DATABASE_URL"
SCHEMA = "OUTBOX_TEST_SCHEMA"


@pytest.fixture(scope="session")
def outbox_database_url() -> Iterator[str]:
    """URL of the application's test database, for the owner of the schema: override this fixture, or set OUTBOX_TEST_DATABASE_URL.

    By default a private PostgreSQL runs for the session: an installed PostgreSQL, or the one of the extra `local`.
    """
    if given := os.environ.get(DATABASE_URL):
        yield given
        return
    from relay.devservers.postgres import Postgres  # noqa: PLC0415 - as above
    from relay.errors import LocalServerError  # noqa: PLC0415 - loading the plugin must cost nothing

    try:
        server = Postgres()
    except LocalServerError as error:
        pytest.fail(
            f"No test database: override the fixture outbox_database_url, or set {DATABASE_URL}. A private one: {error}", pytrace=False
        )
    with server:
        yield server.url


@pytest.fixture(scope="session")
def outbox_schema() -> str:
    """Schema of the queue's tables: override this fixture, or set OUTBOX_TEST_SCHEMA; by default public."""
    return os.environ.get(SCHEMA, "public")


@pytest.fixture
def outbox(outbox_database_url: str, outbox_schema: str) -> Iterator[Outbox]:
    """The application's outbox, without messages: gives access to enqueued and waiting messages, the archive, the clock, and a relay."""
    from relay.testing.outbox import Outbox  # noqa: PLC0415 - as above

    with Outbox(outbox_database_url, schema=outbox_schema) as made:
        yield made
