"""`make audit`: what was not checked has not passed."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT

SCRIPT = ROOT / ".ci" / "audit.py"
Answer = list[dict[str, object]]
Answering = Callable[[Answer | None], ModuleType]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Two packages, one of them for no system."""
    path = tmp_path / "some.txt"
    path.write_text("one==1.0 \\\n    --hash=sha256:00\ntwo==2.0 ; sys_platform == 'none' \\\n    --hash=sha256:00\n")
    return path


@pytest.fixture
def answering(tmp_path: Path) -> Answering:
    """The script, with a pip-audit that gives the answer, or none and fails."""

    def make(answer: Answer | None) -> ModuleType:
        spec = importlib.util.spec_from_file_location("audit", SCRIPT)
        assert spec is not None
        assert spec.loader is not None
        audit = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(audit)
        tool = tmp_path / "pip-audit"
        (tmp_path / "given").write_text(json.dumps({"dependencies": answer}))
        find = 'while [ "$1" != --output ]; do shift; done'
        tool.write_text(
            "#!/bin/sh\n" + (f'{find}; cp "{tmp_path}/given" "$2"\n' if answer is not None else "echo no way there >&2; exit 1\n")
        )
        tool.chmod(0o755)
        audit.TOOLS = tmp_path  # type: ignore[attr-defined]
        return audit

    return make


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([{"name": "one", "version": "1.0", "vulns": []}], []),
        ([{"name": "one", "skip_reason": "unknown"}], ["1 of 1 packages were not checked for vulnerabilities (one)"]),
        ([], ["1 of 1 packages were not checked for vulnerabilities (one)"]),
        (None, ["nothing was checked for vulnerabilities (no way there)"]),
        ([{"name": "one", "version": "1.0", "vulns": [{"id": "X-1", "fix_versions": ["1.1"]}]}], ["one 1.0 has X-1, mended in 1.1."]),
    ],
)
def test_what_was_not_checked_has_not_passed(answering: Answering, lock: Path, answer: Answer | None, says: list[str]) -> None:
    """pip-audit itself ends well where the service knows no package at all; a package for another system is not asked for."""
    told = answering(answer).vulnerabilities(lock)

    assert len(says) == len(told)
    assert all(words in sentence for words, sentence in zip(says, told, strict=True)), told


def test_a_licence_that_is_not_stated_is_told(answering: Answering, lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table says so too."""
    monkeypatch.chdir(tmp_path)
    Path("build").mkdir()

    [sentence] = answering([]).licences(lock, str(tmp_path))

    assert "the licence of one 1.0 is not known" in sentence
    assert "| one | 1.0 | unknown |" in Path("build/licences-some.md").read_text()
