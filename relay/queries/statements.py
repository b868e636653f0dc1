"""The relay's SQL: one statement per file in the folders of `relay/queries`, rendered for one schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from psycopg import sql

from relay.memory import KEPT, WIDEST

SHARED = ("asked", "gaps")
"""Fragments shared by several statements, by file name."""
TEMPLATES = ("claim", "scan")
"""Files that need fragments to become statements."""
FRAGMENTS = "fragments"
"""The folder of files that are parts of statements."""


class Statements:
    """Statements by name, e.g. `statements["settle"]`; claims and scans are composed of a template and a fragment."""

    def __init__(self, schema: str) -> None:
        self._schema = sql.Identifier(schema).as_string(None).replace("%", "%%")
        self._rendered: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> bytes:
        """The statement of `<name>.sql`, from any folder of `relay/queries`."""
        if name not in self._rendered:
            self._rendered[name] = self._render(text(name))
        return self._rendered[name]

    def claim(self, due: str) -> bytes:
        """The claim of rows that `fragments/due_<due>.sql` selects."""
        return self._compose(f"claim {due}", _claim, due)

    def claim_one_by_one(self, due: str) -> bytes:
        """The same claim, skipping messages that a trigger of the table refuses."""
        return self._compose(f"claim {due} one by one", _claim_one_by_one, due)

    def scan(self, name: str) -> bytes:
        """One page of the scan over the rows of `fragments/scan_<name>.sql`."""
        return self._compose(f"scan {name}", _scan, name)

    def _compose(self, name: str, compose: Callable[[str], str], part: str) -> bytes:
        if name not in self._rendered:
            self._rendered[name] = self._render(compose(part))
        return self._rendered[name]

    def _render(self, template: str) -> bytes:
        for part in SHARED:
            template = template.replace(f"@{part}@", text(part).rstrip())
        return template.replace("@schema@", self._schema).encode()


def _claim(due: str) -> str:
    return _claim_by(due, "claim_together", attempts="message.attempts", refused="NULL::text")


def _claim_one_by_one(due: str) -> str:
    return _claim_by(due, "claim_one_by_one", attempts="chosen.attempts", refused=text("claim_refused").rstrip())


def _claim_by(due: str, way: str, *, attempts: str, refused: str) -> str:
    fresh = due == "fresh"
    parts = {
        "@ranges@": text("due_fresh_ranges").rstrip("\n") if fresh else "",
        "@due@": text(f"due_{due}").rstrip(),
        "@cut_by@": "bytes_of_exchange, xid, seq" if due == "at" else "xid, seq",
        "@claimed@": text(way).rstrip(),
        "@columns@": text("claim_columns").rstrip(),
        "@attempts@": attempts,
        "@refused@": refused,
        "@bounds@": text("due_fresh_bounds").rstrip() if fresh else "",
        "@size@": text("size").strip(),
        "@kept@": str(KEPT),
        "@widest@": str(WIDEST),
    }
    statement = text("claim")
    for place, part in parts.items():
        statement = statement.replace(place, part)
    return statement


def _scan(name: str) -> str:
    return text("scan").replace("@walked@", text(f"scan_{name}").rstrip())


def statement(name: str, schema: str) -> bytes:
    """The statement of `<name>.sql` for a schema, with psycopg's placeholders."""
    return _statements(schema)[name]


def driver_statement(name: str, schema: str, placeholder: Callable[[str], str], *, colon: str = ":") -> str:
    """The statement of `<name>.sql` for a schema, with the placeholders of another driver.

    Args:
        name: the file's name without its suffix.
        schema: where the tables are.
        placeholder: makes the driver's placeholder of a parameter's name.
        colon: how the driver writes a colon that begins no placeholder.
    """
    template = statement(name, schema).decode().replace(":", colon)
    return re.sub(r"%(?:%|\((\w+)\)s)", lambda found: placeholder(found[1]) if found[1] else "%", template)


@cache
def _statements(schema: str) -> Statements:
    return Statements(schema)


def names() -> list[str]:
    """Names of the files that are complete statements, sorted."""
    return sorted(name for name, (folder, _) in _files().items() if folder != FRAGMENTS and name not in TEMPLATES)


@cache
def text(name: str) -> str:
    """The text of `<name>.sql`, with its placeholders.

    Raises:
        KeyError: no folder has such a file.
    """
    _, file = _files()[name]
    return file.read_text(encoding="utf-8")


@cache
def _files() -> dict[str, tuple[str, Traversable]]:
    """The folder and the file of each name; a unit test ensures that names are unique."""
    folders = [folder for folder in files("relay.queries").iterdir() if folder.is_dir()]
    found = [(folder.name, file) for folder in folders for file in folder.iterdir() if file.name.endswith(".sql")]
    return {file.name.removesuffix(".sql"): (folder, file) for folder, file in found}
