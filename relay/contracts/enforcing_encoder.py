"""Checks claimed messages against contracts before they are published; large contents are checked separately."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from relay.contracts.fair_queue import FairTurns
from relay.contracts.large_checks import CheckFailure, CheckResult, LargeChecks
from relay.contracts.registry import Breach, CompiledContract, Contract, Contracts, by_age, quick_breaches
from relay.contracts.schema import compiled
from relay.events import Sink
from relay.events.contracts import ContractBroken, ContractsHeld, ContractUnusable
from relay.message import Batch, Claim, PublishResult, TruncatedPayload, Verdict

HandOver = Callable[[Sequence[int], Mapping[int, PublishResult]], None]
"""A function that gets the places of checked messages, and the results of messages that must not be sent."""
_SLICE: Final = 0.003
"""Seconds of checks after which other work gets a turn."""
_MAX_TURN: Final = 0.1
"""The most seconds that a turn counts: an inline check takes longer only if the machine stalls."""
_MAX_UNUSABLE: Final = 10
"""The most unreadable contracts that a heartbeat names; the metric counts all of them."""


class EnforcingEncoder:
    """Checks messages before they are sent.

    Args:
        emit: the sink for events about contracts.
        checker: checks large contents, by default in a child process.
        clock: monotonic seconds.
    """

    def __init__(self, emit: Sink, *, checker: LargeChecks | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._checker = checker or LargeChecks()
        self._clock = clock
        self._contracts = Contracts()
        self._turns = FairTurns(max_seconds=_MAX_TURN, rest=1.0, clock=clock)
        """Limits checks to half of the time, whatever the number of batches."""

    async def load(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Compile these contracts, the oldest first, and from then on check messages against them.

        During the compilation, other work gets half of the time.

        Unreadable contracts are reported, and their messages stay unchecked.
        """
        for took in self.loading(rows):
            await asyncio.sleep(took)

    def loading(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[float]:
        """Do the same as `load` step by step: each step compiles one contract, and yields the seconds of its compilation."""
        kept, contracts = self._contracts.schemas(), Contracts()
        for contract in by_age(Contract(*row) for row in rows):
            began = self._clock()
            contracts.add(contract, lambda text: kept.get(text) or compiled(text))
            yield self._clock() - began
        contracts.index()
        self._contracts = contracts
        self._emit(ContractsHeld(self._contracts.count("enforce"), self._contracts.count("warn")))
        for contract, sentence in self._contracts.unusable:
            self._emit(ContractUnusable(contract.exchange, contract.routing_key, contract.version, sentence))

    @property
    def unusable(self) -> list[str]:
        """The first unreadable contracts, each with the reason, for `relay status`."""
        return [f"{contract.name}: {sentence}" for contract, sentence in self._contracts.unusable[:_MAX_UNUSABLE]]

    def concerned(self, batch: Batch) -> list[int]:
        """Places of messages whose exchange has contracts and whose payload is not truncated; `check` compares the routing keys."""
        exchanges = self._contracts.concerned(batch.exchanges)
        if not exchanges:
            return []
        return [
            place for place, claim in enumerate(batch.claims) if type(claim.payload) is not TruncatedPayload and claim.exchange in exchanges
        ]

    async def check(self, batch: Batch, places: Sequence[int], hand_over: HandOver) -> None:
        """Check these messages of a batch, and hand over each message when it is checked; slow checks of an exchange come last."""
        by_exchange: dict[str, list[int]] = {}
        for place in places:
            by_exchange.setdefault(batch.claims[place].exchange, []).append(place)
        async with asyncio.TaskGroup() as tasks:
            for exchange, own_places in by_exchange.items():
                tasks.create_task(self._check(exchange, batch, own_places, hand_over))

    async def aclose(self) -> None:
        """End the child process; may be called at any time and repeatedly."""
        await self._checker.aclose()

    async def _check(self, exchange: str, batch: Batch, places: Sequence[int], hand_over: HandOver) -> None:
        left, slow = deque(places), list[int]()
        while left:
            async with self._turns.turn(exchange):
                passed, refused = self._check_slice(batch, left, slow)
            if passed:
                hand_over(passed, refused)
        for place in slow:
            claim = batch.claims[place]
            # Contracts in mode warn come last, so that they never use up the time of an enforced contract's check.
            contracts = sorted(self._contracts.of(claim.exchange, claim.routing_key), key=lambda one: one.contract.mode != "enforce")
            judged = await self._checker.judge(claim.exchange, claim.payload, [one.contract.schema for one in contracts])
            result = self._result_of(claim, contracts, judged)
            hand_over([place], {place: result} if result else {})

    def _check_slice(self, batch: Batch, left: deque[int], slow: list[int]) -> tuple[list[int], dict[int, PublishResult]]:
        """Check messages for one slice of time; return the checked messages and the results of refused messages.

        Unchecked messages stay in `left`; messages with a slow check are added to `slow`.
        """
        passed, refused = list[int](), dict[int, PublishResult]()
        until = self._clock() + _SLICE
        while left:
            place = left.popleft()
            claim = batch.claims[place]
            found = quick_breaches(self._contracts.of(claim.exchange, claim.routing_key), None if claim.binary else claim.payload)
            (slow if found is None else passed).append(place)
            if result := self._result_of_breaches(claim, found or ()):
                refused[place] = result
            if self._clock() > until:
                break
        return passed, refused

    def _result_of(self, claim: Claim, contracts: Sequence[CompiledContract], judged: CheckResult) -> PublishResult | None:
        found = [Breach(one.contract, violation) for one, violation in zip(contracts, judged.found, strict=False) if violation]
        if result := self._result_of_breaches(claim, found):
            return result
        for one in contracts[len(judged.found) :]:
            sentence = f"content was not checked against contract {one.contract.name}: {judged.end}"
            if one.contract.mode == "enforce":
                verdict = Verdict.REFUSED if judged.end is CheckFailure.LOST else Verdict.INVALID
                return PublishResult(verdict, "contract_unchecked", sentence)
            self._emit(ContractBroken(claim.id, claim.exchange, claim.routing_key, sentence))
        return None

    def _result_of_breaches(self, claim: Claim, found: Iterable[Breach]) -> PublishResult | None:
        for breach in found:
            if breach.contract.mode == "enforce":
                return PublishResult(Verdict.INVALID, "contract_violated", breach.sentence)
            self._emit(ContractBroken(claim.id, claim.exchange, claim.routing_key, breach.sentence))
        return None
