"""Reconciliation as a job: lake, receipts of PostgreSQL or of files, sums by day and exchange, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from relay.errors import LakeError, PipelineError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.reconcile import job as reconcile
from relay.pipeline.reconcile import receipts
from relay.pipeline.reconcile.job import Example, Question, Reconciled, ReconciledLine
from relay.pipeline.source.database import Database
from tests.support.lake.exporting import export
from tests.support.servers.logins import login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Archived

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
DAY = date(2024, 5, 1)
Run = Callable[..., Reconciled]
RECEIVED = "INSERT INTO queue_message_receipt (message_id, queue, received_at) VALUES (%s, %s, %s)"


def id_of(number: int) -> str:
    """Id of a made-up message or stranger."""
    return f"00000000-0000-7000-8000-{number:012}"


@pytest.fixture
def run(lake: Lake, database: Database, spark: SparkSession) -> Run:
    """Reconcile two days, unless a test says otherwise."""

    def reconciled(**options: Any) -> Reconciled:
        usual = {"since": NOON - timedelta(hours=12), "until": NOON + timedelta(hours=36)}
        place = {"lake": lake, "database": options.pop("database", database), "say": lambda _line: None}
        return reconcile.run(**place, spark=lambda: spark, question=Question(**{**usual, **options}))

    return reconciled


@pytest.fixture
def filled(lake: Lake, database: Database, database_url: str, archived: Archived) -> None:
    """Messages 1 to 5 of two days: 2 is lost, 3 came twice, 4 late, 5 is dead; 9 is the receipt of no message."""
    archived(
        {"id": id_of(1)}, {"id": id_of(2), "confirmed_at": NOON}, {"id": id_of(3), "exchange": "audit"},
        {"id": id_of(4), "archived_at": NOON + timedelta(days=1)}, {"id": id_of(5), "result": "failed"},
    )  # fmt: skip
    export(lake, database)
    with psycopg.connect(database_url) as connection, connection.cursor() as cursor:
        found = [(1, 1), (3, 1), (3, 2), (4, 90_000), (9, 5)]
        cursor.executemany(RECEIVED, [(id_of(number), "q", NOON + timedelta(seconds=second)) for number, second in found])


@pytest.mark.spark
@pytest.mark.usefixtures("filled")
def test_what_was_lost_doubled_late_and_unknown_is_told_by_day_and_exchange(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tasks read the receipts; with an example of each, and 5 for a scheduler."""
    monkeypatch.setattr(receipts, "RECEIPTS_A_TASK", 2)

    result = run()

    zero = {"received": 0, "lost": 0, "pending": 0, "duplicated": 0, "late": 0, "dead": 0}
    assert (
        ReconciledLine(DAY, "audit", 1, **{**zero, "received": 1, "duplicated": 1}),
        ReconciledLine(DAY, "orders", 2, **{**zero, "received": 1, "lost": 1}),
        ReconciledLine(date(2024, 5, 2), "orders", 1, **{**zero, "received": 1, "late": 1}),
    ) == result.lines
    assert (4, 3, 1, 1, 1, 1) == (result.messages, result.received, result.lost, result.duplicated, result.late, result.unknown)
    assert ((DAY, 1),) == result.unknown_days
    assert (
        Example("lost", id_of(2), "orders", None, NOON),
        Example("duplicated", id_of(3), "audit", None, NOON),
        Example("unknown", id_of(9), None, "q", NOON + timedelta(seconds=5)),
    ) == result.examples
    assert (5, 5, 0) == (result.exit_code, run(most_lost=1).exit_code, run(most_lost=1, most_duplicated=1).exit_code)


@pytest.mark.spark
@pytest.mark.usefixtures("filled")
def test_files_take_the_place_of_the_table(run: Run, tmp_path: Path) -> None:
    """Named queues hold for them as well."""
    times = {1: NOON, 2: NOON, 3: NOON, 4: NOON + timedelta(days=1)}
    pairs = [(number, queue) for number in times for queue in ("q", "r") if (number, queue) != (2, "r")]
    lines = [f"{id_of(number)},{queue},{times[number].isoformat()}" for number, queue in pairs]
    (tmp_path / "receipts.csv").write_text("\n".join(["message_id,queue,received_at", *lines]))

    result = run(files=str(tmp_path / "receipts.csv"), queues=("orders=q,r",))

    assert (7, 1, 0, 0) == (result.received, result.lost, result.duplicated, result.unknown)
    assert [(id_of(2), "r")] == [(example.id, example.queue) for example in result.examples]


