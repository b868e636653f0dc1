"""The relay's SQL: one statement per file of `relay/postgres/queries`, rendered for one schema."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from psycopg import sql


class Statements:
    """Statements by name, e.g. `statements["settle"]`; a claim is composed of `claim`, what is due, and its `size`.

    What is due may be a walk, which says of each message whether it is wanted; `step` then locks those that are.
    """

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
        name = f"claim {due}"
        if name not in self._rendered:
            self._rendered[name] = self._render(_claim(_text(f"due_{due}").rstrip()))
        return self._rendered[name]

    def _render(self, text: str) -> bytes:
        return text.replace("@schema@", self._schema).encode()


def _claim(due: str) -> str:
    parts = {"@walked@": "", "@due@": due, "@reached@": "", "@size@": _text("size").strip()}
    if "%(walk)s" in due:
        walked = f"walked AS MATERIALIZED (\n{due}\n), "
        parts |= {"@walked@": walked, "@due@": _text("step").rstrip(), "@reached@": _text("reached").rstrip()}
    text = _text("claim")
    for place, part in parts.items():
        text = text.replace(place, part)
    return text


@cache
def _text(name: str) -> str:
    return (files("relay.postgres") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
