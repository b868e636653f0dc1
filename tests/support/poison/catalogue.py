"""The catalogue of bad and odd messages: `poison.json`, one entry a line, each with exactly one outcome.

An entry has `kind` (its number in the catalogue), `name`, `columns` (what the INSERT gives; exchange and routing key are the test's own
where they are left out), `outcome` and, as far as they apply:

- `sentence`: for `refused`, a fragment of the database's error, or several of which one must be found;
- `code`: for `rejected` and `failed` the archive's error code; for `refused` the code with which the encoder would stop the message;
- `needs`: what must be there first, by name (a missing exchange needs none, so `no_exchange` is only said);
- `expect`: for `delivered`, what a consumer sees; `headers` are those of the app; `body` is text pieces, `body_hex` is bytes.

Directives in values: `{"$repeat": [text, n]}` a text, `{"$headers": [n, size]}` an object, `{"$json": [pieces]}` raw JSON text,
`{"$string": n}` a JSON text of n bytes, `{"$hex": …}` and `{"$bytes": n}` binary, `{"$sql": …}` an SQL expression.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg import sql

from relay.message import Claim

_FILE = Path(__file__).with_name("poison.json")
_JSON_COLUMNS = ("content", "options")


@dataclass(frozen=True)
class Poison:
    """One entry of the catalogue."""

    kind: int
    name: str
    outcome: str
    columns: dict[str, Any]
    code: str = ""
    sentence: str | list[str] = ""
    needs: list[str] = field(default_factory=list)
    expect: dict[str, Any] = field(default_factory=dict)
    rows: int = 1
    note: str = ""

    def __str__(self) -> str:
        """Name the entry in a test's id."""
        return f"{self.kind}-{self.name.replace(' ', '_')}"

    @property
    def sentences(self) -> list[str]:
        """Fragments of which the database's error holds one."""
        return [self.sentence] if isinstance(self.sentence, str) else self.sentence

    @property
    def encodable(self) -> bool:
        """Whether the encoder can be shown the message: a column that is NULL or an SQL expression stops at the database."""
        return all(value is not None and not _is(value, "$sql") for value in self.columns.values())

    def text(self, column: str) -> str:
        """Return a text or JSON column as text, directives carried out."""
        value = self.columns[column]
        return _json_text(value) if column in _JSON_COLUMNS else str(_expand(value))

    def insert(self, table: sql.Composable, **defaults: str) -> sql.Composed:
        """Return the INSERT; `defaults` are columns that the entry may leave out."""
        columns = {**{name: sql.Literal(value) for name, value in defaults.items()}, **self.values()}
        return sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING id::pg_catalog.text").format(
            table, sql.SQL(", ").join(map(sql.Identifier, columns)), sql.SQL(", ").join(columns.values())
        )

    def values(self) -> dict[str, sql.Composable]:
        """Return what it gives for each of its columns."""
        return {name: self._value(name) for name in self.columns}

    def claim(self, exchange: str, routing_key: str, *, id_: str = str(UUID(int=1))) -> Claim:
        """Return the message as a claim would bring it, had the database let it pass."""
        binary = "body" in self.columns
        return Claim(
            xid=1, seq=1,
            id=self.columns.get("id", id_),
            exchange=self.text("exchange") if "exchange" in self.columns else exchange,
            routing_key=self.text("routing_key") if "routing_key" in self.columns else routing_key,
            payload=_binary(self.columns["body"]) if binary else self._content(),
            binary=binary,
            options=self.text("options").encode() if self.columns.get("options", {}) != {} else None,
            ordering_key=None, replay_of=None, attempts=1, expires_in=None,
        )  # fmt: skip

    def body(self) -> bytes | None:
        """Return the body that a consumer must see, None where the entry does not say."""
        if "body_hex" in self.expect:
            return bytes.fromhex(self.expect["body_hex"])
        return _joined(self.expect["body"]).encode() if "body" in self.expect else None

    def _content(self) -> bytes:
        expected = self.body()
        if expected is not None:
            return expected
        return self.text("content").encode() if "content" in self.columns else b"{}"

    def _value(self, column: str) -> sql.Composable:
        value = self.columns[column]
        if _is(value, "$sql"):
            return sql.SQL(value["$sql"])
        if _is(value, "$string"):
            # Made by the server: the text need not travel.
            return sql.SQL("to_jsonb(repeat('x', {}))").format(sql.Literal(value["$string"] - 2))
        if _is(value, "$bytes"):
            return sql.SQL("convert_to(repeat('x', {}), 'UTF8')").format(sql.Literal(value["$bytes"]))
        if column == "body":
            return sql.Literal(_binary(value))
        return sql.Literal(None if value is None else self.text(column))


def _is(value: object, directive: str) -> bool:
    return isinstance(value, dict) and list(value) == [directive]


def _expand(value: Any) -> Any:
    if _is(value, "$repeat"):
        text, count = value["$repeat"]
        return str(text) * count
    if _is(value, "$headers"):
        count, size = value["$headers"]
        return {f"header-{number}": "x" * size for number in range(count)}
    if isinstance(value, dict):
        return {key: _expand(item) for key, item in value.items()}
    return [_expand(item) for item in value] if isinstance(value, list) else value


def _joined(pieces: list[Any]) -> str:
    return "".join([str(_expand(piece)) for piece in pieces])


def _json_text(value: Any) -> str:
    if _is(value, "$json"):
        return _joined(value["$json"])
    if _is(value, "$string"):
        return '"' + "x" * (int(value["$string"]) - 2) + '"'
    return json.dumps(_expand(value), ensure_ascii=False)


def _binary(value: dict[str, Any]) -> bytes:
    return b"x" * value["$bytes"] if "$bytes" in value else bytes.fromhex(value["$hex"])


def load() -> list[Poison]:
    """All entries, in the order of the catalogue."""
    return [Poison(**entry) for entry in json.loads(_FILE.read_text(encoding="utf-8"))]


POISON = load()