@pytest.mark.spark
@pytest.mark.usefixtures("filled")
def test_no_receipts_at_all_are_a_wrong_place_unless_said_otherwise(run: Run, database_url: str, tmp_path: Path) -> None:
    """In the table or in files, also if there are some of another time; files that are not there or cannot be read are errors always."""
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE queue_message_receipt SET received_at = %s", [NOON - timedelta(days=9)])
    (tmp_path / "none.csv").write_text("message_id,received_at\n")
    for place in (None, str(tmp_path / "none.csv")):
        with pytest.raises(PipelineError, match=f"There is no receipt .* in {place or 'queue_message_receipt'}, .* --allow-no-receipts"):
            run(files=place)
        assert (4, 4, 0) == ((result := run(files=place, may_lack_receipts=True)).messages, result.lost, result.received)

    with pytest.raises(PipelineError, match="There are no receipts in"):
        run(files=str(tmp_path / "nowhere.csv"))
    (tmp_path / "bad.csv").write_text("message_id,received_at\na,yesterday\n")
    with pytest.raises(PipelineError, match=r"^The receipts in .*/bad.csv cannot be read"):
        run(files=str(tmp_path / "bad.csv"))


@pytest.mark.spark
@pytest.mark.usefixtures("filled")
def test_the_exports_login_reconciles_and_another_hears_of_its_role(run: Run, database_url: str) -> None:
    """A real login with queue_message_etl needs nothing else, and its password is in no plan."""
    with login(database_url, "queue_message_etl") as url, Database(url) as etl:
        assert 1 == run(database=etl).lost
    with login(database_url) as url, Database(url) as nobody, pytest.raises(PipelineError, match="relay grant etl LOGIN"):
        run(database=nobody)


@pytest.mark.spark
def test_what_makes_no_sense_is_one_sentence(run: Run, lake: Lake) -> None:
    """Before anything is read."""
    with pytest.raises(PipelineError, match="time to compare is empty"):
        run(until=NOON - timedelta(hours=12))
    with pytest.raises(PipelineError, match="no time zone"):
        run(since=datetime(2024, 5, 1))  # noqa: DTZ001 - that is what is wrong
    with pytest.raises(PipelineError, match="must not be negative"):
        run(grace=timedelta(seconds=-1))
    with pytest.raises(LakeError, match="relay pipeline export"):
        run()


def test_queues_are_given_by_exchange() -> None:
    """Names may hold all but a comma, an exchange all but an equals sign; the default exchange has an empty name."""
    assert {"orders": ["a", "b=c"], "": ["*"]} == reconcile.parse_queues(["orders=a,b=c,a", "=*"])
    for wrong in (["orders"], ["orders="], ["orders=a", "orders=b"], ["orders=*,a"], [""]):
        with pytest.raises(PipelineError, match="exchange=queue1,queue2"):
            reconcile.parse_queues(wrong)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["CC", "cc", "BCC", "bcc", "headers.CC", "headers.BCC"])
def test_a_copy_makes_no_queue_of_others_lack_their_messages(
    run: Run, lake: Lake, database: Database, database_url: str, archived: Archived, name: str
) -> None:
    """One message with CC or BCC reached a further queue, whose name says nothing of others with its routing key; it is judged itself."""
    options = json.dumps({"headers": {name.removeprefix("headers."): ["a"]}} if "." in name else {name: ["a"]})
    archived(*({"id": id_of(number), "options": options if number == 1 else "{}"} for number in range(1, 5)), {"id": id_of(5)})
    export(lake, database, lambda rows: [{**one, "options": None} if one["id"] == id_of(5) else one for one in rows])
    with psycopg.connect(database_url) as connection, connection.cursor() as cursor:
        found = [*((number, "billing") for number in range(2, 6)), (1, "audit")]
        cursor.executemany(RECEIVED, [(id_of(number), queue, NOON + timedelta(seconds=1)) for number, queue in found])

    result = run(queues=["orders=*"])

    assert [("lost", id_of(1), "billing")] == [(one.kind, one.id, one.queue) for one in result.examples]
