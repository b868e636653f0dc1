"""Contracts between a claim and its frames: what breaks an enforced one is not encoded. Where there are none, nothing stands in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from relay.contracts.events import ContractBroken, ContractsHeld, ContractUnusable
from relay.contracts.registry import Contract, Contracts, breaches
from relay.encoding import Encoded, Encoder
from relay.events import Sink
from relay.message import Claim, PublishResult, Verdict

Encode = Callable[[Claim], Encoded | PublishResult]


class Gate:
    """Encodes for one connection as its encoder does, and lets pass what keeps the contracts."""

    def __init__(self, encoder: Encoder, contracts: Contracts, emit: Sink) -> None:
        self.encoder = encoder
        self._emit = emit
        self.hold(contracts)

    def hold(self, contracts: Contracts) -> None:
        """Check against these from now on; with none the encoder's own method is called."""
        self._contracts = contracts
        self.encode: Encode = self._checked if len(contracts) else self.encoder.encode

    def _checked(self, claim: Claim) -> Encoded | PublishResult:
        """As `Encoder.encode`, which speaks first: what cannot be sent at all is not held against a contract."""
        made = self.encoder.encode(claim)
        held = self._contracts.of(claim.exchange, claim.routing_key)
        if not held or isinstance(made, PublishResult):
            return made
        for breach in breaches(held, None if claim.binary else claim.payload):
            if breach.contract.mode == "enforce":
                return PublishResult(Verdict.INVALID, "contract_violated", breach.sentence)
            self._emit(ContractBroken(claim.id, claim.exchange, claim.routing_key, breach.sentence))
        return made


class Gates:
    """Makes the encoder of each connection, and tells the newest what changes.

    Args:
        max_body_bytes: limit of a payload, see `Encoder`; `limit` changes it.
        allowed_exchanges: see `Encoder`.
        emit: takes what there is to tell of contracts.
    """

    def __init__(self, *, max_body_bytes: int, allowed_exchanges: Sequence[str] | None, emit: Sink) -> None:
        self._max_body_bytes = max_body_bytes
        self._allowed = allowed_exchanges
        self._emit = emit
        self._contracts = Contracts()
        self._gate: Gate | None = None

    def make(self, frame_max: int) -> Gate:
        """The encoder of a connection whose frames have that size."""
        encoder = Encoder(frame_max=frame_max, max_body_bytes=self._max_body_bytes, allowed_exchanges=self._allowed)
        self._gate = Gate(encoder, self._contracts, self._emit)
        return self._gate

    def limit(self, max_body_bytes: int) -> None:
        """Take another limit of a payload."""
        self._max_body_bytes = max_body_bytes
        if self._gate:
            self._gate.encoder.max_body_bytes = max_body_bytes

    def hold(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Check against these contracts from now on; those that cannot be read are told of, and their messages go unchecked."""
        self._contracts = Contracts(Contract(*row) for row in rows)
        if self._gate:
            self._gate.hold(self._contracts)
        self._emit(ContractsHeld(self._contracts.count("enforce"), self._contracts.count("warn")))
        for contract, sentence in self._contracts.unusable:
            self._emit(ContractUnusable(contract.exchange, contract.routing_key, contract.version, sentence))

    @property
    def unusable(self) -> list[str]:
        """Contracts that cannot be read, with why, for `relay status`."""
        return [f"{contract.name}: {sentence}" for contract, sentence in self._contracts.unusable]
