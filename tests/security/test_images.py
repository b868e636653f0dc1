"""What the images must not hold, as the text of their files has it and, where an engine answers, as the image has it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests import ROOT

DOCKERFILES = [ROOT / "Dockerfile", *sorted(ROOT.glob("docker/**/Dockerfile"))]
CONTEXT = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|_KEY\b|://[^ ]*:[^ ]*@", re.IGNORECASE)
every_file = pytest.mark.parametrize("name", [str(path.relative_to(ROOT)) for path in DOCKERFILES])


def _steps(name: str) -> list[str]:
    """Instructions of a Dockerfile, each on one line."""
    text = re.sub(r"\\\n", " ", (ROOT / name).read_text(encoding="utf-8"))
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def _last_stage(steps: list[str]) -> list[str]:
    """What the image itself is made by."""
    return steps[max(number for number, step in enumerate(steps) if step.startswith("FROM")) :]


def _runs(steps: list[str]) -> Iterator[str]:
    return (step for step in steps if step.startswith("RUN"))


def test_the_relay_s_image_only_copies_what_was_built() -> None:
    """Nothing is installed, fetched or compiled in it: no pip cache, no compiler, no package lists, no source."""
    stage = _last_stage(_steps("Dockerfile"))

    assert [] == list(_runs(stage))
    assert {"docker/probe.py /opt/probe.py", "--from=build /opt/relay /opt/relay"} == {
        step.removeprefix("COPY ") for step in stage if step.startswith(("COPY", "ADD"))
    }


def test_the_relay_s_image_runs_as_a_number_that_is_not_root() -> None:
    """An orchestrator can see it without looking into the image, and nothing after it changes it back."""
    [user] = [step for step in _last_stage(_steps("Dockerfile")) if step.startswith("USER")]
    assert re.fullmatch(r"USER [1-9]\d{3,}:[1-9]\d{3,}", user)


def test_every_package_of_the_image_is_checked_against_its_hash() -> None:
    """And leaves no cache behind, although that layer is thrown away."""
    installs = [part for run in _runs(_steps("Dockerfile")) for part in run.split("&&") if re.search(r"\binstall\b", part)]
    assert installs
    for part in installs:
        assert "--no-cache-dir" in part
        assert "--require-hashes" in part or "--no-index" in part


@every_file
def test_no_secret_is_baked_in(name: str) -> None:
    """Neither by ENV nor ARG nor in an address; ADD, which fetches, is not used."""
    assert [] == [step for step in _steps(name) if step.startswith(("ENV", "ARG", "LABEL")) and SECRET.search(step)]
    assert [] == [step for step in _steps(name) if step.startswith("ADD") or "curl" in step or "wget" in step]


@every_file
def test_package_lists_do_not_stay(name: str) -> None:
    """What apt fetched to install is gone from the same layer."""
    for run in _runs(_last_stage(_steps(name))):
        assert "apt-get install" not in run or ("--no-install-recommends" in run and "rm -rf /var/lib/apt/lists" in run)


def test_the_build_sees_only_what_it_needs() -> None:
    """Everything is left out but what is named: no .env, no .git, no key that lies in the folder by chance."""
    assert "*" == CONTEXT[0]
    named = {line.removeprefix("!") for line in CONTEXT if line.startswith("!")}
    assert {
        "relay",
        "sql",
        "requirements/runtime.txt",
        "requirements/build.txt",
        "docker/probe.py",
        "pyproject.toml",
        "LICENSE",
        "README.md",
    } == (named)
