"""What README and docs speak of, and what there really is: tests, commands, settings, codes, metrics, names of the schema."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from relay.cli.common import interrupts, support
from relay.cli.main import app
from relay.config.settings import Settings
from tests import ROOT

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")] + sorted(ROOT.glob("docs/**/*.md"))
PAGES += [ROOT / "examples" / "README.md", *sorted(ROOT.glob("examples/*/README.md"))]
_CODE_PLACES = {"Problem": 0, "PublishResult": 1, "OptionsError": 0, "Archive": 1, "Retry": 1, "GiveBack": 0}
"""Which argument of a call is an error code."""
PROGRAM = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
"""A program or a session on a page, with the lines that enclose it."""
_WORD = re.compile(r"[a-z]+(_[a-z]+)*")


def is_history(page: Path) -> bool:
    """Whether a page says what was so at a time, and stays as it was said then."""
    return page.name == "CHANGELOG.md" or page.parent.name == "decisions"


def text_of(page: Path) -> str:
    """The text of a page."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> list[str]:
    """Programs and sessions of a page, with the lines that enclose them."""
    return PROGRAM.findall(text_of(page))


def prose(page: Path) -> str:
    """A page without its blocks."""
    return PROGRAM.sub("", text_of(page))


def spans(page: Path) -> list[str]:
    """Everything on a page that is set as code: inline, or a line of a block."""
    return re.findall(r"`([^`]+)`", prose(page)) + [line.strip() for block in blocks(page) for line in block.splitlines()[1:-1]]


def links(page: Path) -> list[str]:
    """Targets of relative links."""
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)) if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@functools.cache
def tests() -> frozenset[str]:
    """Names of all test functions and test files."""
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("examples/**/test*.py")]
    names = {name for path in files for name in re.findall(r"def (test_\w+)", text_of(path))}
    return frozenset({path.name for path in files} | names)


def wrong_command(line: str) -> str:
    """What is wrong with a line that begins with `relay`: an unknown command or option; empty if nothing is."""
    words = re.sub(r"""'[^']*'|"[^"]*"|#.*""", "", line).split()[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and words[0].islower() and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"there is no command {words[0]}"
        command = command.commands[words.pop(0)]
    known = {option for param in command.params for option in param.opts} | {"--help"}
    unknown = [word for word in words if re.fullmatch(r"--[a-z][a-z-]*", word) and word not in known]
    return f"there is no option {unknown[0]}" if unknown else ""


def variables() -> set[str]:
    """Names of settings as an environment has them, those of secrets' files too, and the variables of our images."""
    names = {"RELAY_" + (field.alias or name).upper() for name, field in Settings.model_fields.items()}
    images = re.findall(r"RELAY_[A-Z_]+", "".join(text_of(path) for path in ROOT.glob("docker/**/*") if path.is_file()))
    return {*names, *(f"{name}_FILE" for name in names), *images}


@functools.cache
def codes() -> set[str]:
    """Every error code that the relay or the schema writes."""
    found = {code for path in ROOT.glob("relay/**/*.py") for code in _codes_of(path)}
    for path in ROOT.glob("sql/*.sql"):
        found |= set(re.findall(r"(?<!\()'(?:rejected|failed|lock_expired|discarded)', '([a-z_]+)',", text_of(path)))
        found |= set(re.findall(r"(?:code :=|SELECT|THEN) '((?:answer|request)_[a-z]+)'", text_of(path)))
    return found


def exit_codes() -> set[int]:
    """Every exit code of the command line: its own, those of errors, what differs from a lake, and signals of a job of the pipeline."""
    own = {support.REFUSED, support.USAGE, support.NOT_FOUND, support.UNREACHABLE, support.INTERRUPTED}
    texts = [text_of(path) for path in ROOT.glob("relay/**/*.py")]
    found = {int(code) for text in texts for code in re.findall(r"^(?: +exit_code|DIFFERS\b.*?) = (\d+)$", text, re.MULTILINE)}
    signals = {128 + number for number in interrupts.SIGNALS}
    return {0} | own | found | signals


def public_names() -> set[str]:
    """Names that docs/api.md shows, with their modules: those of a module's `__all__`, or one object."""
    shown = re.findall(r"^::: ([\w.]+)$", text_of(ROOT / "docs" / "api.md"), re.MULTILINE)
    return {name for path in shown for name in _names_of(path)}


def imported_names(program: str) -> set[str]:
    """Names of the package that a program of a page or of an example imports, with their modules."""
    lines = re.findall(r"^ *from (relay[\w.]*) import ([\w, ]+)", program, re.MULTILINE)
    return {f"{module}.{name.strip()}" for module, names in lines for name in names.split(",")}


@functools.cache
def schema_names() -> set[str]:
    """Names of tables, views, functions and columns of them that the migrations mention."""
    return {name for path in ROOT.glob("sql/*.sql") for name in re.findall(r"queue_message\w*", text_of(path))}


def _names_of(path: str) -> Iterator[str]:
    """Of a module or an object, which is there."""
    file = ROOT / (path.replace(".", "/") + ".py")
    file = file if file.exists() else ROOT / path.replace(".", "/") / "__init__.py"
    if file.exists():
        [listed] = re.findall(r"^__all__ = \[(.*?)\]", text_of(file), re.MULTILINE | re.DOTALL)
        yield from (f"{path}.{name}" for name in re.findall(r'"(\w+)"', listed))
        return
    module, _, name = path.rpartition(".")
    assert re.search(rf"^(?:def|class) {name}\b", text_of(ROOT / (module.replace(".", "/") + ".py")), re.MULTILINE), path
    yield path


def _codes_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            place = _CODE_PLACES.get(node.func.id, len(node.args))
            yield from _words(node.args[place : place + 1])
            yield from _words([keyword.value for keyword in node.keywords if keyword.arg == "code" and path.parent.name == "worker"])
        elif isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Dict):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if isinstance(target, ast.Name) and target.id.endswith("_CODES"):
                yield from _words(node.value.values)
        elif isinstance(node, ast.Return) and path.name == "option_rules.py":
            yield from (word for word in _words([node]) if re.search("_(type|range|long|reserved|unsupported)$", word))


def _words(nodes: list[Any]) -> Iterator[str]:
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and _WORD.fullmatch(part.value):
                yield part.value
