"""The Spark session of the pipeline's jobs: Java found, times in UTC, no secret in its configuration."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from relay.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # The files are Arrow's: their first centuries are those of everybody's calendar, not Spark 2's.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_PARTS = "spark.sql.shuffle.partitions"
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}
"""Where Spark runs for one command only: no page, no log; what fails is said by the job in one sentence."""


def spark_session(app: str, master: str | None = None, options: dict[str, str] | None = None) -> SparkSession:
    """The running session, else a new one; `master` as spark-submit takes it, by default what Spark's own settings say, else local[*].

    Raises:
        PipelineError: there is no PySpark, no Java, or it does not start.
    """
    try:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - half a second that other commands do not pay
        from pyspark.errors import PySparkException  # noqa: PLC0415 - as above
        from pyspark.sql import SparkSession  # noqa: PLC0415 - as above
    except ImportError as error:
        raise PipelineError("PySpark is missing: install outbox-relay[pipeline].") from error
    if (running := SparkSession.getActiveSession()) is not None:
        return running
    _find_java()
    try:
        return _fitted(_builder(SparkSession.Builder(), app, master, options or {}).getOrCreate())
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"Spark does not start: it needs Java 17 or 21 by JAVA_HOME or on the PATH ({_first_line(error)}).") from error


def _fitted(session: SparkSession) -> SparkSession:
    """Shuffles in as many parts as there are cores where nobody chose: Spark's 200 made 12 s of work 42 s on two cores."""
    context = session.sparkContext
    if not context.getConf().contains(_PARTS):
        session.conf.set(_PARTS, str(max(2, context.defaultParallelism)))
    return session


def started() -> bool:
    """Whether this process has a session already."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    return SparkSession.getActiveSession() is not None


def _builder(builder: SparkSession.Builder, app: str, master: str | None, options: dict[str, str]) -> SparkSession.Builder:
    master = master or os.environ.get("SPARK_MASTER")
    local = not _submitted() and (master or _usual_master() or "local").startswith("local")
    if local:
        # Workers of the same Python as the driver, whatever `python3` is on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {**(_local() if local else {}), **_ALWAYS, **options}
    for name, value in settings.items():
        builder = builder.config(name, value)
    if master is not None:
        builder = builder.master(master)
    return builder.appName(app)


def _local() -> dict[str, str]:
    """Settings that need the JVM's own words: they are there before the JVM is."""
    quiet = files("relay.pipeline") / "log4j2.properties"
    return {**_LOCAL, "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}"}


def _usual_master() -> str | None:
    """The master that Spark will take of its own settings: an executor elsewhere must not look for its driver on its own machine."""
    folder = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    with suppress(OSError):
        named = re.findall(
            r"(?m)^[ \t]*spark\.master[ \t]*[ \t=:][ \t]*(\S+)", Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
        )
        return named[-1] if named else None
    return None


def _submitted() -> bool:
    """Started by spark-submit, whose settings then hold."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _find_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if _submitted() or shutil.which("java") or (home and os.access(f"{home}/bin/java", os.X_OK)):
        return
    raise PipelineError("Spark needs Java 17 or 21 and finds none: install openjdk-17-jre-headless, or set JAVA_HOME.")


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    # Py4J says first where it was, and Java's own words after a colon.
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0])[:300]
