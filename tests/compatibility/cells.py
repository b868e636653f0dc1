"""Runs the suites on one pair of versions, and remembers in a file what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests import ROOT

LEFT_OUT: Mapping[str, str] = {
    "tests/unit": "starts no server",
    "tests/simulation": "starts no server",
    "tests/mutants": "plays tests of other folders against broken copies",
    "tests/containers": "the versions are those of the images",
    "tests/examples": "programs of applications, whose INSERT other tests send too",
    "tests/pipeline": "meets the servers only by SQL that other tests run too",
    "tests/integration/server/test_local_java.py": "Java for the pipeline",
}
"""Folders and files of tests that no suite plays, and why."""
SUITES: Mapping[str, Sequence[str]] = {
    "contract": ["tests/contract"],
    "targets": ["tests/compatibility"],
    "cluster": ["tests/faults/test_cluster.py"],
    "security": ["tests/security"],
    "borders": ["tests/faults", "tests/integration", "--ignore=tests/faults/test_cluster.py"],
    "acceptance": ["-m", "not spark", "tests/acceptance"],
}
"""Words for pytest, which also gets `--ignore` for what is left out; what starts Spark is left out as the pipeline is."""
RESULTS = ROOT / "build" / "compatibility.jsonl"
Line = Mapping[str, Any]


def lines() -> list[Line]:
    """What is in the file, oldest first."""
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []


def note(line: Line) -> None:
    """Append a line."""
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def commit() -> str:
    """What is tested."""
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return said.stdout.strip() or "no checkout"


def words(suite: str) -> list[str]:
    """The arguments that select a suite's tests in pytest."""
    return [*SUITES[suite], *(f"--ignore={path}" for path in LEFT_OUT)]


def passed(suite: str, versions: Mapping[str, str], at: str) -> bool:
    """Whether the suite has passed on these versions at that commit."""
    wanted = {"suite": suite, "commit": at, **versions}
    return any(wanted.items() <= line.items() and line.get("failed") == 0 for line in lines())


def play(suite: str, versions: Mapping[str, str], environment: Mapping[str, str]) -> Line:
    """Run a suite on private servers of these versions, and note the result; its output is in build/."""
    name = f"compatibility-{'-'.join([*versions.values(), suite])}"
    report, output = (RESULTS.with_name(f"{name}.{kind}") for kind in ("xml", "log"))
    RESULTS.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1", f"--junit-xml={report}", *words(suite)]
    began, at = time.monotonic(), commit()
    with output.open("wb") as file:
        subprocess.run(command, cwd=ROOT, env={**_clean(), **environment}, stdout=file, stderr=subprocess.STDOUT, check=False)
    ended = {"seconds": round(time.monotonic() - began), "date": datetime.now(UTC).date().isoformat(), "output": output.name}
    line = {"suite": suite, **versions, **counts(report), "commit": at, **ended}
    note(line)
    return line


def counts(report: Path) -> Line:
    """Tests that passed, failed and were skipped, of a JUnit report; a run of no test has failed."""
    cases = [*ET.parse(report).getroot().iter("testcase")] if report.exists() else []  # noqa: S314 - written by the pytest that was just run
    if not cases:
        return {"passed": 0, "failed": 1, "skipped": 0, "names": ["the run itself"]}
    bad = [f"{case.get('classname')}::{case.get('name')}" for case in cases if _has(case, "failure") or _has(case, "error")]
    skipped = sum(_has(case, "skipped") for case in cases)
    return {"passed": len(cases) - len(bad) - skipped, "failed": len(bad), "skipped": skipped, "names": bad}


def _has(case: ET.Element, kind: str) -> bool:
    return case.find(kind) is not None


def _clean() -> dict[str, str]:
    """This environment without servers that somebody lends, and with the cluster that the short form does without."""
    kept = {name: value for name, value in os.environ.items() if name not in {"TEST_DATABASE_URL", "TEST_AMQP_URL"}}
    return {**kept, "TEST_CLUSTER": "1"}
