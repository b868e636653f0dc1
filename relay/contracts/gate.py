"""Contracts between a claim and the broker: what breaks an enforced one is not sent. Large contents wait apart for their check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from relay.contracts.apart import Checker, End, Judged
from relay.contracts.events import ContractBroken, ContractsHeld, ContractUnusable
from relay.contracts.registry import Breach, Contract, Contracts, Held, breaches
from relay.events import Sink
from relay.message import Batch, Claim, PublishResult, Verdict

HandOver = Callable[[Sequence[int], Mapping[int, PublishResult]], None]
"""Takes places of messages that were checked, and the results of those that are not to be sent."""
_SLICE: Final = 0.01
"""Seconds of checks after which everything else has its turn."""
_SLOW: Final = 0.05
"""Seconds of one check after which those of its exchange go apart."""
_APART: Final = 60.0
"""Seconds for which they do."""


class Gate:
    """Checks messages before they are written.

    Args:
        emit: takes what there is to tell of contracts.
        checker: checks what takes long; by default in a process of its own.
        clock: monotonic seconds.

    """

    def __init__(self, emit: Sink, *, checker: Checker | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._checker = checker or Checker()
        self._clock = clock
        self._contracts = Contracts()
        self._slow: dict[str, float] = {}
        """Exchanges with a check that took long, and until when theirs go apart."""

    def hold(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Check against these contracts from now on; those that cannot be read are told of, and their messages go unchecked."""
        self._contracts = Contracts(Contract(*row) for row in rows)
        self._slow.clear()
        self._emit(ContractsHeld(self._contracts.count("enforce"), self._contracts.count("warn")))
        for contract, sentence in self._contracts.unusable:
            self._emit(ContractUnusable(contract.exchange, contract.routing_key, contract.version, sentence))

    @property
    def unusable(self) -> list[str]:
        """Contracts that cannot be read, with why, for `relay status`."""
        return [f"{contract.name}: {sentence}" for contract, sentence in self._contracts.unusable]

    def concerned(self, batch: Batch) -> list[int]:
        """Places of the messages that a contract is about; one look for a batch of which there are none."""
        if not self._contracts.concern(batch.exchanges):
            return []
        return [place for place, claim in enumerate(batch.claims) if self._contracts.of(claim.exchange, claim.routing_key)]

    async def check(self, batch: Batch, places: Sequence[int], hand_over: HandOver) -> None:
        """Check these messages of a batch, and hand over each as soon as it was; large ones come last, and hold up no other exchange's."""
        apart: dict[str, list[int]] = {}
        passed: list[int] = []
        refused: dict[int, PublishResult] = {}
        until = self._clock() + _SLICE
        for place in places:
            claim = batch.claims[place]
            held = self._contracts.of(claim.exchange, claim.routing_key)
            if self.goes_apart(claim, held):
                apart.setdefault(claim.exchange, []).append(place)
                continue
            if result := self.refusal(claim, held):
                refused[place] = result
            passed.append(place)
            if self._clock() > until:
                hand_over(passed, refused)
                passed, refused = [], {}
                await asyncio.sleep(0)
                until = self._clock() + _SLICE
        if passed:
            hand_over(passed, refused)
        async with asyncio.TaskGroup() as tasks:
            for several in apart.values():
                tasks.create_task(self._check_apart(batch, several, hand_over))

    def goes_apart(self, claim: Claim, held: Sequence[Held]) -> bool:
        """Whether its check might keep everything else waiting."""
        if claim.binary or not held:
            return False
        if len(claim.payload) > min([one.schema.inline_bytes for one in held]):
            return True
        return bool(self._slow) and self._clock() < self._slow.get(claim.exchange, 0.0)

    def refusal(self, claim: Claim, held: Sequence[Held]) -> PublishResult | None:
        """Check one message now; the result if it is not to be sent."""
        if not held:
            return None
        began = self._clock()
        result = self._judged(claim, breaches(held, None if claim.binary else claim.payload))
        now = self._clock()
        if now - began > _SLOW:
            self._slow[claim.exchange] = now + _APART
        return result

    async def aclose(self) -> None:
        """End the process that checks; legal at any time, and again."""
        await self._checker.aclose()

    async def _check_apart(self, batch: Batch, places: Sequence[int], hand_over: HandOver) -> None:
        for place in places:
            claim = batch.claims[place]
            # What is only on trial comes last, so that it costs no enforced contract its check.
            held = sorted(self._contracts.of(claim.exchange, claim.routing_key), key=lambda one: one.contract.mode != "enforce")
            judged = await self._checker.judge(claim.exchange, claim.payload, [one.contract.schema for one in held])
            result = self._concluded(claim, held, judged)
            hand_over([place], {place: result} if result else {})

    def _concluded(self, claim: Claim, held: Sequence[Held], judged: Judged) -> PublishResult | None:
        found = [Breach(one.contract, violation) for one, violation in zip(held, judged.found, strict=False) if violation]
        if result := self._judged(claim, found):
            return result
        for one in held[len(judged.found) :]:
            sentence = f"content was not checked against contract {one.contract.name}: {judged.end}"
            if one.contract.mode == "enforce":
                verdict = Verdict.REFUSED if judged.end is End.LOST else Verdict.INVALID
                return PublishResult(verdict, "contract_unchecked", sentence)
            self._emit(ContractBroken(claim.id, claim.exchange, claim.routing_key, sentence))
        return None

    def _judged(self, claim: Claim, found: Iterable[Breach]) -> PublishResult | None:
        for breach in found:
            if breach.contract.mode == "enforce":
                return PublishResult(Verdict.INVALID, "contract_violated", breach.sentence)
            self._emit(ContractBroken(claim.id, claim.exchange, claim.routing_key, breach.sentence))
        return None
