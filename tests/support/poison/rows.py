"""Rows of every option, column, key, header, exchange, right, queue and limit, and what must become of each: docs/options.md in code."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from tests import ROOT
from tests.support.poison.catalogue import POISON, Poison
from tests.support.poison.lab import CLOSED, DEFAULT, EXCHANGES, INTERNAL, KINDS, MISSING, MOST_BYTES, NOWHERE, OPEN, SELECTED, SHUT, WORLDS
from tests.support.poison.pairwise import Value, covering

ATTEMPTS: Final = 2
HEADERS: Final = (
    *("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-last-death-exchange"),
    *("x-last-death-queue", "x-last-death-reason", "x-delivery-count", "x-acquired-count", "x-stream-offset", "x-received-from"),
    *("x-shovelled", "x-shovelled-by", "x-invalid-headers", "x-exchange", "x-routing-key", "x-cc", "x-match", "x-opt-deaths"),
    *("x-opt-rabbitmq-received-time", "x-opt-delivery-count", "x-deprecated", "x-message-ttl", "x-expires", "x-delay", "x-priority"),
    *("x-max-length", "x-queue-type", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-quorum-initial-group-size"),
    *("x-amqp-1.0-properties", "x-amqp-1.0-app-properties", "x-amqp-1.0-message-annotations", "x-amqp-1.0-footer", "x-message-id"),
    *("x-basic-type", "x-basic-app-id", "x-basic-priority", "x-basic-delivery-mode", "x-basic-expiration", "x-message-id-type"),
    *("x-correlation-id", "x-correlation-id-type", "timestamp_in_ms", "x-trace", "x-connection", "x-user", "x-relay-id"),
    *("x-relay-replay-of", "cc", "bcc", "X-DEATH", "x-Death", "headers", "expiration", "traceparent", "hash-on", "count", "reason"),
    *("x-recent-history-no-store", "x-stream-publishing-id", "x-mqtt-dup", "x-mqtt-publish-qos", "x-reply-to-topic"),
)
"""Names in RabbitMQ's own source, its plugins', and those that look like them."""
CORRELATION: Final = "x-correlation-id"
"""Left out unless it is a string."""
GROUPS: Final = 8
"""Among which the names are spread: those of one group stand in one message."""
SHAPES: Final[dict[str, tuple[Any, str]]] = {
    "text": ("expired", ""), "empty": ("", ""), "odd text": ("é\n\x1b[31m" * 30, ""), "long": ("x" * 1000, ""), "integer": (7, ""),
    "largest": (2**63 - 1, ""), "smallest": (-(2**63), ""), "fraction": (1e-300, ""), "true": (True, ""), "null": (None, ""),
    "table": ({"queue": "q"}, ""), "no entries": ({}, ""), "no items": ([], ""), "texts": (["text", ""], ""), "lists": ([[], [[7]]], ""),
    "nulls": ([None], ""), "odd deaths": ([{"queue": 7, "reason": None, "count": "many", "exchange": [], "routing-keys": "k"}], ""),
    "deaths": ([{"queue": "q", "reason": "expired", "count": 1, "exchange": "", "routing-keys": ["k"], "time": 0}], ""),
    "beyond 64 bits": (2**63, "number_out_of_range"), "no name": ({"": 1}, "header_name"),
    "too large": ("x" * 130_000, "headers_too_large"),
    "too deep": (json.loads("[" * 65 + "]" * 65), "headers_too_deep"),
}  # fmt: skip
"""Values of headers, each with the code with which it is refused."""
ANY: Final = 4
"""Values of headers drawn by chance."""
MOST_VALUES: Final = 8000
"""Values that the headers may have: an entry of the catalogue has as many, so that each further header is too much."""
PLAIN: Final = Poison(kind=0, name="plain", outcome="delivered", columns={})
_OTHERS: Final = {"exchange", "routing_key", "options", "id"}
"""Columns that other axes give."""
_ELSEWHERE: Final = {"heavy", "default_limit", "year_9999", "archive_refuses", "internal_exchange", "no_permission", "allow_list"}
"""Needs of entries that have a test, or an axis, of their own."""
_SIZES: Final = 42
"""The kind of entries about sizes, which have limits of their own here."""
_ENTRIES: Final = [entry for entry in POISON if entry.rows == 1 and entry.kind != _SIZES and not _ELSEWHERE & {*entry.needs}]
OPTIONS: Final = {entry.name: entry for entry in (PLAIN, *_ENTRIES) if entry is PLAIN or {*entry.columns} == {"options"}}
"""Entries of the catalogue that give options alone."""
COLUMNS: Final = {
    entry.name: entry
    for entry in (
        *(PLAIN, *(entry for entry in _ENTRIES if entry.columns and not _OTHERS & {*entry.columns})),
        Poison(kind=_SIZES, name="body of many frames", outcome="delivered", columns={"body": {"$bytes": 300_000}}),
        Poison(
            kind=_SIZES,
            name="too large for the broker",
            outcome="failed",
            code="broker_refused",
            columns={"body": {"$bytes": MOST_BYTES + 1}},
        ),
    )
}
"""Entries that give none of the other axes' columns, and what only this broker judges."""
ORDERING, DEDUP, COALESCE, BUNDLE = "ordering_key", "dedup_key", "coalesce_key", "bundle_key"
FOLDED: Final = (COALESCE, BUNDLE)
"""Keys under which a message waits until it is folded."""
_QUEUE_ONLY: Final = {"seq", "attempts", "lock_expires_at", "created_at"}
KEYS: Final[dict[str, set[str]]] = {
    "": set(), ORDERING: {ORDERING}, DEDUP: _QUEUE_ONLY, COALESCE: _QUEUE_ONLY, BUNDLE: {*_QUEUE_ONLY, "body"}
}  # fmt: skip
"""Keys under which a row is inserted, each with the columns that it cannot be given with."""
CROSSED: Final = ("options", "queue", "write", "key", "world")
"""Axes of which the wide form shows all combinations: option, kind of queue, permission and limit."""
NO_HEADERS: Final = "no headers"


