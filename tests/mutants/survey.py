"""`python -m tests.mutants.survey`: changes every expression of the core's modules, one at a time, and sees whether any test notices.

mutmut makes the mutants and tries them in a copy of the code below build/mutation, where an interrupted run continues. It forks them off
a process that has already imported the code. So a mutant that survives without a reason is tried once more, in a process of its own and
with the tests of today.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from relay import devservers
from tests import ROOT
from tests.mutants.page import Surveyed, Survivor, write_survey
from tests.mutants.ready import CONFTEST, DAY, SERVER, TEMPLATE
from tests.mutants.runner import COPIED
from tests.support.servers.shared import Databases, utc_today

CATALOG = Path(__file__).with_name("survey.toml")
FOLDER = ROOT / "build" / "mutation"
MUTMUT = Path(sys.executable).with_name("mutmut")
PYTEST = ("-p", "no:cacheprovider", "-o", "timeout=30", "--hypothesis-profile=ci")
"""No deadline of Hypothesis and no chance: a mutant must not be noticed because the machine was slow."""
SHOW = """
import json, sys
from mutmut.mutation.diff_apply import find_mutant, get_diff_for_mutant
print(json.dumps({name: get_diff_for_mutant(name, path=find_mutant(name).path) for name in sys.argv[1:]}))
"""
WORKERS = int(os.environ.get("WORKERS", "2"))
SURVIVED, UNTESTED, UNTRIED = 0, {5, 33}, {None, 2}
TIMEOUTS = {24, -24, 36, 152, 255}


class Group(NamedTuple):
    """Modules that the same tests hold."""

    name: str
    modules: list[str]
    tests: list[str]
    postgres: bool = False
    """One PostgreSQL runs for the whole of it."""
    slow: Sequence[str] = ()
    """Tests that are run only for what survives all others."""


class Change(NamedTuple):
    """A mutant by the lines that it takes and gives."""

    name: str
    module: str
    lines: str


def main(words: Sequence[str]) -> int:
    """Survey the groups that are named, or all; 1 if a mutant survives that the catalog does not explain."""
    entries = catalog()
    reasons = {(entry["module"], line): entry["reason"] for entry in entries["survivor"] for line in entry["lines"]}
    wanted = [word for word in words if not word.startswith("--")]
    groups = [group for group in (Group(**entry) for entry in entries["group"]) if not wanted or group.name in wanted]
    surveyed = [module for group in groups for module in survey(group, reasons)]
    for module in surveyed:
        _say(
            f"{module.name}: {module.mutants} mutants, {module.killed} noticed, {module.timeouts} by time, {len(module.survivors)} survive"
        )
    unexplained = [(module.name, change) for module in surveyed for change, reason in module.survivors if not reason]
    for name, change in unexplained:
        _say(f"NOT NOTICED: {name}: {change}")
    if "--write" in words and not wanted and not unexplained:
        write_survey(surveyed)
    return min(len(unexplained), 1)


def catalog() -> dict[str, list[dict[str, Any]]]:
    """Groups of modules, and survivors with their reasons."""
    return tomllib.loads(CATALOG.read_text(encoding="utf-8"))


def survey(group: Group, reasons: Mapping[tuple[str, str], str]) -> list[Surveyed]:
    """Try every mutant of a group that has not been tried, and what survived again; return what became of each module."""
    tree = FOLDER / group.name
    prepare(group, tree)
    with _servers(group) as places:
        environment = {**os.environ, **places}
        subprocess.run([MUTMUT, "run", "--max-children", str(WORKERS)], cwd=tree, env=environment, check=True)
        found = {module: _codes(tree, module) for module in group.modules}
        if missed := [name for codes in found.values() for name, code in codes.items() if code in UNTRIED]:
            raise SystemExit(f"{len(missed)} mutants of {group.name} were not tried; run this again.")
        alive = {name: module for module, codes in found.items() for name, code in codes.items() if code == SURVIVED or code in UNTESTED}
        lines = lines_of(tree, list(alive))
        changes = [Change(name, module, lines[name]) for name, module in alive.items()]
        explained = [change for change in changes if (change.module, change.lines) in reasons]
        survivors = [*explained, *_again(group, tree, [change for change in changes if change not in explained], environment)]
    return [_surveyed(module, codes, survivors, reasons) for module, codes in found.items()]


@contextmanager
def _servers(group: Group) -> Iterator[dict[str, str]]:
    """Where the tests need one, the environment that leads to one PostgreSQL for the whole run and to a migrated database there."""
    if not group.postgres:
        yield {}
        return
    with devservers.postgres(say=_say) as server:
        databases, day = Databases(server.url), utc_today()
        yield {SERVER: server.url, TEMPLATE: databases.create_migrated(), DAY: day.isoformat()}
        databases.drop_all()


def prepare(group: Group, tree: Path) -> None:
    """Copy the code as it is now; mutmut sees by the times of files what has changed since."""
    tree.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source, target = ROOT / name, tree / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    # What is no module is copied by mutmut once and never again.
    shutil.rmtree(tree / "mutants" / "relay" / "queries", ignore_errors=True)
    selection = [*group.tests, *(f"--deselect={test}" for test in group.slow)]
    settings = {
        "source_paths": ["relay"], "only_mutate": group.modules, "also_copy": ["sql"], "use_git_change_detection": False,
        "pytest_add_cli_args": list(PYTEST), "pytest_add_cli_args_test_selection": selection,
    }  # fmt: skip
    if group.postgres:
        with (tree / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
            conftest.write(CONFTEST)
    with (tree / "pyproject.toml").open("a", encoding="utf-8") as project:
        project.write("\n[tool.mutmut]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))


def lines_of(tree: Path, names: Sequence[str]) -> dict[str, str]:
    """What each mutant gives, or takes where it gives nothing, without its indent."""
    shown = subprocess.run([sys.executable, "-c", SHOW, *names], cwd=tree, check=True, capture_output=True, text=True).stdout
    return {name: _changed(diff) for name, diff in json.loads(shown.splitlines()[-1]).items()}


def _changed(diff: str) -> str:
    lines = [line for line in diff.splitlines() if line[:1] in {"+", "-"} and line[:3] not in {"+++", "---"}]
    given = [line[1:].strip() for line in lines if line[0] == "+"]
    return " ".join(given or ["without", *(line[1:].strip() for line in lines)])


def _codes(tree: Path, module: str) -> dict[str, int | None]:
    codes: dict[str, int | None] = json.loads((tree / "mutants" / f"{module}.meta").read_text(encoding="utf-8"))["exit_code_by_key"]
    return codes


def _again(group: Group, tree: Path, changes: Sequence[Change], environment: Mapping[str, str]) -> Iterator[Change]:
    """What survives in a process of its own too; what did not is remembered."""
    store = tree / "again.json"
    killed = set(json.loads(store.read_text(encoding="utf-8"))) if store.exists() else set()
    tests = json.loads((tree / "mutants" / "mutmut-stats.json").read_text(encoding="utf-8"))["tests_by_mangled_function_name"]
    open_ = [change for change in changes if f"{change.name} {change.lines}" not in killed]
    if open_ and not _green(tree / "mutants", "", group.tests, environment):
        raise SystemExit(f"The tests of {group.name} are red without any mutant; mend them and run this again.")
    _say(f"{group.name}: {len(open_)} survivors are tried again, each in a process of its own")

    def survives(change: Change) -> bool:
        recorded = tests.get(change.name.rpartition("__mutmut_")[0], [])
        # Code that runs at import is recorded under the test that happened to come first.
        reached = {test.partition("::")[0] for test in recorded} if len(recorded) > 1 else set(group.tests)
        # In the catalog's order: the quick ones first.
        return _green(tree / "mutants", change.name, [test for test in group.tests if test in reached], environment)

    with ThreadPoolExecutor(WORKERS) as workers:
        for number, (change, alive) in enumerate(zip(open_, workers.map(survives, open_), strict=True), 1):
            _say(f"{number}/{len(open_)} {'survives' if alive else 'noticed'}: {change.name}: {change.lines}")
            if alive:
                yield change
                continue
            killed.add(f"{change.name} {change.lines}")
            store.write_text(json.dumps(sorted(killed)), encoding="utf-8")


def _green(folder: Path, mutant: str, tests: Sequence[str], environment: Mapping[str, str]) -> bool:
    words = [sys.executable, "-m", "pytest", "-q", "-x", *PYTEST, "-o", "timeout=120", *tests]
    own = {**environment, "MUTANT_UNDER_TEST": mutant, "PYTHONPATH": str(folder)}
    return subprocess.run(words, cwd=folder, env=own, capture_output=True, check=False).returncode == 0


def _surveyed(module: str, codes: Mapping[str, Any], survivors: Sequence[Change], reasons: Mapping[tuple[str, str], str]) -> Surveyed:
    ours = [change for change in survivors if change.module == module]
    timeouts = sum(code in TIMEOUTS for code in codes.values())
    explained = [Survivor(change.lines, reasons.get((module, change.lines), "")) for change in ours]
    return Surveyed(module, len(codes), len(codes) - len(ours) - timeouts, timeouts, explained)


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this command is for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
