"""Which settings the session gets from here, and which it leaves to Spark's own; nothing is started."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from relay.errors import PipelineError
from relay.pipeline.spark.session import _builder, _pass_on, spark_session


class Recorder:
    """A builder that keeps what it is given."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def config(self, name: str, value: str) -> Recorder:
        """Keep a setting."""
        self.given[name] = value
        return self

    def master(self, master: str) -> Recorder:
        """Keep the master."""
        return self.config("spark.master", master)

    def appName(self, app: str) -> Recorder:  # noqa: N802 - the name is Spark's
        """Keep the name."""
        return self.config("spark.app.name", app)


def settings(master: str | None = None) -> dict[str, str]:
    """What a session is built with."""
    recorder = Recorder()
    builder: Any = recorder
    _builder(builder, "tests", master, {})
    return recorder.given


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's Spark; a folder for settings."""
    for name in ("SPARK_MASTER", "SPARK_HOME", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python3")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


@pytest.mark.parametrize("line", ["spark.master yarn", "spark.master=spark://one:7077", "  spark.master\t:  k8s://https://one"])
def test_a_cluster_of_sparks_own_settings_gets_no_setting_for_one_machine(line: str, tmp_path: Path) -> None:
    """Executors there would look for a driver on 127.0.0.1, and the job would wait for them without end and without a word."""
    (tmp_path / "spark-defaults.conf").write_text(f"# spark.master local\n{line}\nspark.executor.memory 1g\n", encoding="utf-8")

    assert not {"spark.driver.host", "spark.log.level", "spark.master"} & settings().keys()


@pytest.mark.parametrize("text", ["", "spark.master local[2]\n", "# spark.master yarn\n"])
def test_without_a_cluster_spark_keeps_to_this_machine(text: str, tmp_path: Path) -> None:
    """No page, no log, and a driver that only this machine reaches."""
    (tmp_path / "spark-defaults.conf").write_text(text, encoding="utf-8")

    assert "127.0.0.1" == settings()["spark.driver.host"]
    assert "spark.driver.host" not in settings("spark://one:7077")
    assert "127.0.0.1" == settings("local[1]")["spark.driver.host"]


def test_workers_of_a_submitted_job_have_the_python_that_spark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's own path may not be there on another machine."""
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    settings()

    assert "PYSPARK_PYTHON" not in os.environ


JVM = Py4JError("An error occurred while calling x.\n: org.apache.spark.SparkException: Asked for 512 MiB/worker\n\tat y")
DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/x")


@pytest.mark.parametrize(
    ("error", "words"),
    [(JVM, r"it needs Java 17 or 21 .*512 MiB/worker\)"), (DISK, r"this machine lacks .*No space left on device: '/var/x'\)")],
)
def test_a_jvm_that_refuses_or_cannot_be_made_is_a_sentence(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    """Py4J's errors are none of PySpark's, and a full disk is neither's."""

    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("relay.pipeline.spark.session._start_quietly", refuse)

    with pytest.raises(PipelineError, match=f"^Spark does not start: {words}"):
        spark_session("relay tests")


def test_what_the_jvm_says_is_passed_on_but_for_its_noise(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that it writes past every log at each start are left out, an error is not."""
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding="utf-8") as jvm:
        jvm.write('WARNING: Using incubator modules: jdk.incubator.vector\nError: no memory\nSetting Spark log level to "OFF".\nlast')

    _pass_on(read)

    assert "Error: no memory\nlast" == capsys.readouterr().err
