"""What `make audit` tells of the locked packages: known vulnerabilities, a CycloneDX list of them, their licences.

Runs in an environment of its own, which `requirements/audit.txt` locks. What could not be found out counts as a failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCKS = ("runtime", "pipeline")
TOOLS = Path(sys.executable).parent
BUILD = Path("build")
SHOWN = 3
"""Names in a sentence."""


class Locked(NamedTuple):
    """One line of a lock file."""

    name: str
    version: str
    here: bool
    """Its marker holds for this Python and this system."""


def locked(lock: Path) -> Iterator[Locked]:
    """The packages of a lock file."""
    for line in lock.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith((" ", "#")):
            one = Requirement(line.removesuffix("\\").strip())
            version = str(one.specifier).removeprefix("==")
            yield Locked(canonicalize_name(one.name), version, one.marker is None or one.marker.evaluate())


def vulnerabilities(lock: Path) -> list[str]:
    """A sentence for each known vulnerability, and one for what the service did not answer."""
    names = {each.name for each in locked(lock) if each.here}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        failure = _run(
            "pip-audit --disable-pip --require-hashes --progress-spinner off --format json --output", answer, "--requirement", lock
        )
        try:
            found: list[dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))["dependencies"]
        except (OSError, ValueError, KeyError):
            return [f"{lock}: nothing was checked for vulnerabilities ({failure}): try again where pypi.org answers."]
    known = [f"{lock}: {_vulnerable(each, one)}." for each in found for one in each.get("vulns", [])]
    asked = {canonicalize_name(each["name"]) for each in found if "skip_reason" not in each}
    print(f"{lock}: {len(asked & names)} of {len(names)} packages checked, known vulnerabilities in them: {len(known)}")
    return known + _unanswered(lock, sorted(names - asked), len(names))


def _vulnerable(package: dict[str, Any], known: dict[str, Any]) -> str:
    versions = ", ".join(known.get("fix_versions") or [])
    return f"{package['name']} {package['version']} has {known['id']}, " + (f"mended in {versions}" if versions else "not mended yet")


def _unanswered(lock: Path, names: list[str], of: int) -> list[str]:
    if not names:
        return []
    some = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    return [f"{lock}: {len(names)} of {of} packages were not checked for vulnerabilities ({some}): try again where pypi.org answers."]


def _run(command: str, *more: str | Path) -> str:
    """Run a tool; the last line that it says where it fails."""
    tool, *arguments = command.split()
    done = subprocess.run([TOOLS / tool, *arguments, *more], capture_output=True, text=True, check=False)
    return (done.stderr.strip().splitlines() or [f"{tool} ended with {done.returncode}"])[-1] if done.returncode else ""


def bill(lock: Path) -> list[str]:
    """Write the CycloneDX list of a lock file, with the hashes; a sentence if that fails."""
    target = BUILD / f"sbom-{lock.stem}.cdx.json"
    failure = _run("cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file", target, lock)
    if failure:
        return [f"{target} could not be written ({failure})."]
    print(f"{target}: {len(list(locked(lock)))} packages")
    return []


def licences(lock: Path, installed: str) -> list[str]:
    """Write the table of licences, as the installed packages state them; a sentence for what states none or is not installed."""
    rows, mistakes = [], []
    for each in locked(lock):
        said = _licence(each, installed) if each.here else "not for this Python or system"
        rows.append(f"| {each.name} | {each.version} | {said or 'unknown'} |")
        if not said:
            mistakes.append(f"{lock}: the licence of {each.name} {each.version} is not known: look it up at its project.")
    target = BUILD / f"licences-{lock.stem}.md"
    target.write_text("\n".join(["| package | version | licence |", "|---|---|---|", *rows, ""]), encoding="utf-8")
    print(f"{target}: {len(rows)} packages")
    return mistakes


def _licence(one: Locked, installed: str) -> str:
    """SPDX expression, else classifiers, else the first line of the free text; empty for none."""
    for found in metadata.distributions(name=one.name, path=[installed]):
        about = found.metadata
        if about["Version"] != one.version:
            continue
        classifiers = [name.rpartition(" :: ")[2] for name in about.get_all("Classifier") or [] if name.startswith("License ::")]
        free = (about.get_all("License") or [""])[0].strip().splitlines()[:1]
        expression = (about.get_all("License-Expression") or [""])[0]
        return str(expression or ", ".join(classifiers) or "".join(free))
    return ""


def main() -> int:
    """Say all that was found; 1 if anything was, or could not be found out."""
    installed = sys.argv[1]
    BUILD.mkdir(exist_ok=True)
    mistakes = []
    for lock in (Path("requirements") / f"{name}.txt" for name in LOCKS):
        mistakes += [*vulnerabilities(lock), *bill(lock), *licences(lock, installed)]
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
