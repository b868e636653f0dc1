"""Where a lake may be, and what is said where it cannot be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relay.errors import LakeError, UnreachableError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.errors import sentence
from relay.pipeline.lake.location import LakeLocation
from relay.pipeline.replay import job as replay
from relay.pipeline.replay.selection import Selection
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify
from tests.pipeline.conftest import Archived
from tests.support.lake.exporting import export
from tests.support.lake.jobs import play
from tests.support.relays.cli import Cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = LakeLocation("s3://lake/x", {"AWS_ACCESS_KEY_ID": "AKIAHIDDEN", "AWS_SECRET_ACCESS_KEY": "hidden/word"})
ARROW = " \x1b[31m\N{DOWNWARDS ARROW WITH TIP RIGHTWARDS}\x1b[0m "
"""How the table library joins what happened, in colour."""


@pytest.mark.slow
@pytest.mark.spark
def test_every_job_does_its_work_in_a_folder_of_odd_letters(cli: Cli, database_url: str, spark: SparkSession, tmp_path: Path) -> None:
    """Its letters are a pattern, an escape or a separator elsewhere; a folder next to it that would match the name is not read."""
    lake = Lake(str(tmp_path / "{a,b} *?#%\N{LATIN SMALL LETTER U WITH DIAERESIS}"))
    cli.env["RELAY_LAKE_URL"] = lake.place.url

    play(cli, lake, database_url, tmp_path / "report.html")
    shutil.copytree(lake.place.url, tmp_path / "a xy#%\N{LATIN SMALL LETTER U WITH DIAERESIS}")
    assert 3 == lake.dataframe(spark, "archive").count()


@pytest.mark.parametrize("name", ["[]", "a[b", "a%20b", "a\\b", "a^b", "a|b", "a\nb", "a\x7fb", "a\udc80b"])
def test_a_folder_that_the_table_library_reads_as_another_is_refused(cli: Cli, tmp_path: Path, name: str) -> None:
    """By each job before it begins, and nothing is made."""
    with pytest.raises(LakeError, match=r"^The path in RELAY_LAKE_URL holds .*: name another folder\.$"):
        Lake(str(tmp_path / name))

    if name.isprintable():
        for job in (["export"], ["metrics"], ["verify"], ["compact"], ["report"], ["run"], ["replay", "--job", "one", "--exchange", "a"]):
            assert "name another folder" in cli.refused("pipeline", *job, code=1, RELAY_LAKE_URL=str(tmp_path / name))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("below", ["", "/lake"])
def test_a_file_in_the_place_of_the_folder_is_refused(cli: Cli, tmp_path: Path, below: str) -> None:
    """By each job before it begins, and named."""
    (tmp_path / "file").touch()

    for job in (["export"], ["metrics"], ["verify"], ["compact"], ["report"], ["run"], ["replay", "--job", "one", "--exchange", "a"]):
        sentence = cli.refused("pipeline", *job, code=1, RELAY_LAKE_URL=f"{tmp_path}/file{below}")
        assert f"RELAY_LAKE_URL leads to {tmp_path}/file, which is a file and no folder: name a folder." == sentence


@pytest.mark.parametrize(
    "url", ["s3://b/a?b", "s3://b/a#b", "s3://b/a%2Fb", "s3://b/a//b", "s3://b/../a", "s3://b/a/.", "s3://[b/a", "file://host/a", "s3:a"]
)
def test_a_url_whose_tables_would_be_elsewhere_is_refused(url: str) -> None:
    """The table library and Arrow would write to different places."""
    with pytest.raises(LakeError, match="RELAY_LAKE_URL"):
        Lake(url)


@pytest.mark.parametrize(
    "url", ["s3://b", "s3://b/", "s3a://b/a b", "gs://b/{a}*/\N{LATIN SMALL LETTER U WITH DIAERESIS}", "file:///a%20b"]
)
def test_a_url_that_means_one_place_is_taken(url: str) -> None:
    """An escape of a file's URL is none of its path."""
    assert "%" not in Lake(url).place.url


