"""Output of commands: tables for operators, JSON for scripts."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from relay.cli.common.support import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NAMES = ("exchange", "ordering_key")
"""Fields that are shown even if empty: '' is the default exchange, and a valid key."""
QUOTES = {"'", '"', "\\"}
PIPE_WIDTH = 240
"""The width in columns of a table that is written into a pipe."""


def terminal() -> Console:
    """Standard output for operators; foreign text is never read as markup."""
    from rich.console import Console  # noqa: PLC0415 - takes a tenth of a second, which JSON and --help do not need

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=False, width=width)


def show_json(value: object) -> None:
    """Print JSON, times as ISO 8601 in UTC."""
    typer.echo(_safe(json.dumps(value, default=plain, ensure_ascii=False, indent=2)))


def show_json_line(value: object) -> None:
    """Print JSON on one line."""
    typer.echo(_safe(json.dumps(value, default=plain, ensure_ascii=False)))


def _safe(text: str) -> str:
    """The same JSON, with every character escaped that could control a terminal or end a line. JSON itself requires this only for ASCII."""
    return text if text.isprintable() else "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def show_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, nothing: str) -> None:
    """Print rows as a table, or one sentence if there are no rows."""
    if rows:
        terminal().print(table(rows, columns))
    else:
        typer.echo(nothing)


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    """A table of some columns; a column's title is its name in words."""
    from rich.table import Table  # noqa: PLC0415 - as in terminal

    made = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column.replace("_", " "), overflow="fold", no_wrap=column.endswith(("id", "_at")))
    for row in rows:
        made.add_row(*(words(row[column]) for column in columns))
    return made


def show_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one a line; empty values are omitted, except for a name that may be empty."""
    shown = {
        field.replace("_", " "): named(value) if field in NAMES and isinstance(value, str) else words(value)
        for field, value in fields.items()
        if value not in (None, "", {}, []) or (value == "" and field in NAMES)
    }
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        typer.echo(f"{name:{width}}  {value}")


def words(value: object) -> str:
    """One value, human-readable, on one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    if isinstance(value, Mapping | list):
        return visible(json.dumps(value, default=plain, ensure_ascii=False))
    return visible(str(value))


def length(seconds: float | None) -> str:
    """A human-readable length of time: 850 ms, 12 s, 5 min, 3 h, 2 d."""
    if seconds is None:
        return "none"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def count(number: float, one: str, many: str | None = None) -> str:
    """A number with its noun, or with noun and verb: 1 message, 2 messages."""
    return f"{number:.12g} {one if number == 1 else many or one + 's'}"


def rate(per_second: float) -> str:
    """A number of messages a second."""
    return f"{count(per_second, 'message')} a second"


def typed(command: str, name: str) -> str:
    """A command for the operator to type, with a foreign name quoted for the shell."""
    return f"`relay {command} {'-- ' if name.startswith('-') else ''}{shlex.quote(name) if name.isprintable() else quoted(name)}`"


def quoted(name: str) -> str:
    r"""A foreign name in the shell's quotes; a name with unprintable characters looks like $'a\x0ab'."""
    if name.isprintable():
        return "'" + name.replace("'", "'\"'\"'") + "'"
    return "$'" + "".join(map(_escaped, name)) + "'"


def named(name: str) -> str:
    """A foreign name for a field or column of its own, in quotes only if the name could be misread without them."""
    return name if name.isprintable() and name.split() == [name] and not set(name) & QUOTES else quoted(name)


def _escaped(letter: str) -> str:
    if letter in QUOTES:
        return f"\\{letter}"
    return letter if letter.isprintable() else "".join(f"\\x{byte:02x}" for byte in letter.encode(errors="surrogateescape"))


def plain(value: object) -> object:
    """The text of a value for which JSON has no type."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value)
