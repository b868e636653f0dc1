"""A standalone Spark cluster on this machine: a master and two workers, each a process of its own, and what `spark-submit` needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from relay.devservers.process import LOOPBACK, Keeper, poll

HOME = Path(pyspark.__file__).parent
WORKERS = 2
_MEMORY = "1g"


class SparkCluster:
    """Where it listens, and the events of its last job; executors are children of its workers."""

    def __init__(self, url: str, folder: Path, workers: Sequence[int]) -> None:
        self.url = url
        self._folder = folder
        self._workers = workers
        self._jobs = 0

    @property
    def _events(self) -> Path:
        return self._folder / f"events{self._jobs}"

    def submit(self, *words: str, env: Mapping[str, str], **settings: str) -> subprocess.Popen[str]:
        """Start `spark-submit … "$(relay pipeline entry)" words`; a setting's name has two underscores for each dot."""
        self._jobs += 1
        self._events.mkdir()
        entry = subprocess.run([sys.executable, "-m", "relay", "pipeline", "entry"], check=True, capture_output=True, text=True)
        given = {"spark." + name.replace("__", "."): value for name, value in settings.items()}
        usual = {
            "spark.driver.host": LOOPBACK,
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        confs = [word for name, value in (usual | given).items() for word in ("--conf", f"{name}={value}")]
        return subprocess.Popen(
            [HOME / "bin/spark-submit", "--master", self.url, *confs, entry.stdout.strip(), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**_environment(), **env},
        )

    def events(self, kind: str) -> Iterator[dict[str, object]]:
        """What the last job's driver noted, of one kind, such as `SparkListenerTaskStart`."""
        for path in self._events.iterdir():
            for line in path.read_text().splitlines():
                if f'"Event":"{kind}"' in line:
                    yield json.loads(line)

    def executors(self) -> list[int]:
        """Processes that carry out tasks on this cluster's workers, for any driver."""
        parents = ",".join(map(str, self._workers))
        words = ["pgrep", "--parent", parents, "-f", "CoarseGrainedExecutorBackend .*--worker-url"]
        found = subprocess.run(words, check=False, capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]


@contextmanager
def spark_cluster() -> Iterator[SparkCluster]:
    """A master and two workers with one core each, until the end."""
    keeper = Keeper("relay-spark-")
    daemons = []
    try:
        master = ["--host", LOOPBACK, "--port", "0", "--webui-port", "0"]
        daemons.append(keeper.spawn("master", _daemon("master.Master", *master), _environment(), end_by="KILL"))
        url = _said(keeper.folder / "master.out", r"Starting Spark master at (spark://\S+)")
        for number in range(WORKERS):
            # Addresses of their own: Spark begins a slow task again on another host only.
            host = f"127.0.0.{2 + number}"
            place = ["--host", host, "--webui-port", "0", "--work-dir", str(keeper.folder / f"work{number}")]
            words = ["--cores", "1", "--memory", _MEMORY, *place, url]
            env = {**_environment(), "SPARK_LOCAL_IP": host}
            daemons.append(keeper.spawn(f"worker{number}", _daemon("worker.Worker", *words), env, end_by="KILL"))
            _said(keeper.folder / f"worker{number}.out", r"(Successfully registered with master)")
        _, *workers = (daemon.pid for daemon in daemons)
        yield SparkCluster(url, keeper.folder, workers)
    finally:
        keeper.close()
        for daemon in daemons:
            daemon.wait()


def _daemon(name: str, *words: str) -> list[str]:
    return [str(HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *words]


def _environment() -> dict[str, str]:
    here = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYTHONPATH": str(Path.cwd())}
    return {**os.environ, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": LOOPBACK, "SPARK_DAEMON_MEMORY": "256m", **here}


def _said(output: Path, pattern: str) -> str:
    """What a daemon says in its first minute."""
    poll(lambda: re.search(pattern, output.read_text(errors="replace")) is not None, seconds=60)
    found = re.search(pattern, text := output.read_text(errors="replace"))
    assert found, text
    return found[1]
