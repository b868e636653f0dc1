"""The relay's SQL: one statement per file of `relay/postgres/queries`, rendered for one schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files

from psycopg import sql

from relay.memory import KEPT, WIDEST

SHARED = ("asked", "gaps")
"""Parts that stand in several statements, by their files' names."""


class Statements:
    """Statements by name, e.g. `statements["settle"]`; a claim is composed of `claim` and what is due, a scan of `scan` and its order."""

    def __init__(self, schema: str) -> None:
        self._schema = sql.Identifier(schema).as_string(None).replace("%", "%%")
        self._rendered: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> bytes:
        """The statement of `queries/<name>.sql`."""
        if name not in self._rendered:
            self._rendered[name] = self._render(_text(name))
        return self._rendered[name]

    def claim(self, due: str) -> bytes:
        """The claim of what `queries/due_<due>.sql` selects."""
        return self._composed(f"claim {due}", _claim, due)

    def claim_one_by_one(self, due: str) -> bytes:
        """The same claim, past messages that a trigger of the table refuses."""
        return self._composed(f"claim {due} one by one", _claim_one_by_one, due)

    def scan(self, name: str) -> bytes:
        """One page of the scan over what `queries/scan_<name>.sql` walks."""
        return self._composed(f"scan {name}", _scan, name)

    def _composed(self, name: str, compose: Callable[[str], str], part: str) -> bytes:
        if name not in self._rendered:
            self._rendered[name] = self._render(compose(part))
        return self._rendered[name]

    def _render(self, text: str) -> bytes:
        for part in SHARED:
            text = text.replace(f"@{part}@", _text(part).rstrip())
        return text.replace("@schema@", self._schema).encode()


def _claim(due: str) -> str:
    return _claim_by(due, "claim_together", attempts="message.attempts", refused="NULL::text")


def _claim_one_by_one(due: str) -> str:
    return _claim_by(due, "claim_one_by_one", attempts="chosen.attempts", refused=_text("claim_refused").rstrip())


def _claim_by(due: str, way: str, *, attempts: str, refused: str) -> str:
    fresh = due == "fresh"
    parts = {
        "@ranges@": _text("due_fresh_ranges").rstrip("\n") if fresh else "",
        "@due@": _text(f"due_{due}").rstrip(),
        "@claimed@": _text(way).rstrip(),
        "@columns@": _text("claim_columns").rstrip(),
        "@attempts@": attempts,
        "@refused@": refused,
        "@bounds@": _text("due_fresh_bounds").rstrip() if fresh else "",
        "@size@": _text("size").strip(),
        "@kept@": str(KEPT),
        "@widest@": str(WIDEST),
    }
    text = _text("claim")
    for place, part in parts.items():
        text = text.replace(place, part)
    return text


def _scan(name: str) -> str:
    return _text("scan").replace("@walked@", _text(f"scan_{name}").rstrip())


@cache
def _text(name: str) -> str:
    return (files("relay.postgres") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
