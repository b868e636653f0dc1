"""Plain messages and scripted adapters for tests of the core."""

# ruff: noqa: ARG002 - stand-ins take what the ports name

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from relay.claims.cursor import Cursor
from relay.claims.key_bounds import KeyBound
from relay.errors import StoreError
from relay.message import CONFIRMED, Batch, Claim, Outcome, Portion, Position, PublishResult, Range, Verdict, memory_of
from relay.ports import Claimed, DuePlace, Fresh, Listed, Page, QueueLook, RowLeft, ScanFinding, SettleResult, SettleRow, Sought, Wanted

Answer = TypeVar("Answer")
ABOVE = Position(10**9, 1)
"""Where a listed key's lowest message is: above every bound."""
NOWHERE = "1:1:"
A_HEAD = ScanFinding("key", Position(50, 1), "", None, 0, trusted=False)
_numbers = itertools.count(1)


def at_once(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """Result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError("it waited")


def a_claim(**given: Any) -> Claim:
    """One claim; every field can be given, options as text."""
    seq = next(_numbers)
    plain = Claim(1, seq, f"id-{seq}", "orders", "new", b"{}", False, None, None, None, 1, None)
    return plain._replace(**{**given, **octets(given.get("options"))})


def octets(options: str | None) -> dict[str, bytes | None]:
    """The field `options` of a claim, of its text."""
    return {"options": options.encode() if options else None}


EMPTY = memory_of([a_claim(payload=b"")])
"""Bytes that a claim takes in addition to its payload."""


def a_finding(kind: str = "waiting", **given: Any) -> ScanFinding:
    """What a scan has seen; every field can be given."""
    plain = ScanFinding(kind, Position(1, next(_numbers)), "orders", None, None, trusted=True)
    return plain._replace(**given)


def a_batch(*claims: Claim, count: int = 1, source: str = "fresh", deadline: float = 1e12) -> Batch:
    """The claims, or that many plain ones, under one token."""
    return Batch(f"token-{next(_numbers)}", list(claims) or [a_claim() for _ in range(count)], 1000.0, 10.0, deadline, source)


def a_portion(claims: Sequence[Claim], result: PublishResult = CONFIRMED) -> Portion:
    """The claims with one result, published half a second and confirmed one second after the claim."""
    count = len(claims)
    return Portion(list(claims), [result] * count, [10.5] * count, [11.0] * count)


class FakeClaims:
    """Answers claims from a script by source, and keeps what was asked.

    Claims of one exchange's own stream have the source "branch".
    """

    def __init__(self, script: Mapping[str, Sequence[Batch | Exception | None]] | None = None) -> None:
        self.script = {source: list(answers) for source, answers in (script or {}).items()}
        self.asked: list[str] = []
        self.wanted: list[Wanted] = []
        self.limits: list[tuple[str, int]] = []
        """The source of each claim, and how many messages it asked for."""
        self.lanes: dict[int, int] = {}
        self.keys: dict[str, int] = {}
        """Listed at the next look above the lanes' head."""
        self.heads: dict[str, ScanFinding] = {}
        self.found: list[list[str]] = []
        """The keys of each look for heads."""
        self.held: list[list[str]] = []
        """The exchanges that each look or scan leaves out."""
        self.due: list[ScanFinding] = []
        """What the next scan of waits finds."""
        self.seen = QueueLook(fresh=False, ordered=False, waiting=False)
        self.full = True
        """Claims of fresh messages that find something leave something."""
        self.claimed: Callable[[], None] = lambda: None
        """What happens while a claim is under way."""

    async def reject_unprintable(self) -> None:
        """Nothing is unprintable here."""

    async def claim(self, wanted: Wanted, *, limit: int, limit_bytes: int) -> Claimed:
        """Give the next answer of the script, nothing when it is at its end."""
        source = "branch" if isinstance(wanted, Fresh) and wanted.only else wanted.source
        self.asked.append(source)
        self.wanted.append(wanted)
        self.limits.append((source, limit))
        self.claimed()
        answers = self.script.get(source, [])
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        full = self.full and answer is not None and isinstance(wanted, Fresh)
        return Claimed(answer, NOWHERE, full, answer.claims[-1].position if answer else None)

    async def keep_lanes(self) -> dict[int, int]:
        """Return the lanes that the test gave."""
        return dict(self.lanes)

    async def list_keys(self, *, lanes: Sequence[int], ranges: Sequence[Range], walk: int) -> Listed:
        """Return the keys that the test gave, once."""
        self.asked.append("list_keys")
        keys, self.keys = self.keys, {}
        return Listed({key: (lane, ABOVE) for key, lane in keys.items()}, "90:90:", None)

    async def find_heads(
        self, keys: Sequence[str], bounds: Sequence[KeyBound], *, running: Sequence[int], paused: Sequence[str]
    ) -> tuple[str, dict[str, ScanFinding]]:
        """Return the heads that the test gave, of any other key one that is ready."""
        self.asked.append("find_heads")
        self.found.append(list(keys))
        self.held.append(list(paused))
        return "90:90:", {key: self.heads.get(key, A_HEAD)._replace(key=key) for key in keys}

    async def scan_due(self, *, after: DuePlace, sought: Sought) -> Page:
        """Return what the test gave, once."""
        self.asked.append("scan_due")
        self.held.append(sought.held)
        found, self.due = self.due, []
        return Page(found, None, None, after)

    async def look(self, *, fresh: Cursor, after: str, paused: Sequence[str], lanes: Collection[int], ordered: Cursor) -> QueueLook:
        """Say what the test says."""
        self.asked.append("look")
        self.held.append(list(paused))
        return self.seen


class FakeSettles:
    """Writes rows, or fails as scripted: one entry for each call, None or an error. A call with the id at fault is always refused.

    Ids that begin with `lost` are not ours any more; those in `busy` another session holds.
    """

    def __init__(self, *script: StoreError | None, guilty: str = "") -> None:
        self._script = list(script)
        self._guilty = guilty
        self.busy: set[str] = set()
        self.archived: list[SettleRow] = []
        self.released: list[SettleRow] = []
        self.again: list[bool] = []

    async def archive(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Write to the archive."""
        return self._write(self.archived, rows, again=again)

    async def release(self, batch: Batch, rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        """Release the rows."""
        return self._write(self.released, rows, again=again)

    def forgive(self) -> None:
        """From now on no id is at fault."""
        self._guilty = ""

    def _write(self, to: list[SettleRow], rows: Sequence[SettleRow], *, again: bool) -> list[RowLeft]:
        self.again.append(again)
        error = self._script.pop(0) if self._script else None
        if any(row.claim.id == self._guilty for row in rows):
            error = StoreError("Refused.", refused=True)
        if error:
            raise error
        to += [row for row in rows if row.claim.id not in self.busy]
        left = [row.claim.id for row in rows if row.claim.id in self.busy or row.claim.id.startswith("lost")]
        return [RowLeft(id_, id_ in self.busy) for id_ in left]


class FakeIntake:
    """Hands out batches and errors in their order, and remembers its calls."""

    def __init__(self, *script: Batch | Exception | None) -> None:
        self.script = list(script)
        self.rooms: list[tuple[int, int]] = []
        self.told: list[str] = []
        self.looked = asyncio.Event()
        self.on_empty: Callable[[], None] = lambda: None

    async def reject_unprintable(self) -> None:
        """Remember it."""
        self.told.append("reject_unprintable")

    async def claim(self, room: int, room_bytes: int) -> Batch | None:
        """Give the next answer, then nothing."""
        self.rooms.append((room, room_bytes))
        answer = self.script.pop(0) if self.script else None
        if isinstance(answer, Exception):
            raise answer
        if not self.script:
            self.looked.set()
            self.on_empty()
        return answer

    def settled(self, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Note the ids."""
        self.told += [f"settled {claim.id}" for claim in portion.claims]

    def hint(self) -> None:
        """Note it."""
        self.told.append("hint")

    def until_next_look(self) -> float:
        """Return an hour: nothing but a signal ends a rest."""
        return 3600.0

    def reset(self) -> None:
        """Note it."""
        self.told.append("reset")


class FakePublisher:
    """Confirms every batch, or what the test scripts by id; what is `held` was written and waits for `let_go` or `cut`."""

    def __init__(self) -> None:
        self.published: list[Batch] = []
        self.results: dict[str, PublishResult] = {}
        self.held: set[str] = set()
        self.unwritten: set[str] = set()
        """Ids that wait for their turn, until the publisher is asked to stop writing."""
        self.ready_event = asyncio.Event()
        self.ready_event.set()
        self.waited = asyncio.Event()
        self._freed = asyncio.Event()
        self._holding = asyncio.Event()
        self._is_cut = False

    @property
    def ready(self) -> bool:
        """As the test says."""
        return self.ready_event.is_set()

    async def wait_ready(self) -> None:
        """Wait for the test."""
        self.waited.set()
        await self.ready_event.wait()

    async def publish(self, batch: Batch) -> AsyncIterator[Portion]:
        """Yield what is not held at once, the rest when it is freed or cut."""
        self.published.append(batch)
        now = [claim for claim in batch.claims if claim.id not in self.held | self.unwritten]
        later = [claim for claim in batch.claims if claim.id in self.held]
        waiting = [claim for claim in batch.claims if claim.id in self.unwritten]
        if now:
            yield self._portion(now)
        if waiting:
            await self._holding.wait()
            yield a_portion(waiting, PublishResult(Verdict.UNWRITTEN, "cut", "Held."))
        if later:
            await self._freed.wait()
            yield self._portion(later) if not self._is_cut else a_portion(later, PublishResult(Verdict.UNKNOWN, "cut", "Cut."))

    def let_go(self) -> None:
        """Confirm what was held."""
        self._freed.set()

    def stop_writing(self) -> None:
        """Write nothing more."""
        self._holding.set()

    def cut(self) -> None:
        """Give up on what is held."""
        self._is_cut = True
        self._freed.set()

    def _portion(self, claims: list[Claim]) -> Portion:
        return a_portion(claims)._replace(results=[self.results.get(claim.id, CONFIRMED) for claim in claims])


class FakeSettler:
    """Writes everything at once, unless the test closes the gate."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.left = False

    def leave(self) -> None:
        """Note it."""
        self.left = True

    async def settle(self, batch: Batch, portion: Portion, outcomes: Sequence[Outcome]) -> AsyncIterator[SettleResult]:
        """Write when the gate is open."""
        await self.gate.wait()
        self.outcomes |= {claim.id: outcome for claim, outcome in zip(portion.claims, outcomes, strict=True)}
        yield SettleResult(portion, outcomes, [claim.id for claim in portion.claims if claim.id.startswith("lost")])


class FakeWakeup:
    """Says once that the queue must be looked at again, then lets the engine sleep."""

    def __init__(self, *, looks: int = 0) -> None:
        self.looks = looks
        self.found: list[int] = []
        self.asleep = asyncio.Event()

    async def idle(self) -> bool:
        """Ask for as many further looks as the test said."""
        if self.looks:
            self.looks -= 1
            return True
        self.asleep.set()
        return False

    def busy(self, messages: int) -> None:
        """Note the count."""
        self.found.append(messages)


class Clock:
    """Time that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Return the present."""
        return self.now
