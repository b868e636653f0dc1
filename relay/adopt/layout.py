"""Layouts: how another outbox's rows become messages. Each is an SQL file in `relay/adopt/layouts`, with facts for programs. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

from psycopg import sql

from relay.errors import RelayError

KINDS: Mapping[str, frozenset[str]] = {
    "uuid": frozenset({"uuid"}),
    "text": frozenset({"text", "varchar", "bpchar", "citext"}),
    "bytea": frozenset({"bytea"}),
    "jsonb": frozenset({"jsonb", "json"}),
    "integer": frozenset({"int2", "int4", "int8"}),
    "time": frozenset({"timestamptz", "timestamp"}),
}
"""The types of PostgreSQL that each kind in a layout allows; the kind `any` allows every type."""
TEMPLATES = ("exchange", "routing_key", "ordering_key")
"""The fields of a message that a template of columns may set, instead of the layout's own rule."""


class AdoptError(RelayError):
    """A step of an adoption cannot be done; nothing was changed."""


class MissingError(AdoptError):
    """The table does not exist, or is not adopted."""

    exit_code = 3


class Layout(NamedTuple):
    """The layout of one kind of table."""

    name: str
    mapping: str
    """A SELECT over the row `given`."""
    columns: Mapping[str, str]
    """The columns that the table must have, each with its kind."""
    by: str
    """How new rows are diverted by default: trigger or view."""
    order: str
    """The order of waiting rows, as expressions over the row `given`."""
    needs: str | None
    """The template that is required, because a message has no address without it."""
    waits: str
    """Where the old relay's unsent rows wait: `table` or `wal`."""
    own: str | None
    """The column by which a view shows a transaction its own new rows; for applications that delete the rows that they have inserted."""
    options: Mapping[str, str]
    """Further options, with their defaults."""


def names() -> list[str]:
    """The names of all layouts."""
    found = (files("relay.adopt") / "layouts").iterdir()
    return sorted(file.name.removesuffix(".sql") for file in found if file.name.endswith(".sql"))


def read(name: str) -> Layout:
    """The layout of that name.

    Raises:
        AdoptError: there is no such layout.
    """
    if name not in names():
        raise AdoptError(f"There is no layout {name!r}; there are {', '.join(names())}.")
    text = (files("relay.adopt") / "layouts" / f"{name}.sql").read_text(encoding="utf-8")
    said = re.findall(r"^-- ([a-z]+): ?(.*)$", text, flags=re.MULTILINE)
    one = dict(said)
    options = [value.partition(" =") for word, value in said if word == "option"]
    return Layout(
        name=name,
        mapping=text[text.index("SELECT\n") :].rstrip(),
        columns=dict(column.rsplit(" ", 1) for column in one["columns"].split(", ")),
        by=one["by"],
        order=one["order"],
        needs=one.get("needs"),
        waits=one.get("waits", "table"),
        own=one.get("own"),
        options={option: default.strip() for option, _, default in options},
    )


def mapping(layout: Layout, chosen: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """The layout's SELECT with the chosen values filled in.

    Args:
        layout: the layout of the table.
        chosen: templates and options by name.
        columns: the table's columns.

    Raises:
        AdoptError: an option is unknown or missing, or a template names a missing column.
    """
    known = {**dict.fromkeys(TEMPLATES), **layout.options}
    if unknown := sorted(set(chosen) - set(known)):
        more = f"; it knows {', '.join(layout.options)}" if layout.options else ""
        raise AdoptError(f"The layout {layout.name} has no option {unknown[0]!r}{more}.")
    if layout.needs and layout.needs not in chosen:
        raise AdoptError(f"The layout {layout.name} does not say where messages go: give --{layout.needs.replace('_', '-')}.")
    values = {f"@{name}@": _literal(chosen.get(name, default or "")) for name, default in layout.options.items()}
    values |= {f"@{name}@": template(chosen[name], columns) if name in chosen else "NULL::text" for name in TEMPLATES}
    return filled(layout.mapping, values)


def template(text: str, columns: Mapping[str, str]) -> str:
    """An expression over the row `source` for a text with columns in braces.

    Raises:
        AdoptError: a column is missing, or a brace is not closed or not opened.
    """
    parts = re.split(r"\{([^{}]*)\}", text)
    if any("{" in part or "}" in part for part in parts[::2]):
        raise AdoptError(f"The template {text!r} has a brace without a partner: write columns as {{name}}.")
    if missing := [part for part in parts[1::2] if part not in columns]:
        raise AdoptError(f"The template {text!r} names the column {missing[0]!r}, which the table does not have.")
    pieces = [f"(source.{sql.Identifier(part).as_string(None)})::text" if place % 2 else _literal(part) for place, part in enumerate(parts)]
    return "(" + " || ".join(piece for piece in pieces if piece != "''::text" or len(pieces) == 1) + ")"


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its placeholders replaced in one pass, so that a placeholder within a value is not replaced."""
    return re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], text)


def _literal(value: str) -> str:
    return sql.Literal(value).as_string(None).lstrip() + "::text"
