"""Who gets through which door: a real login of each role tries them all, in its own outbox and in two others of the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.pages import borders
from tests.support.pages.borders import WHO, Outboxes
from tests.support.servers.shared import Databases

OF_THE_DATABASE = {
    "take the advisory lock of the gate",
    "notify and listen on the channels",
    "hold up all who connect to the server, for as long as it likes",
}
"""Doors that PostgreSQL opens to every login of a database, whatever the schema."""
OF_PUBLIC = {"hold up all who use the queue, for as long as it likes"}
"""Doors that it opens to every login that may use the schema, as all may in `public`."""


@pytest.fixture(scope="module")
def outboxes(databases: Databases) -> Iterator[Outboxes]:
    """Three outboxes in one database and one in another."""
    names = [databases.create(), databases.create()]
    yield borders.furnish(*map(databases.url, names))
    for name in names:
        databases.drop(name)


@pytest.mark.parametrize("who", WHO)
def test_a_real_login_gets_through_the_doors_that_the_page_names_and_no_other(outboxes: Outboxes, who: str) -> None:
    """In each place; what changed on purpose is written with `python -m tests.support.pages.borders`."""
    assert borders.documented(who) == borders.found(outboxes, who)


@pytest.mark.parametrize("who", WHO)
def test_no_role_reaches_another_outbox(outboxes: Outboxes, who: str) -> None:
    """But for what PostgreSQL opens to all who may connect to the same database."""
    reached = borders.found(outboxes, who)

    assert [] == sorted(reached["other schema"] - OF_THE_DATABASE)
    assert [] == sorted(reached["schema public"] - OF_THE_DATABASE - OF_PUBLIC)
    assert [] == sorted(reached["other database"] - OF_THE_DATABASE)
