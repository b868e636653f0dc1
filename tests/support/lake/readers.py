"""Programs that read the lake in `build/readers`, an environment of their own: DuckDB, delta-spark, dbt, notebooks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from relay.devservers.java import QUICK_START, find_java
from relay.devservers.process import plain_environment
from tests import ROOT

READERS = ROOT / "build" / "readers"
Rows = list[tuple[Any, ...]]
_MISSING = "the packages of requirements/readers.txt are not installed; type: make readers (REQUIRE_READERS=1 makes this a failure)"
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a Java that ends before its best compiler pays."""
_DELTA = (
    "spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions 1",
    "spark.sql.shuffle.partitions 1",
    "spark.ui.enabled false",
    "spark.master local[1]",
    f"spark.driver.extraJavaOptions {' '.join(SHORT_LIVED)}",
)
"""What the format needs, and what keeps a test small."""
_BYTES = ("BLOB", "binary")
"""How the readers call bytes."""
_SECONDS = 300.0
"""For a program that starts a Spark on a busy machine."""


class Seen(NamedTuple):
    """What a reader sees of a table: the type of each column by the reader's own name, and rows in order, in the form of AS_TEXT."""

    types: dict[str, str]
    rows: Rows


def told(printed: str) -> Seen:
    """What a reader printed as JSON, with bytes in hexadecimal."""
    found = json.loads(printed)
    in_bytes = [kind in _BYTES for kind in found["types"].values()]
    rows = [
        tuple(bytes.fromhex(value) if hexed and value is not None else value for hexed, value in zip(in_bytes, row, strict=True))
        for row in found["rows"]
    ]
    return Seen(found["types"], rows)


def delta_spark(folder: Path, *more: str) -> dict[str, str]:
    """Settings of a small Spark with delta-spark's jars, as a program's environment; `more` are lines of spark-defaults.conf."""
    jars = ",".join(map(str, (READERS / "jars").glob("*.jar")))
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "spark-defaults.conf").write_text("\n".join([*_DELTA, f"spark.jars {jars}", *more]), encoding="utf-8")
    return {"SPARK_CONF_DIR": str(folder / "conf")}


def require_readers() -> None:
    """Skip the test with a sentence where the environment was not made; REQUIRE_READERS=1 makes that a failure."""
    if not (READERS / ".made").exists():
        (pytest.fail if os.environ.get("REQUIRE_READERS") == "1" else pytest.skip)(_MISSING)


def run_reader(*words: object, home: Path, folder: Path | None = None, settings: Mapping[str, str] | None = None) -> str:
    """Run a program of that environment to its end, which must be a success; return what it printed.

    The test is skipped with a sentence where the environment was not made, see `require_readers`.
    """
    require_readers()
    done = subprocess.run(
        [READERS / "bin" / str(words[0]), *map(str, words[1:])], cwd=folder or home, env={**_environment(home), **(settings or {})},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_SECONDS,
    )  # fmt: skip
    assert 0 == done.returncode, (words, done.stdout, done.stderr)
    return done.stdout


def _environment(home: Path) -> dict[str, str]:
    """A home of the test's own, where DuckDB keeps its extensions; the environment's programs, and a Java of Spark's first."""
    java = find_java()
    path = os.pathsep.join([str(READERS / "bin"), str(java / "bin"), os.environ["PATH"]])
    return {
        **plain_environment(home),
        **QUICK_START,
        "PATH": path,
        "JAVA_HOME": str(java),
        "PYSPARK_PYTHON": str(READERS / "bin" / "python"),
    }
