"""The SQL of each step for one table: the texts of `relay/adopt/steps` with names and mapping filled in. Runs nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from psycopg import sql

from relay.adopt.layout import AdoptError, Layout, filled, mapping
from relay.adopt.source_table import SourceTable, own_rows, same_row, view_checks, view_defaults

BEGIN = "SET LOCAL search_path = pg_catalog, pg_temp;\nSET LOCAL lock_timeout = '5s';\n"
"""The beginning of every step. Applications wait behind the locks that a step waits for, so the step gives up after a short wait."""
BATCH = 500
"""How many rows one transaction takes over."""
MARK = "$adopt$"
"""The dollar quote at the beginning and end of the functions' bodies."""


VERBS = ("send", "watch", "divert", "delete")
"""The verbs in the names of the functions that a step creates."""


class Chosen(NamedTuple):
    """The choices that were made when a table was first watched."""

    layout: Layout
    by: str
    options: Mapping[str, str]
    """Templates and options of the layout."""


class Script:
    """The steps for one table.

    Each step raises AdoptError if a name or a template contains the mark that ends a function's body.

    Args:
        schema: the schema of the queue.
        source: schema and name of the table to which applications write.
        table: the table that has the rows now: under that name, or under another name behind a view.
        chosen: layout and options.
    """

    def __init__(self, schema: str, source: tuple[str, str], table: SourceTable, chosen: Chosen) -> None:
        self._schema = schema
        self._source = source
        self._table = table
        self._chosen = chosen

    @property
    def source(self) -> str:
        """The table's name that applications use."""
        return _identifier(*self._source)

    def mirror(self) -> str:
        """The SQL that watches new rows."""
        return self._step("functions", "mirror")

    def functions(self) -> str:
        """The SQL that creates only the functions that judge a row."""
        return self._step("functions")

    def switch(self) -> str:
        """The SQL that diverts all new rows of later commits."""
        return self._step("phase", f"switch_{self._chosen.by}", phase="mirror")

    def take(self, states: Sequence[str]) -> str:
        """The SQL that moves a batch of rows of these states."""
        return self._step("take", states=states)

    def finish(self) -> str:
        """The SQL that records that the old relay has no rows left."""
        return self._step("phase", "finish", phase="switched")

    def back(self, phase: str) -> str:
        """The SQL that leaves new rows to the old relay again."""
        return self._step("phase", f"back_{'trigger' if phase == 'mirror' else self._chosen.by}", phase=phase)

    def count(self) -> str:
        """The SQL that counts the rows of each state."""
        return self._filled(_text("count"))

    def judge(self) -> str:
        """The SQL that judges existing rows in the same way as a mirror judges new rows."""
        return self._filled(_text("judge"))

    def _step(self, *names: str, phase: str = "", states: Sequence[str] = ()) -> str:
        own = self._chosen.layout.own
        texts = "".join(map(_text, names)).replace("@deletes@", _text("deletes").rstrip() if own else "")
        literals = {"@phase_literal@": _literal(phase), "@states_literal@": _literal("{" + ",".join(states) + "}")}
        return BEGIN + filled(texts, {**self._values(), **literals})

    def _filled(self, text: str) -> str:
        return filled(text, self._values())

    def _values(self) -> dict[str, str]:
        values = self._all_values()
        if any(MARK in value for value in values.values()):
            raise AdoptError(f"A name in {self.source}, or a template, contains {MARK}, which ends the functions' bodies: rename it.")
        return values

    def _all_values(self) -> dict[str, str]:
        table, chosen = self._table, self._chosen
        own = chosen.layout.own
        schema, name = self._source
        renamed = name.encode()[:55].decode(errors="ignore") + "_adopted"
        names = {"source": _identifier(schema, name), "kept": table.written, "view_kept": _identifier(schema, renamed)}
        texts = {**names, "layout": chosen.layout.name, "options": json.dumps(dict(chosen.options)), "by": chosen.by}
        return {
            **{f"@{place}@": written for place, written in names.items()},
            **{f"@{place}_literal@": _literal(text) for place, text in texts.items()},
            **{f"@{verb}@": _identifier(function_name(names["source"], verb)) for verb in VERBS},
            "@schema@": _identifier(self._schema),
            "@aside@": _identifier(renamed),
            "@name@": _identifier(name),
            "@own@": own_rows(table, own, self._schema) if own else "",
            "@own_column@": _identifier(own or ""),
            "@view_defaults@": view_defaults(table, names["source"]),
            "@checks@": view_checks(table),
            "@same_as_new@": same_row(table, "NEW"),
            "@same_as_one@": same_row(table, "one"),
            "@mapping@": mapping(chosen.layout, chosen.options, table.columns),
            "@order@": chosen.layout.order,
            "@limit@": str(BATCH),
        }


def function_name(source: str, verb: str) -> str:
    """The name of the function for a table and a verb."""
    return f"queue_message_from_{hashlib.sha256(source.encode()).hexdigest()[:12]}_{verb}"


def forget(schema: str, source: str, phase: str) -> str:
    """The SQL that removes everything that an adoption has created for a table that no longer exists."""
    names = {f"@{verb}@": _identifier(function_name(source, verb)) for verb in VERBS}
    literals = {"@source_literal@": _literal(source), "@phase_literal@": _literal(phase)}
    return BEGIN + filled(_text("phase") + _text("forget"), {**names, **literals, "@schema@": _identifier(schema)})


def _text(name: str) -> str:
    return (files("relay.adopt") / "steps" / f"{name}.sql").read_text(encoding="utf-8")


def _identifier(*names: str) -> str:
    return sql.Identifier(*names).as_string(None)


def _literal(value: str) -> str:
    return sql.Literal(value).as_string(None).lstrip()
