"""A store whose connections answer from a script, each statement by its name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from relay.engine.policy import Policy
from relay.events import Event
from relay.message import Claim
from relay.ports import Claimed, Wanted
from relay.postgres.parameters import wanted_of
from relay.postgres.store import Store
from relay.queries.statements import names
from tests.support.database.queue import FIRST, PLENTY
from tests.support.fakes.adapters import Clock

ROLES = ("claim", "settle", "control")
NAMES = names()
Answer = Sequence[Sequence[object]] | BaseException | Callable[[], Any]
DUE = ("due_fresh", "due_at", "due_by_id")
SCANS = ("scan_due", "scan_left")
NONE_DUE = (None,) * len(Claim._fields)


class Played:
    """What was asked of which connection, with which values.

    Answers are rows, an error, or a coroutine function that returns rows; without one a statement has no rows.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.told: list[Event] = []
        self.leaving = False
        self.put_back = 0
        self.store = Store(
            conninfo="", schema="app", name="one", policy=lambda: self.policy, emit=self.told.append, leaving=lambda: self.leaving,
            put_back=self._count,
        )  # fmt: skip
        self.store.relay_id = 7
        self.answers: dict[str, list[Answer]] = defaultdict(list)
        self.asked: list[tuple[str, str]] = []
        self.values: list[Mapping[str, Any]] = []
        for role, session in zip(ROLES, self.store._sessions, strict=True):
            played: Any = session
            played.open, played.fetch, played.aclose = (
                partial(self._say, role, "open"),
                partial(self._fetch, role),
                partial(self._say, role, "close"),
            )

    async def claim(
        self, *claims: Claim, wanted: Wanted = FIRST, limit: int = 10, limit_bytes: int = PLENTY, answer: Answer | None = None
    ) -> Claimed:
        """Claim these, in this order, or meet another answer."""
        self.answers[f"due_{wanted_of(wanted)[0]}"].append(answer or due_rows(*claims))
        return await self.store.claim(wanted, limit=limit, limit_bytes=limit_bytes)

    def _count(self) -> None:
        self.put_back += 1

    async def _say(self, role: str, word: str) -> None:
        self.asked.append((role, word))

    async def _fetch(self, role: str, statement: bytes, values: Mapping[str, Any], *, by_position: bool = False) -> Any:
        del by_position
        name = self._name(statement)
        assert {place.decode() for place in re.findall(rb"%\((\w+)\)s", statement)} <= set(values), name
        self.asked.append((role, name))
        self.values.append(values)
        answer = self.answers[name].pop(0) if self.answers[name] else []
        if isinstance(answer, BaseException):
            raise answer
        return await answer() if callable(answer) else answer

    def _name(self, statement: bytes) -> str:
        statements = self.store._statements
        found = (name for name in NAMES if statements[name] == statement)
        due = (name for name in DUE if statements.claim(name[4:]) == statement)
        scans = (name for name in SCANS if statements.scan(name[5:]) == statement)
        return next(found, None) or next(due, None) or next(scans)


def due_rows(*claims: Claim, found: int | None = None, bounds: Sequence[object] | None = None) -> list[tuple[object, ...]]:
    """What a claim statement answers: a header in the first row, and that one alone where nothing is due."""
    header = ("20:20:", len(claims) if found is None else found, 5000.0, None, *([] if bounds is None else [bounds]))
    rows = [(*claim, None, *header[1:]) for claim in claims] or [(*NONE_DUE, None, *header[1:])]
    return [(*rows[0][: len(NONE_DUE)], *header), *rows[1:]]


def clock_of(monkeypatch: pytest.MonkeyPatch, *modules: str) -> Clock:
    """A clock that moves only by hand, for these modules of `relay.postgres`."""
    clock = Clock()
    for module in modules:
        monkeypatch.setattr(f"relay.postgres.{module}.time", SimpleNamespace(monotonic=clock))
    return clock
