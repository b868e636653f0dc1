"""An export as a process of its own, with a session of its own: `python -m tests.pipeline.exporter OPTIONS`, one JSON object.

Tests kill its whole process group, or start it on another kind of master.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

from relay.errors import PipelineError
from relay.pipeline.export import job as export
from relay.pipeline.export.sizes import Sizes
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.database import Database
from relay.pipeline.spark.session import spark_session


def start(url: str, lake: str, *, master: str = "local[2]", spark: dict[str, str] | None = None, **sizes: int) -> subprocess.Popen[str]:
    """Start an export in a process group of its own; its last line is its result."""
    given = json.dumps({"url": url, "lake": lake, "master": master, "spark": spark or {}, "sizes": sizes})
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.exporter", given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def main(given: dict[str, Any]) -> int:
    """Export once."""
    session = spark_session("relay tests", given["master"], {"spark.driver.memory": "1g", **given["spark"]})
    print(json.dumps({"session": "ready"}), flush=True)  # noqa: T201
    try:
        with Database(given["url"]) as database:
            sizes = Sizes(**given["sizes"])
            done = export.run(lake=Lake(given["lake"]), database=database, spark=lambda: session, say=lambda _: None, sizes=sizes)
    except PipelineError as error:
        print(json.dumps({"error": str(error), "exit_code": error.exit_code}), flush=True)  # noqa: T201
        return error.exit_code
    print(json.dumps(dataclasses.asdict(done)), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
