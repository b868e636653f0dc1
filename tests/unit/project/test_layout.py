"""The shape of `relay/` and its tests: few modules at a root, no crowded folder, no class name twice without a reason."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT

ROOT_MODULES = 8
"""Modules at the root of `relay/`, `__init__` and `__main__` among them."""
MODULES = 20
"""Modules of one package."""
CROWD = 30
"""Files of tests of one folder that mirrors a package."""
TWICE = {"Intake", "Message", "Retry"}
"""A port and what implements it; and words of applications: a client's message is not a worker's, a handler's retry not the relay's."""


def classes() -> Iterator[tuple[str, Path]]:
    """Every public class that a module of `relay/` defines, but for the demo's, which imports nothing of the others."""
    for path in sorted(ROOT.glob("relay/**/*.py")):
        if "demo" not in path.parts:
            nodes = ast.parse(path.read_text(encoding="utf-8")).body
            yield from ((node.name, path) for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def constants(path: Path) -> Iterator[str]:
    """Names in capitals that a module binds at its top, each as often as it does."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        bound = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        yield from (name.id for name in bound if isinstance(name, ast.Name) and name.id.isupper())


def test_no_constant_is_bound_twice() -> None:
    """The second would be that of the functions before it too: a test compared 2,000 ticks where it meant 150."""
    modules = [path for folder in ("relay", "tests", "examples") for path in ROOT.glob(f"{folder}/**/*.py")]
    counted = {str(path.relative_to(ROOT)): Counter(constants(path)) for path in modules}
    assert {} == {name: twice for name, count in counted.items() if (twice := [one for one, times in count.items() if times > 1])}


def test_the_root_has_only_what_all_packages_share() -> None:
    """Whatever belongs to one concern is in its package."""
    assert len(list(ROOT.glob("relay/*.py"))) <= ROOT_MODULES


def test_no_package_is_crowded() -> None:
    """A reader takes in its modules at one look."""
    packages = {path.parent for path in ROOT.glob("relay/**/__init__.py")}
    sizes = {str(package.relative_to(ROOT)): len(list(package.glob("[!_]*.py"))) for package in packages}
    assert {} == {name: size for name, size in sizes.items() if size > MODULES}


def test_a_class_name_is_used_once_unless_a_reason_says_otherwise() -> None:
    """An import tells what a name is."""
    places = defaultdict(list)
    for name, path in classes():
        places[name].append(str(path.relative_to(ROOT)))
    assert {} == {name: found for name, found in places.items() if len(found) > 1 and name not in TWICE}


def test_no_folder_of_tests_is_crowded() -> None:
    """A person who changes a package finds its tests by its name."""
    folders = {path.parent for top in ("unit", "integration", "support") for path in ROOT.glob(f"tests/{top}/**/*.py")}
    sizes = {str(folder.relative_to(ROOT)): len(list(folder.glob("[!_]*.py"))) for folder in folders}
    assert {} == {name: size for name, size in sizes.items() if size > CROWD}
    assert [] == list(ROOT.glob("tests/unit/test_*.py")) + list(ROOT.glob("tests/integration/test_*.py"))
