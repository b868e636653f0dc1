"""What the driver makes of an error that came from an executor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError

from relay.pipeline.spark.tasks import failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_python_of_another_version_is_named() -> None:
    """By Spark's own words, which name both versions."""
    versions = {"worker_version": "3.9", "driver_version": "3.11"}
    said = failure(PySparkRuntimeError(errorClass="PYTHON_VERSION_MISMATCH", messageParameters=versions))

    assert str(said).startswith("The executors' Python is 3.9 and the driver's 3.11: ")


def test_what_spark_says_of_itself_is_left_to_the_job() -> None:
    """There is no sentence of the pipeline's for it."""
    assert failure(RuntimeError("Job aborted due to stage failure")) is None


def started(spark: SparkSession, program: Path, folder: Path | None = None) -> str:
    """What the driver makes of a program that Java cannot start."""
    java = spark.sparkContext._jvm.java  # type: ignore[union-attr]
    builder = java.lang.ProcessBuilder([str(program)])
    if folder is not None:
        builder.directory(java.io.File(str(folder)))
    with pytest.raises(Py4JJavaError) as caught:
        builder.start()
    return str(failure(caught.value))


@pytest.mark.spark
def test_a_python_that_is_not_there_is_named(spark: SparkSession) -> None:
    """By Java's own words."""
    assert started(spark, Path("/gone/python")).startswith(
        "There is no Python at /gone/python on the executors' hosts: name an existing one"
    )


@pytest.mark.spark
@pytest.mark.parametrize("lacking", ["python", "folder"])
def test_where_a_folder_to_start_in_may_be_missing_both_are_named(spark: SparkSession, tmp_path: Path, lacking: str) -> None:
    """Java says the same of either; Spark gives each session that has files of its own a folder."""
    program, folder = (Path("/gone/python"), tmp_path) if lacking == "python" else (Path("/bin/true"), tmp_path / "gone")

    said = started(spark, program, folder)

    assert said.startswith(f"On the executors' hosts there is no Python at {program}, or no folder {folder} to start it in: ")
