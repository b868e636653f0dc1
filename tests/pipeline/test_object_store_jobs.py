"""Every job of the pipeline with its lake in an object store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from relay.errors import ConflictError, LakeError, PipelineError, UnreachableError
from relay.pipeline.compact import job as compact
from relay.pipeline.export import job as export
from relay.pipeline.lake import delta_lake
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from tests.pipeline.conftest import Archived
from tests.support.lake.contents import in_lake, in_postgres
from tests.support.lake.jobs import play
from tests.support.relays.cli import Cli
from tests.support.servers.object_store import HIDDEN, KEY, ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Export = Callable[..., export.Exported]
pytestmark = pytest.mark.spark


@pytest.fixture
def pipeline(cli: Cli, bucket: Lake, object_store: ObjectStore) -> Cli:
    """The command line, with the lake in the store."""
    cli.env |= {"RELAY_LAKE_URL": bucket.place.url, "RELAY_LAKE_OPTIONS": json.dumps(object_store.options)}
    return cli


@pytest.fixture
def exported(spark: SparkSession, bucket: Lake, database: Database) -> Export:
    """Export what there is into the store."""

    def run(**options: Any) -> export.Exported:
        return export.run(**{"lake": bucket, "database": database, "spark": lambda: spark, "say": lambda _: None, **options})

    return run


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_every_job_does_its_work_there(pipeline: Cli, bucket: Lake, database_url: str, tmp_path: Path) -> None:
    """From the export to a reconciliation with receipts of the store; and the report holds no key."""
    play(pipeline, bucket, database_url, tmp_path / "report.html")

    assert HIDDEN not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_of_two_exports_at_once_one_is_refused(
    exported: Export, archived: Archived, spark: SparkSession, bucket: Lake, object_store: ObjectStore, database_url: str
) -> None:
    """The one that commits last leaves no file, and the next finds nothing to do."""
    archived({})
    exported()
    archived({})
    others: list[export.Exported] = []

    def meanwhile() -> SparkSession:
        if not others:
            others.append(exported())
        return spark

    with pytest.raises(ConflictError, match="Another export was faster"):
        exported(spark=meanwhile)

    assert (1, 0) == (others[0].rows, exported().rows)
    assert 2 == len(object_store.files(_folder(bucket)))
    assert in_postgres(database_url) == in_lake(bucket)


def test_a_commit_that_arrives_after_its_error_finds_its_files(
    exported: Export, archived: Archived, bucket: Lake, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may answer too late: the next run continues after the rows that arrived meanwhile, and each row is there once."""
    archived({})
    exported()
    archived({})
    write, late = delta_lake._write, list[Callable[[], None]]()

    def delayed(*values: Any, **options: Any) -> None:
        late.append(lambda: write(*values, **options))
        raise OSError("error sending request: timed out")

    with monkeypatch.context() as patched:
        patched.setattr(delta_lake, "_write", delayed)
        with pytest.raises(UnreachableError):
            exported()
    late[0]()
    archived({})

    assert 1 == exported().rows
    assert in_postgres(database_url) == in_lake(bucket)


def test_another_cluster_is_refused_and_adopted_there(exported: Export, archived: Archived, bucket: Lake, database_url: str) -> None:
    """What the lake has already is read again from the store and left out."""
    archived({}, {})
    exported()
    bucket.opened("archive").alter.set_table_properties({"outbox_relay.system_identifier": "1"}, raise_if_not_exists=False)
    archived({})

    with pytest.raises(PipelineError, match="--adopt"):
        exported()

    assert (1, 2, 0) == ((done := exported(adopt=True)).rows, done.known, done.differing)
    assert (0, 0) == ((done := exported()).rows, done.known)
    assert in_postgres(database_url) == in_lake(bucket)


def test_a_vacuum_removes_there_what_no_version_needs(
    exported: Export, archived: Archived, bucket: Lake, database: Database, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What compaction replaced, and what a killed export left; the clock is the store's own, so the table's retention is none here."""
    for _ in range(2):
        archived({})
        exported()
    bucket.opened("archive").alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    monkeypatch.setattr(compact, "LEAST_RETENTION", 0)
    object_store.write(f"{_folder(bucket)}/day=2024-05-01/part-of-nobody.parquet", b"not even Parquet")

    done = compact.run(lake=bucket, database=database, say=lambda _: None, retention_hours=0)

    assert (2, 1, 3) == (done.files_before, done.files_after, done.removed)
    assert 1 == len(object_store.files(_folder(bucket)))
    assert 2 == bucket.dataset("archive").count_rows()


def _folder(bucket: Lake) -> str:
    return bucket.place.path(bucket.place.table("archive")).removeprefix("lake/")


JOBS = (["export"], ["verify"], ["compact"], ["metrics"], ["report"], ["replay", "--job", "one", "--exchange", "a"])


@pytest.mark.parametrize(
    ("url", "options", "code", "words"),
    [
        ("s3://nowhere/lake", {}, 1, "The bucket of s3://nowhere/lake does not exist"),
        ("s3://lake/away", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "max_retries": "0"}, 4, "does not answer"),
        ("s3://lake/none", {"AWS_ENDPOINT_URL": "127.0.0.1:1"}, 1, "AWS_ENDPOINT_URL in RELAY_LAKE_OPTIONS is no endpoint"),
        ("s3://lake/safe", {"AWS_ALLOW_HTTP": "false"}, 1, "AWS_ALLOW_HTTP"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_a_store_that_cannot_be_used_is_one_sentence(
    pipeline: Cli, object_store: ObjectStore, url: str, options: dict[str, str], code: int, words: str
) -> None:
    """A bucket that is not there, an endpoint that is away or none: by each job, without colours and without keys."""
    env = {"RELAY_LAKE_URL": url, "RELAY_LAKE_OPTIONS": json.dumps(object_store.options | options)}

    for job in JOBS:
        _is_plain(pipeline.refused("pipeline", *job, code=code, **env), words)


@pytest.mark.usefixtures("spark")
def test_a_wrong_key_is_one_sentence(pipeline: Cli, object_store: ObjectStore) -> None:
    """Of each job; what the store answers about the key does not show it."""
    with object_store.knowing_nobody():
        for job in JOBS:
            _is_plain(pipeline.refused("pipeline", *job, code=1), "refuses access")


def _is_plain(sentence: str, words: str) -> None:
    assert words in sentence
    assert sentence.isprintable()
    assert [] == [part for part in (HIDDEN, KEY, "<", "\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}") if part in sentence]


def test_a_store_that_fails_within_spark_is_the_same_sentence(
    exported: Export, archived: Archived, spark: SparkSession, bucket: Lake, object_store: ObjectStore
) -> None:
    """Its tasks read and write the store themselves."""
    archived({})
    exported()
    found = bucket.dataframe(spark, "archive")
    archived({})

    def refusing() -> SparkSession:
        object_store.refuse_keys()
        return spark

    try:
        with pytest.raises(LakeError, match="refuses access"):
            exported(spark=refusing)
        with pytest.raises(Exception, match=r"\[relay LakeError\] The lake \S+ refuses access"):
            found.collect()
    finally:
        object_store.accept_keys()