def test_a_store_without_options_says_one_line(cli: Cli, unused_tcp_port: int) -> None:
    """The library asks a cloud's machines for a region, and warns in lines of its own if it gets no answer."""
    cli.env |= {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{unused_tcp_port}", "RELAY_LAKE_URL": "s3://b"}

    _, said = cli.start("pipeline", "verify").communicate()

    assert "of s3://b " in said
    assert 1 == said.count("\n")


@pytest.mark.parametrize("endpoint", ["host:9000", "http://[oops", "http://", "http://host:port", "ftp://host"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    """The table library would panic on it, with lines of its own."""
    with pytest.raises(LakeError, match=r"^endpoint in RELAY_LAKE_OPTIONS is no endpoint"):
        Lake("s3://b/a", {"endpoint": endpoint})


AWAY = (UnreachableError, "The object store of s3://lake/x does not answer: check that it runs, and the endpoint in RELAY_LAKE_OPTIONS")
REFUSED = (LakeError, "The lake s3://lake/x refuses access: correct RELAY_LAKE_OPTIONS or the permissions there")
OTHER = (LakeError, "The lake s3://lake/x cannot be used: check RELAY_LAKE_URL and RELAY_LAKE_OPTIONS")
REQUEST = f"Generic S3 error{ARROW}Error performing GET http://h:4030/part-503 in 403.1ms{ARROW}"
KEY = "<Code>InvalidAccessKeyId</Code><Message>Nobody has hidden/word.</Message><AWSAccessKeyId>AKIAHIDDEN</AWSAccessKeyId>"


@pytest.mark.parametrize(
    ("said", "judged", "words"),
    [
        (f"{REQUEST}error sending request{ARROW}connect{ARROW}Connection refused", AWAY, "connect: Connection refused"),
        (f"{REQUEST}503 Service Unavailable{ARROW}<Error><Code>SlowDown</Code></Error>", AWAY, "SlowDown"),
        (f"{REQUEST}403 Forbidden{ARROW}<Error>\n{KEY}</Error>", REFUSED, "InvalidAccessKeyId: Nobody has ***"),
        ("AWS Error ACCESS_DENIED during HeadBucket", REFUSED, "AWS Error ACCESS_DENIED during HeadBucket"),
        ("When writing key 'timeout/quota/403-503.parquet': odd", OTHER, "When writing key 'timeout/quota/403-503.parquet': odd"),
    ],
)
def test_what_a_store_says_becomes_one_sentence(said: str, judged: tuple[type[Exception], str], words: str) -> None:
    """Judged by what happened and not by digits and names in it; without colours, answers in XML, and keys."""
    found = sentence(OSError(said), STORE)

    assert (judged[0], f"{judged[1]} ({words}).") == (type(found), str(found))


def test_a_folder_on_a_disk_is_always_reachable(tmp_path: Path) -> None:
    """No operator should wait for it to come back."""
    assert type(sentence(OSError("connection timed out"), LakeLocation(str(tmp_path)))) is LakeError


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b""), lambda file: file.write_bytes(file.read_bytes()[:-9])])
def test_a_damaged_file_is_a_sentence_that_names_it(
    lake: Lake, database: Database, archived: Archived, damage: Callable[[Path], object]
) -> None:
    """Gone, empty or cut: a verification of what was verified says so, and a replay ends with it."""
    archived({})
    export(lake, database)
    verify.run(lake=lake, database=database, say=lambda _: None)
    [file] = Path(lake.place.url).rglob("*.parquet")
    damage(file)

    [damaged] = verify.run(lake=lake, database=database, say=lambda _: None, again=True).differing
    assert file.name in str(damaged.difference)
    with pytest.raises(LakeError, match=r"^The file archive/.* of the lake .* is missing or damaged: put it back from .*\)\.$"):
        replay.run(lake=lake, database=database, say=lambda _: None, selection=Selection(exchange="orders"))
