"""The locked packages: what pip needs to install a lock file on a day on which any of them has a newer release."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT

LOCKS = sorted(path.name for path in (ROOT / "requirements").glob("*.txt"))


def _locked(name: str) -> dict[str, Requirement]:
    """The packages of a lock file by their canonical names."""
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    return {canonicalize_name(package.name): package for package in pinned}


def _asked_with_extras(package: Requirement) -> list[Requirement]:
    """What an installed package requires with extras here; nothing of a package that this environment does not have."""
    try:
        needs = [Requirement(text) for text in requires(package.name) or []]
    except PackageNotFoundError:
        return []
    return [need for need in needs if need.extras and _applies(need, package.extras or {""})]


def _applies(need: Requirement, extras: set[str]) -> bool:
    """Whether the requirement holds on this machine when its package is installed with `extras`."""
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)


@pytest.mark.parametrize("name", LOCKS)
def test_a_package_that_is_required_with_an_extra_is_locked_with_it(name: str) -> None:
    """With `coverage` pinned but not `coverage[toml]`, pip tries the newest release, of which the file has no hash."""
    locked = _locked(name)
    asked = [need for package in locked.values() for need in _asked_with_extras(package)]

    assert [] == [str(need) for need in asked if not need.extras <= locked[canonicalize_name(need.name)].extras]
