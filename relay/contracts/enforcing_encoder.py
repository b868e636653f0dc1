"""Contracts between a claim and the broker: what breaks an enforced one is not sent. Large contents wait apart for their check."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from relay.contracts.fair_queue import FairTurns
from relay.contracts.large_checks import CheckFailure, CheckResult, LargeChecks
from relay.contracts.registry import Breach, CompiledContract, Contract, Contracts, quick_breaches
from relay.contracts.schema import compiled
from relay.events import Sink
from relay.events.contracts import ContractBroken, ContractsHeld, ContractUnusable
from relay.message import Batch, Claim, PublishResult, TruncatedPayload, Verdict

HandOver = Callable[[Sequence[int], Mapping[int, PublishResult]], None]
"""Takes places of messages that were checked, and the results of those that are not to be sent."""
_SLICE: Final = 0.003
"""Seconds of checks after which everything else has its turn."""
_LONGEST: Final = 0.1
"""Seconds for which everything else has it at the most: no check between other work takes as long, but where the machine stands still."""

_SHOWN: Final = 10
"""Contracts that cannot be read and stand in a heartbeat; the metric counts all."""


class EnforcingEncoder:
    """Checks messages before they are written.

    Args:
        emit: takes what there is to tell of contracts.
        checker: checks what takes long; by default in a process of its own.
        clock: monotonic seconds.

    """

    def __init__(self, emit: Sink, *, checker: LargeChecks | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._checker = checker or LargeChecks()
        self._clock = clock
        self._contracts = Contracts()
        self._turns = FairTurns(most=_LONGEST, rest=1.0, clock=clock)
        """Checks take half of the time at the most, whatever number of batches is checked at once."""

    def load(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Check against these contracts from now on; those that cannot be read are told of, and their messages go unchecked."""
        read = [Contract(*row) for row in rows]
        texts = {one.schema for one in read}
        kept = {text: schema for text, schema in self._contracts.schemas().items() if text in texts}
        self._contracts = Contracts()  # so that what was replaced leaves its memory to what is compiled now
        self._contracts = Contracts(read, compile_schema=lambda text: kept.get(text) or compiled(text))
        self._emit(ContractsHeld(self._contracts.count("enforce"), self._contracts.count("warn")))
        for contract, sentence in self._contracts.unusable:
            self._emit(ContractUnusable(contract.exchange, contract.routing_key, contract.version, sentence))

    @property
    def unusable(self) -> list[str]:
        """The first contracts that cannot be read, with why, for `relay status`."""
        return [f"{contract.name}: {sentence}" for contract, sentence in self._contracts.unusable[:_SHOWN]]

    def concerned(self, batch: Batch) -> list[int]:
        """Places of the messages that are there as a whole, of exchanges with contracts; `check` tells whose keys these are about."""
        exchanges = self._contracts.concerned(batch.exchanges)
        if not exchanges:
            return []
        return [
            place for place, claim in enumerate(batch.claims) if type(claim.payload) is not TruncatedPayload and claim.exchange in exchanges
        ]

    async def check(self, batch: Batch, places: Sequence[int], hand_over: HandOver) -> None:
        """Check these messages of a batch, and hand over each as soon as it was; of an exchange those come last that take long."""
        several: dict[str, list[int]] = {}
        for place in places:
            several.setdefault(batch.claims[place].exchange, []).append(place)
        async with asyncio.TaskGroup() as tasks:
            for exchange, its_own in several.items():
                tasks.create_task(self._check(exchange, batch, its_own, hand_over))

    async def aclose(self) -> None:
        """End the process that checks; legal at any time, and again."""
        await self._checker.aclose()

    async def _check(self, exchange: str, batch: Batch, places: Sequence[int], hand_over: HandOver) -> None:
        left, slow = deque(places), list[int]()
        while left:
            async with self._turns.turn(exchange):
                passed, refused = self._checked(batch, left, slow)
            if passed:
                hand_over(passed, refused)
        for place in slow:
            claim = batch.claims[place]
            # What is only on trial comes last, so that it costs no enforced contract its check.
            held = sorted(self._contracts.of(claim.exchange, claim.routing_key), key=lambda one: one.contract.mode != "enforce")
            judged = await self._checker.judge(claim.exchange, claim.payload, [one.contract.schema for one in held])
            result = self._concluded(claim, held, judged)
            hand_over([place], {place: result} if result else {})

    def _checked(self, batch: Batch, left: deque[int], slow: list[int]) -> tuple[list[int], dict[int, PublishResult]]:
        """Check messages for a short while: those that passed or are refused, with why; `left` has the rest, `slow` what may take long."""
        passed, refused = list[int](), dict[int, PublishResult]()
        until = self._clock() + _SLICE
        while left:
            place = left.popleft()
            claim = batch.claims[place]
            found = quick_breaches(self._contracts.of(claim.exchange, claim.routing_key), None if claim.binary else claim.payload)
            (slow if found is None else passed).append(place)
            if result := self._judged(claim, found or ()):
                refused[place] = result
            if self._clock() > until:
                break
        return passed, refused

    def _concluded(self, claim: Claim, held: Sequence[CompiledContract], judged: CheckResult) -> PublishResult | None:
        found = [Breach(one.contract, violation) for one, violation in zip(held, judged.found, strict=False) if violation]
        if result := self._judged(claim, found):
            return result
        for one in held[len(judged.found) :]:
            sentence = f"content was not checked against contract {one.contract.name}: {judged.end}"
            if one.contract.mode == "enforce":
                verdict = Verdict.REFUSED if judged.end is CheckFailure.LOST else Verdict.INVALID
                return PublishResult(verdict, "contract_unchecked", sentence)
            self._emit(ContractBroken(claim.id, claim.exchange, claim.routing_key, sentence))
        return None

    def _judged(self, claim: Claim, found: Iterable[Breach]) -> PublishResult | None:
        for breach in found:
            if breach.contract.mode == "enforce":
                return PublishResult(Verdict.INVALID, "contract_violated", breach.sentence)
            self._emit(ContractBroken(claim.id, claim.exchange, claim.routing_key, breach.sentence))
        return None