def given(entry: Poison) -> dict[str, Any]:
    """The options of an entry; where they are no object, something that takes no headers either."""
    if not entry.columns:
        return {}
    try:
        options = json.loads(entry.text("options"))
    except (ValueError, RecursionError, UnicodeError):
        options = None
    return options if isinstance(options, dict) else {"headers": "not an object"}


_PARSED: Final = {name: given(entry) for name, entry in OPTIONS.items()}
_PAYLOADS: Final = {name: entry.claim("", "").payload if entry.encodable else b"" for name, entry in COLUMNS.items()}


def _stripped() -> tuple[str, ...]:
    """Patterns of the headers that the page says are left out."""
    page = " ".join((ROOT / "docs/options.md").read_text().split())
    [text] = re.findall(r"It also leaves out headers that RabbitMQ writes itself: (.*?)\. ", page)
    return (*re.findall(r"`([^`]+)`", text), "x-relay-id", "x-relay-replay-of")


STRIPPED: Final = _stripped()


def kept(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The headers that reach a consumer."""
    found = {name: value for name, value in headers.items() if not any(fnmatchcase(name, pattern) for pattern in STRIPPED)}
    return {name: value for name, value in found.items() if name != CORRELATION or isinstance(value, str)}


def values_of(headers: Any) -> int:
    """How many values there are in headers, or in one of them, lists and objects included."""
    inner = headers.values() if isinstance(headers, dict) else headers if isinstance(headers, list) else ()
    return sum(1 + values_of(value) for value in inner)


Result = tuple[str, str | None]
"""Result and code in the archive."""


class Row(NamedTuple):
    """One row, by its place on each axis."""

    world: str
    exchange: str
    write: str
    key: str
    queue: str
    keyed: str
    """The key that it is inserted under, if its columns allow that."""
    options: Poison
    columns: Poison
    headers: dict[str, Any]
    code: str
    """With which its headers are refused, if they are."""

    def __str__(self) -> str:
        """Show it in a line."""
        return f"{self.target} {self.options.name!r}, {self.columns.name!r}, headers {self.headers!s:.150}"

    @property
    def target(self) -> dict[str, str]:
        """Its columns `exchange` and `routing_key`."""
        exchange = SHUT + self.exchange if self.write == SHUT and self.exchange in EXCHANGES else self.exchange
        return {"exchange": exchange, "routing_key": self.key if self.key == NOWHERE else self.key + self.queue}

    @property
    def under(self) -> str:
        """The key that it is inserted under, empty for none."""
        return "" if KEYS[self.keyed] & self.columns.columns.keys() else self.keyed

    @property
    def _given(self) -> dict[str, Any]:
        return _PARSED[self.options.name]

    @property
    def payload(self) -> bytes:
        """What a consumer sees as its body."""
        payload = _PAYLOADS[self.columns.name]
        return b"[" + payload + b"]" if self.under == BUNDLE else payload

    @property
    def takes_headers(self) -> bool:
        """Whether its options are such that further headers can be added."""
        return bool(self.headers) and isinstance(self._given.get("headers") or {}, dict)

    def refusals(self) -> set[str]:
        """Codes of what the INSERT refuses, empty for some refusals of columns."""
        return self._refusals(self.headers)

    def _refusals(self, headers: Mapping[str, Any]) -> set[str]:
        codes = {entry.code for entry in (self.options, self.columns) if entry.outcome == "refused"}
        if not (headers and self.takes_headers):
            return codes
        too_many = values_of({**(self._given.get("headers") or {}), **headers}) > MOST_VALUES
        return codes | ({self.code} if self.code else set()) | ({"headers_too_large"} if too_many else set())

    def results(self) -> set[Result]:
        """Result and code of which the archive must show one pair, if the INSERT takes it."""
        failures, rejections = self._failures(), self._rejections()
        if rejections:
            return self._rejected(rejections)
        if failures:
            return {("failed", code) for code in failures}
        nacks = KINDS[self.queue].refuses if self.queue in self.reaches() else ""
        return {*([("success", None)] if nacks != "all" else []), *([("failed", "nacked")] if nacks else [])}

    def smuggled_results(self) -> set[Result]:
        """The same if it gets past the database's checks: a fold makes them again; the relay leaves out some headers before it looks."""
        if self.under in FOLDED:
            return {("rejected", code) for code in {"refused", *(self._rejections() & {"body_too_large"})}}
        codes = self._refusals(kept(self.headers))
        return self._rejected(codes | self._rejections()) if codes else self.results()

    def _rejected(self, codes: set[str]) -> set[Result]:
        """An exchange that is known to take nothing has its messages back before they are looked at."""
        known = self._failures() & ({*self._failures()} if "expired" in codes else {"exchange_missing", "access_refused"})
        return {("rejected", code) for code in codes} | {("failed", code) for code in known}

    def _rejections(self) -> set[str]:
        world = WORLDS[self.world]
        large = world.most_bytes is not None and len(self.payload) > world.most_bytes
        forbidden = self.target["exchange"] == world.forbidden
        codes = {self.columns.code} if self.columns.outcome == "rejected" else set()
        return codes | ({"body_too_large"} if large else set()) | ({"exchange_forbidden"} if forbidden else set())

    def _failures(self) -> set[str]:
        codes = {entry.code for entry in (self.options, self.columns) if entry.outcome == "failed"}
        if self.exchange == MISSING:
            return {*codes, "exchange_missing"}
        shut = (self.write == SHUT and self.exchange in EXCHANGES) or self.exchange == WORLDS[self.world].barred
        if shut or self.exchange == INTERNAL or (self.exchange == "topic" and self.key == CLOSED):
            return {*codes, "access_refused"}
        lost = not self.reaches() and self._given.get("mandatory") is not False
        return codes | ({"unroutable"} if lost else set())

    def reaches(self) -> set[str]:
        """Kinds whose queues the broker finds for it."""
        by_default = self.exchange == DEFAULT and (self.key == CLOSED or self.queue == "federated")
        found = set() if self.key == NOWHERE or by_default else {self.queue}
        return found | (_selected(self._given) & {*SELECTED})

    @property
    def may_be_repeated(self) -> bool:
        """Another message may close its channel: one of a topic without permission, or one of those that go apart."""
        return self.exchange == "topic" or bool(KINDS[self.queue].refuses) or "login_guest" in self.options.needs

    @property
    def vanishes(self) -> bool:
        """It expires where no consumer takes it at once."""
        return "consumer" in self.options.needs


def _selected(options: dict[str, Any]) -> set[str]:
    """Routing keys of CC and BCC."""
    headers = options.get("headers")
    given = [options.get(name) for name in ("CC", "cc", "BCC", "bcc")]
    given += [headers.get(name) for name in ("CC", "BCC")] if isinstance(headers, dict) else []
    return {key for keys in given for key in ([keys] if isinstance(keys, str) else keys or []) if isinstance(key, str)}


def _as_login(entry: Poison, world: str) -> Poison:
    """The entry where the relay's login is not guest, and may be one that writes in any name."""
    if "login_guest" not in entry.needs:
        return entry
    if entry.outcome == "delivered":
        return replace(entry, columns={"options": {"userId": world}}, expect={"user_id": world})
    allowed = "impersonator" in WORLDS[world].tags
    return replace(entry, outcome="delivered", code="", expect={"user_id": "somebody.else"}) if allowed else entry


def _any_value(chance: random.Random, depth: int = 0) -> Any:
    """A value of any shape, such as JSON and AMQP both have."""
    text = "".join(chance.choices("aé\x01\t /", k=chance.randrange(9)))
    scalars = (None, True, chance.randint(-(2**63), 2**63 - 1), chance.uniform(-1, 1), text, chance.choice(HEADERS))
    if depth == 3 or chance.random() < 0.4:
        return chance.choice(scalars)
    inside = [_any_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    names = [chance.choice((*HEADERS, *"nmo")) for _ in inside]
    return dict(zip(names, inside, strict=True)) if chance.random() < 0.5 else inside


def _groups(chance: random.Random) -> dict[str, list[str]]:
    names = chance.sample(HEADERS, len(HEADERS))
    return {", ".join(names[start : start + 2]): names[start::GROUPS] for start in range(GROUPS)}


def draw(chance: random.Random, crossed: Sequence[str] = ()) -> Iterator[Row]:
    """Rows that combine every value of each axis with every value of each other axis, and all values of the crossed axes."""
    groups, shapes = _groups(chance), {**SHAPES, **{f"any {n}": (_any_value(chance), "") for n in range(ANY)}}
    axes: dict[str, Collection[str]] = {
        "world": WORLDS, "exchange": (*EXCHANGES, INTERNAL, MISSING, DEFAULT), "write": ("", SHUT), "key": (OPEN, CLOSED, NOWHERE),
        "queue": KINDS, "keyed": KEYS, "options": OPTIONS, "columns": COLUMNS, "headers": (NO_HEADERS, *groups), "shape": shapes,
    }  # fmt: skip
    for row in covering({axis: [*names] for axis, names in axes.items()}, _stops(), chance, crossed):
        value, code = shapes[row.pop("shape")]
        headers = dict.fromkeys(groups.get(row.pop("headers"), ()), value)
        options, columns = _as_login(OPTIONS[row.pop("options")], row["world"]), COLUMNS[row.pop("columns")]
        yield Row(**row, options=options, columns=columns, headers=headers, code=code if headers else "")


def _stops() -> set[Value]:
    """Values over which a row never reaches a queue."""
    entries = [("options", one) for one in OPTIONS.values()] + [("columns", one) for one in COLUMNS.values()]
    stops = {(axis, entry.name) for axis, entry in entries if entry.outcome != "delivered"}
    stops |= {("shape", name) for name, (_, code) in SHAPES.items() if code}
    return stops | {("exchange", INTERNAL), ("exchange", MISSING), ("write", SHUT), ("key", NOWHERE)}
