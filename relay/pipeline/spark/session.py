"""Starts the Spark session of the pipeline's jobs: finds Java, sets UTC, and keeps secrets out of the configuration."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from relay.errors import PipelineError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    # Arrow wrote the files: early dates are in the proleptic Gregorian calendar, not in that of Spark 2.
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
"""Settings for a Spark that runs for one command only: no web page and no log. The job itself reports a failure in one sentence."""
_NOISE = ("WARNING: Using incubator modules", "Setting default log level to", "To adjust logging level use", "Setting Spark log level to")
"""Beginnings of the lines that the JVM prints at each start, whatever the log settings."""


def spark_session(app: str, master: str | None = None, options: dict[str, str] | None = None) -> SparkSession:
    """The running session, or a new one. `master` is in spark-submit's form; by default it comes from Spark's own settings, or is local[*].

    Raises:
        PipelineError: PySpark or Java is missing, or Spark does not start, for example on a full disk.
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
        builder = _builder(SparkSession.Builder(), app, master, options or {})
        with _signals_kept():
            if _is_local(master):
                _start_quietly(builder)
            return _fitted(builder.getOrCreate())
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"Spark does not start: it needs Java 17 or 21 by JAVA_HOME or on the PATH ({_first_line(error)}).") from error
    except OSError as error:
        raise PipelineError(
            f"Spark does not start: this machine lacks room for temporary files, processes or open files ({_first_line(error)})."
        ) from error


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep the caller's handler for Ctrl-C: Spark replaces it with its own, which is meant for a shell."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before not in (signal.default_int_handler, signal.SIG_DFL, None) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _start_quietly(builder: SparkSession.Builder) -> None:
    """Start the JVM and pass on its output without the lines of `_NOISE`; the builder then finds the context of this JVM."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - as above

    if SparkContext._gateway is not None:  # noqa: SLF001 - a JVM that an earlier session has started
        return
    conf = SparkConf().setAll(list(builder._options.items()))  # noqa: SLF001 - as it will do itself
    read, write = os.pipe()
    passing = threading.Thread(target=_pass_on, args=[read], daemon=True)
    passing.start()
    try:
        gateway = _launched(conf, write)
    finally:
        os.close(write)
    SparkContext(conf=conf, gateway=gateway)


def _launched(conf: SparkConf, errors: int) -> JavaGateway:
    """The JVM, with its stderr going to the file descriptor `errors`.

    If the start is cut short, the JVM is killed; it would otherwise run for ever.
    """
    from pyspark import java_gateway  # noqa: PLC0415 - as above

    started: list[subprocess.Popen[bytes]] = []

    def start(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(*words, **more))
        return started[-1]

    with _patched(java_gateway, "Popen", start):
        try:
            return java_gateway.launch_gateway(conf, {"stderr": errors})  # type: ignore[no-untyped-call]
        except BaseException:
            for process in started:
                process.kill()
            raise


@contextmanager
def _patched(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Replace a module's attribute within the block."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _pass_on(read: int) -> None:
    with os.fdopen(read, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                with suppress(OSError, ValueError):
                    sys.stderr.write(line)
                    sys.stderr.flush()


def _fitted(session: SparkSession) -> SparkSession:
    """Shuffle in as many parts as there are cores, unless a number was set.

    With Spark's default of 200 parts, 12 s of work took 42 s on two cores.
    """
    context = session.sparkContext
    if not context.getConf().contains(_PARTS):
        session.conf.set(_PARTS, str(max(2, context.defaultParallelism)))
    return session


def started() -> bool:
    """Whether this process already has a session."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    return SparkSession.getActiveSession() is not None


def _builder(builder: SparkSession.Builder, app: str, master: str | None, options: dict[str, str]) -> SparkSession.Builder:
    master = master or os.environ.get("SPARK_MASTER")
    local = _is_local(master)
    if local:
        # Workers use the driver's Python, not the `python3` on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {**(_local() if local else {}), **_ALWAYS, **options}
    for name, value in settings.items():
        builder = builder.config(name, value)
    if master is not None:
        builder = builder.master(master)
    return builder.appName(app)


def _is_local(master: str | None) -> bool:
    """Whether Spark runs on this machine, for this command alone."""
    return not _submitted() and (master or os.environ.get("SPARK_MASTER") or _usual_master() or "local").startswith("local")


def _local() -> dict[str, str]:
    """Settings for Spark on this machine. They include an option of the JVM, so they must be set before the JVM starts."""
    quiet = files("relay.pipeline") / "log4j2.properties"
    return {**_LOCAL, "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet}"}


def _usual_master() -> str | None:
    """The master in Spark's own settings. With a cluster `_LOCAL` must not apply: executors would look for the driver on their machine."""
    folder = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    with suppress(OSError):
        named = re.findall(
            r"(?m)^[ \t]*spark\.master[ \t]*[ \t=:][ \t]*(\S+)", Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
        )
        return named[-1] if named else None
    return None


def _submitted() -> bool:
    """Whether spark-submit started this process; in this case its settings apply."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _find_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if _submitted() or shutil.which("java") or (home and os.access(f"{home}/bin/java", os.X_OK)):
        return
    raise PipelineError("Spark needs Java 17 or 21 and finds none: install openjdk-17-jre-headless, or set JAVA_HOME.")


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    # Py4J first says where the error occurred; Java's own message follows after a colon.
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0])[:300]
