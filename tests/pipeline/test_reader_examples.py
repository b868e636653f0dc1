"""The examples that read the lake, run as their READMEs say in `build/readers`: a dbt project, a notebook, a Hive metastore."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.support.applications.example_programs import EXAMPLES
from tests.support.lake.adding import NOON
from tests.support.lake.contents import in_postgres
from tests.support.lake.exporting import export
from tests.support.lake.metastore import metastore
from tests.support.lake.readers import READERS, delta_spark, require_readers, run_reader, told

if TYPE_CHECKING:
    from tests.pipeline.conftest import Archived

CONFIRMED = {"created_at": NOON - timedelta(milliseconds=8), "confirmed_at": NOON, "archived_at": NOON}
INSTALL = "import duckdb, sys; duckdb.execute(f\"INSTALL '{sys.argv[1]}'\")"


@pytest.fixture
def messages(archived: Archived, lake: Lake, database: Database) -> Lake:
    """Two successes that took 8 ms, and two dead messages of the next day."""
    archived(CONFIRMED, CONFIRMED)
    export(lake, database)
    later = {"archived_at": NOON + timedelta(days=1), "error_code": "unroutable"}
    archived({"result": "rejected", **later}, {"result": "failed", "exchange": "audit", **later})
    export(lake, database)
    return lake


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which DuckDB has its extension for Delta, which a user's DuckDB downloads at this point."""
    require_readers()
    [extension] = READERS.rglob("delta.duckdb_extension")
    run_reader("python", "-c", INSTALL, extension, home=tmp_path)
    return tmp_path


def settings_of(lake: Lake) -> dict[str, str]:
    """What the READMEs set; nothing reports its use to anybody."""
    return {"RELAY_LAKE_URL": lake.place.url, "DO_NOT_TRACK": "1"}


def test_the_dbt_project_builds_and_its_tests_pass(messages: Lake, home: Path) -> None:
    """Both models have what was archived."""
    project = Path(shutil.copytree(EXAMPLES / "dbt", home / "dbt"))
    printed = run_reader("dbt", "build", "--profiles-dir", ".", home=home, folder=project, settings=settings_of(messages))

    assert "PASS=8 WARN=0 ERROR=0 SKIP=0" in printed
    by_day, by_code = "FROM messages_by_day ORDER BY day, exchange", "SELECT exchange, error_code, dead FROM dead_by_code ORDER BY ALL"
    with duckdb.connect(str(project / "outbox.duckdb"), read_only=True) as built:
        days = [
            (NOON.date(), "orders", 2, 2, 0, 8.0),
            (NOON.date() + timedelta(days=1), "audit", 1, 0, 1, None),
            (NOON.date() + timedelta(days=1), "orders", 1, 0, 1, None),
        ]
        assert days == built.execute(by_day).fetchall()
        assert [("audit", "unroutable", 1), ("orders", "unroutable", 1)] == built.execute(by_code).fetchall()


def test_the_notebook_runs_from_its_first_cell_to_its_last(messages: Lake, home: Path) -> None:
    """As Jupyter executes it; each query shows the rows of the lake."""
    done = home / "done.ipynb"
    run_reader("jupyter", "execute", f"--output={done}", EXAMPLES / "notebook" / "outbox.ipynb", home=home, settings=settings_of(messages))

    results, latencies, newest = shown(json.loads(done.read_text(encoding="utf-8")))
    assert all(word in results for word in ("audit", "failed", "rejected", "success"))
    assert "[8.0, 8.0, 8.0]" in latencies
    assert 2 == newest.count("unroutable")


def test_the_notebook_is_committed_without_outputs() -> None:
    """They may hold routing keys and errors of somebody's messages."""
    notebook = json.loads((EXAMPLES / "notebook" / "outbox.ipynb").read_text(encoding="utf-8"))

    assert [] == shown(notebook)
    assert {None} == {cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"}


def shown(notebook: dict[str, Any]) -> list[str]:
    """What its cells show, as text."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    return ["".join(output["data"]["text/plain"]) for output in outputs]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_metastore_leads_to_the_lake_by_name(
    messages: Lake, home: Path, archived: Archived, database: Database, database_url: str
) -> None:
    """Registered once; rows that are exported later are there for another session, which knows the metastore alone.

    A table that the lake lacks is not made there.
    """
    with metastore() as url:
        spark = delta_spark(home, f"spark.hadoop.hive.metastore.uris {url}", "spark.sql.catalogImplementation hive")
        printed = run_reader("spark-submit", EXAMPLES / "catalogue" / "register.py", home=home, settings=settings_of(messages) | spark)
        assert "outbox.archive: registered" in printed
        assert "outbox.stats_day: not in the lake yet" in printed
        archived({"routing_key": "later"})
        export(messages, database)
        found = told(
            run_reader("python", Path(__file__).parent / "read_by_delta_spark.py", "outbox.archive", "xid, seq", home=home, settings=spark)
        )

    assert in_postgres(database_url) == found.rows
    assert 5 == len(found.rows)
    assert ["archive"] == [path.name for path in Path(messages.place.url).iterdir()]
