"""What the driver makes of an error that came from an executor."""

from __future__ import annotations

from pyspark.errors import PySparkRuntimeError

from relay.pipeline.tasks import failure


def test_a_python_of_another_version_is_named() -> None:
    """By Spark's own words, which name both versions."""
    versions = {"worker_version": "3.9", "driver_version": "3.11"}
    said = failure(PySparkRuntimeError(errorClass="PYTHON_VERSION_MISMATCH", messageParameters=versions))

    assert str(said).startswith("The executors' Python is 3.9 and the driver's 3.11: ")


def test_what_spark_says_of_itself_is_left_to_the_job() -> None:
    """There is no sentence of the pipeline's for it."""
    assert failure(RuntimeError("Job aborted due to stage failure")) is None
