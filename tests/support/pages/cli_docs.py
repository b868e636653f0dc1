"""The reference part of docs/cli.md, made from the commands themselves: `python -m tests.support.pages.cli_docs` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from relay.cli.main import app
from tests import ROOT

PAGE = ROOT / "docs" / "cli.md"
BEGIN, END = "<!-- commands -->\n", "<!-- /commands -->\n"


def reference() -> str:
    """Every command with its usage, help, arguments and options, as Markdown."""
    return "\n".join(part for name, command in _commands("relay", typer.main.get_command(app)) for part in _section(name, command))


def commands() -> list[str]:
    """Names of all commands, groups left out."""
    return [name for name, _ in _commands("relay", typer.main.get_command(app))]


def written() -> str:
    """The reference as the page has it."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def write() -> None:
    """Put the reference into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{reference()}{END}{rest.partition(END)[2]}", encoding="utf-8")


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part, inner in command.commands.items():
        yield from _commands(f"{name} {part}", inner)


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and "--help" not in param.opts]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    yield f"### {name}\n\n{_text(command.help)}\n\n```\n{usage}\n```\n"
    if arguments or options:
        yield "| | |\n|---|---|"
        yield from (f"| `{_argument(param)}` | {_cell(param)} |" for param in arguments)
        yield from (f"| `{_option(param)}` | {_cell(param)} |" for param in options)
        yield ""


def _text(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _argument(param: Any) -> str:
    return str(param.metavar or (param.name.upper() if param.required else f"[{param.name.upper()}]"))


def _option(param: Any) -> str:
    """The spelling, and what its value is called."""
    if getattr(param, "is_flag", False):
        return str(param.opts[0])
    return f"{param.opts[0]} {param.metavar or param.name.upper()}"


def _cell(param: Any) -> str:
    default = getattr(param, "default", None)
    shown = isinstance(default, int | float) and not isinstance(default, bool)
    return (param.help or "").replace("|", "\\|") + (f" Default: {default:g}." if shown else "")


if __name__ == "__main__":
    write()
