"""Switches safeguards off, one in each copy of the code, and sees whether the test that holds it turns red. Never touches the checkout."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, Self

from tests import ROOT

CATALOG = Path(__file__).with_name("mutants.toml")
LIMIT = 180.0
"""Seconds in which a mutant must be noticed."""
HANGS = 25
"""Seconds after which a test that hangs is red by itself."""
UNMUTATED = 600.0
"""Seconds for all tests together, with every safeguard in its place."""
BARE = ("--noconftest", "-p", "pytest_asyncio.plugin", "-p", "pytest_timeout")
"""What a test without a server needs of pytest; everything else takes four times as long to import as such a test to run."""
COPIED = ("relay", "sql", "tests", "pyproject.toml")
WORKERS = 2
RED, GREEN, NEITHER = "red", "green", "neither"


class Mutant(NamedTuple):
    """A safeguard and how to switch it off."""

    name: str
    file: str
    before: str
    after: str
    test: str
    """The one test that must turn red; all of its cases where it names none."""
    fast: bool = False

    def applied(self, text: str) -> str:
        """The file without the safeguard.

        Raises:
            LookupError: the text before does not stand there exactly once.
        """
        if (found := text.count(self.before)) != 1:
            raise LookupError(
                f"{self.file} holds the text of {self.name!r} {found} times and not once: write tests/mutants/mutants.toml anew."
            )
        return text.replace(self.before, self.after)


class Verdict(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    killed: bool
    seconds: float
    note: str = ""


class Copy:
    """The code and its tests in a folder of their own, where they may be changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, folder / name)

    @classmethod
    @contextmanager
    def made(cls) -> Iterator[Self]:
        """A copy that is gone after the block."""
        with tempfile.TemporaryDirectory(prefix="relay-mutant-") as folder:
            yield cls(Path(folder))

    @contextmanager
    def without(self, mutant: Mutant) -> Iterator[None]:
        """Switch a safeguard off, until the end of the block."""
        path = self._folder / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied(text), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def run(self, tests: Sequence[str], seconds: float, servers: Mapping[str, str]) -> dict[str, str]:
        """Run tests here; return red, green or neither (skipped, broken before it began) by their names, nothing if time ran out."""
        report = self._folder / "report.xml"
        report.unlink(missing_ok=True)
        # No bytecode: a mutant and its original may be as long, and as old.
        environment = {**os.environ, **servers, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1"}
        # With CI set, hypothesis has no deadline, as with the conftest that is left out.
        environment |= {} if servers else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "true"}
        options = ["-x"] * (len(tests) == 1) + list(BARE) * (not servers)
        words = ["-q", "-p", "no:cacheprovider", "-o", f"timeout={HANGS}", f"--junitxml={report}", *options, *tests]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words],
            cwd=self._folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        return _read(report) if report.exists() else {}


def load() -> list[Mutant]:
    """Every mutant of the catalog."""
    return [Mutant(**entry) for entry in tomllib.loads(CATALOG.read_text(encoding="utf-8"))["mutant"]]


def try_all(
    mutants: Sequence[Mutant], *, servers: Mapping[str, str], told: Callable[[Verdict], None] = lambda verdict: None
) -> list[Verdict]:
    """See first that each test is green with its safeguard, and then that it is red without."""
    with ExitStack() as stack:
        copies = SimpleQueue[Copy]()
        for _ in range(WORKERS):
            copies.put(stack.enter_context(Copy.made()))

        def verdict_of(mutant: Mutant) -> Verdict:
            copy = copies.get()
            try:
                verdict = _try(copy, mutant, unmutated, servers)
            finally:
                copies.put(copy)
            told(verdict)
            return verdict

        copy = copies.get()
        unmutated = copy.run(sorted({mutant.test for mutant in mutants}), UNMUTATED, servers)
        copies.put(copy)
        with ThreadPoolExecutor(WORKERS) as workers:
            return list(workers.map(verdict_of, mutants))


def _try(copy: Copy, mutant: Mutant, unmutated: Mapping[str, str], servers: Mapping[str, str]) -> Verdict:
    if (before := _colour(unmutated, mutant.test)) != GREEN:
        return Verdict(mutant, killed=False, seconds=0.0, note=f"the test is {before} without the mutation")
    began = time.monotonic()
    try:
        with copy.without(mutant):
            seen = copy.run([mutant.test], LIMIT, servers)
    except LookupError as error:
        return Verdict(mutant, killed=False, seconds=0.0, note=str(error))
    seconds = time.monotonic() - began
    colour = _colour(seen, mutant.test)
    notes = {RED: "", GREEN: "survived", NEITHER: "no test ran to its end"}
    return Verdict(mutant, colour == RED, seconds, notes[colour])


def _colour(seen: Mapping[str, str], test: str) -> str:
    """Of a test with all of its cases: red if one is."""
    cases = [colour for name, colour in seen.items() if name == test or name.startswith(f"{test}[")]
    if RED in cases:
        return RED
    return GREEN if cases and set(cases) == {GREEN} else NEITHER


def _read(report: Path) -> dict[str, str]:
    """Colours by node id. A test that fails is red; one whose fixtures fail has judged nothing."""
    colours = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by pytest a moment ago
        *folders, last = case.get("classname", "").split(".")
        inner = f"::{last}" if last[:1].isupper() else ""
        path = "/".join(folders if inner else [*folders, last])
        colour = RED if case.find("failure") is not None else GREEN if not len(case.findall("*")) else NEITHER
        colours[f"{path}.py{inner}::{case.get('name')}"] = colour
    return colours
