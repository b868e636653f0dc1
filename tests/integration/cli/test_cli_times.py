"""Times at both ends of what a message may have, in databases of any time zone: no command fails over them."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from tests.support.relays.cli import Cli, Seeded

ENDS = {"first": "0001-01-01 00:00:00+00", "last": "9999-12-31 23:59:59.999999+00"}
"""They are in the years 0 and 10000 of some zones, which Python cannot read."""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Asia/Kathmandu", "Pacific/Niue"])
def test_a_time_at_the_end_of_the_calendar_fails_no_command(cli: Cli, seeded: Seeded, database_url: str, zone: str, end: str) -> None:
    """Otherwise a person who inserts such a time could hide all waiting messages from operators."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(sql.SQL("ALTER DATABASE {} SET timezone = {}").format(sql.Identifier(owner.info.dbname), zone))
    times = {"created_at": ENDS[end], "available_at": ENDS[end]} if end == "first" else {"available_at": ENDS[end]}
    ids = [seeded.insert(**times), seeded.insert(**times, ordering_key="k"), seeded.insert(expires_at=ENDS["last"])]
    seeded.archive("failed", "unroutable", **times)

    for words in (["status"], ["key", "list"], ["dead", "list"], ["schedule", "list"], *(["show", id_] for id_ in ids)):
        assert cli(*words)
        assert cli.json(*words) is not None
