"""What retention does on a standby that was promoted, before a job of the pipeline has run there and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relay import devservers
from relay.errors import PipelineError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from relay.postgres.schema.migrate import migrate
from tests.support.database.archives import insert
from tests.support.lake.exporting import export
from tests.support.servers.shared import Say
from tests.support.servers.standby import Standby

pytestmark = pytest.mark.faults
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
DAYS = [NOON + timedelta(days=number) for number in range(3)]
Ask = Callable[..., Any]


@pytest.fixture
def promoted(say: Say, lake: Lake) -> Iterator[str]:
    """The URL of a standby that took over from a server whose three days and two dead messages were verified."""
    with devservers.postgres(say=say, private=True) as primary:
        migrate(primary.url, schema="public")
        with psycopg.connect(primary.url) as connection:
            insert(connection, *({"archived_at": day} for day in DAYS), *({"archived_at": day, "result": "failed"} for day in DAYS[:2]))
            connection.execute("SELECT queue_message_config_set('export_registered', 'true')")
        with Database(primary.url) as database:
            export(lake, database)
            assert 0 == verify.run(lake=lake, database=database, say=lambda _line: None).exit_code
        with Standby(primary) as standby:
            standby.promote()
            yield standby.url


def asked(url: str, statement: str, *values: object) -> Any:
    """The only value of a statement's answer."""
    with psycopg.connect(url, autocommit=True) as connection:
        [(found,)] = connection.execute(statement.encode(), values).fetchall()
    return found


def retain(url: str, day: datetime) -> str:
    """What retention does with a day."""
    return str(asked(url, "SELECT (queue_message_drop_day(%s, true)).action", f"queue_message_archive_{day:%Y%m%d}"))


def test_a_promoted_standby_drops_by_old_stamps_until_a_job_has_run(promoted: str, lake: Lake) -> None:
    """Only what was verified before and is as it was then. The first job, which is refused, ends that."""
    delete = "SELECT queue_message_delete_dead(%s, true)"
    with psycopg.connect(promoted) as connection:
        insert(connection, {"archived_at": DAYS[1]}, {"archived_at": DAYS[0], "result": "failed"})

    assert ["dropped", "unverified"] == [retain(promoted, day) for day in DAYS[:2]]
    assert 1 == asked(promoted, delete, DAYS[0] + timedelta(hours=1))

    with Database(promoted) as database, pytest.raises(PipelineError, match="--adopt"):
        verify.run(lake=lake, database=database, say=lambda _line: None)

    assert "unseen" == retain(promoted, DAYS[2])
    assert 0 == asked(promoted, delete, NOON + timedelta(days=9))


def test_old_stamps_end_by_themselves(promoted: str) -> None:
    """Without any job, once they are as old as the setting says."""
    asked(promoted, "SELECT queue_message_config_set('lake_seen_hours', '1')")
    with psycopg.connect(promoted) as connection:
        connection.execute("UPDATE queue_message_export_position SET seen_at = seen_at - interval '1 hour'")

    assert "unseen" == retain(promoted, DAYS[0])
