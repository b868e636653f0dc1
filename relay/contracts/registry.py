"""Finds the contracts that apply to a message, and how the message breaks them. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from relay.codec.option_rules import printable
from relay.contracts.check_time import explained_bytes, inline_bytes
from relay.contracts.patterns import Patterns
from relay.contracts.schema import Schema, SchemaError, compiled, parsed
from relay.contracts.violation import Violation

MODES: Final = ("enforce", "warn")
MAX_TOTAL: Final = 512 << 20
"""Bytes of memory that all contracts in force may take; later contracts that exceed this limit are left out."""
_MAX_EXPLAINED: Final = 256 << 10
"""The largest size of a schema whose violation is explained inline: an explanation compiles the schema once more for each of its levels."""
_FULL: Final = (
    f"Contracts that were added earlier fill the {MAX_TOTAL >> 20} MiB that a relay has for all contracts: remove some, or shorten them."
)
_KEYS_KEPT: Final = 4096
"""How many routing keys of an exchange have their contracts cached; a further key clears the cache."""
_BINARY: Final = Violation("", "body", "it is in the column body, and the contract is about JSON in content")


class Contract(NamedTuple):
    """One row of `queue_message_contract`."""

    exchange: str
    routing_key: str
    """A pattern, as in a topic exchange."""
    version: int
    mode: str
    """enforce: a message that breaks the contract is rejected. warn: the message is sent, and the breach is logged."""
    schema: str
    """JSON text."""

    @property
    def name(self) -> str:
        """The contract's printable name, for messages."""
        return f"{printable(self.exchange)} {printable(self.routing_key)} version {self.version}"


class UnusableContract(NamedTuple):
    """A contract that cannot be used."""

    contract: Contract
    sentence: str


class Breach(NamedTuple):
    """A contract that a message breaks, with the violation."""

    contract: Contract
    violation: Violation

    @property
    def sentence(self) -> str:
        """One sentence with the contract, the JSON pointer, the rule and the reason, without any content."""
        place, rule, reason = self.violation
        return f'content breaks contract {self.contract.name} at "{place}", rule {rule}: {reason}'


class CompiledContract(NamedTuple):
    """A contract with its compiled schema."""

    contract: Contract
    schema: Schema


class Contracts:
    """The contracts in force: for each exchange and pattern the newest enforced version, and a newer version with mode `warn`.

    A message must satisfy every contract whose pattern matches its routing key.

    Args:
        rows: all versions, or the versions that may be in force, the oldest first.
        compile_schema: compiles a schema from its JSON text.
    """

    def __init__(self, rows: Iterable[Contract] = (), *, compile_schema: Callable[[str], Schema] = compiled) -> None:
        self.unusable: list[UnusableContract] = []
        """Contracts that cannot be used, whose messages stay unchecked."""
        self._exchanges: dict[str, list[CompiledContract]] = defaultdict(list)
        self._patterns: dict[str, Patterns] = {}
        self._known: dict[str, dict[str, tuple[CompiledContract, ...]]] = {}
        self._room = MAX_TOTAL
        for contract in by_age(rows):
            self.add(contract, compile_schema)
        self.index()

    def __len__(self) -> int:
        return sum(map(len, self._exchanges.values()))

    def concerned(self, exchanges: Iterable[str]) -> set[str]:
        """The exchanges that have contracts."""
        return self._exchanges.keys() & exchanges

    def schemas(self) -> dict[str, Schema]:
        """Compiled schemas by their JSON text."""
        return {held.contract.schema: held.schema for several in self._exchanges.values() for held in several}

    def count(self, mode: str) -> int:
        """The number of contracts with this mode."""
        return sum(held.contract.mode == mode for several in self._exchanges.values() for held in several)

    def of(self, exchange: str, routing_key: str) -> Sequence[CompiledContract]:
        """The contracts that apply to a message; for an exchange without contracts this is a single lookup."""
        known = self._known.get(exchange)
        if known is None:
            return ()
        held = known.get(routing_key)
        if held is None:
            if len(known) >= _KEYS_KEPT:
                known.clear()
            several = self._exchanges[exchange]
            held = known[routing_key] = tuple([several[place] for place in self._patterns[exchange].matching(routing_key)])
        return held

    def add(self, contract: Contract, compile_schema: Callable[[str], Schema]) -> None:
        """Compile a contract in force; a contract that is unreadable or exceeds the memory limit is added to `unusable`."""
        if contract.mode not in MODES:
            sentence = f"Its mode is {printable(contract.mode)}, which this relay does not know: install a newer outbox-relay."
            self.unusable.append(UnusableContract(contract, sentence))
            return
        try:
            held = CompiledContract(contract, self._compiled(contract.schema, compile_schema))
        except SchemaError as error:
            self.unusable.append(UnusableContract(contract, str(error)))
        else:
            self._exchanges[contract.exchange].append(held)

    def index(self) -> None:
        """Index the added contracts, so that `of` finds them by routing key."""
        for exchange, several in self._exchanges.items():
            several.sort(key=lambda one: one.contract)
            self._patterns[exchange] = Patterns([one.contract.routing_key for one in several])
            self._known[exchange] = {}

    def _compiled(self, text: str, compile_schema: Callable[[str], Schema]) -> Schema:
        if self._room <= 0:
            raise SchemaError(_FULL)
        schema = compile_schema(text)
        self._room -= schema.size
        if self._room < 0:  # the room stays below 0, so that no further contract is compiled in vain
            raise SchemaError(_FULL)
        return schema


def in_force(rows: Iterable[Contract]) -> list[Contract]:
    """The versions in force. For each pattern, the version in mode enforce comes before the version in mode warn."""
    newest: dict[tuple[str, str, bool], Contract] = {}
    for row in sorted(rows, key=lambda row: row.version):
        newest[row.exchange, row.routing_key, row.mode == "warn"] = row
    for exchange, pattern, on_trial in list(newest):
        enforced = newest.get((exchange, pattern, False))
        if on_trial and enforced and enforced.version > newest[exchange, pattern, True].version:
            del newest[exchange, pattern, True]
    return sorted(newest.values(), key=lambda row: (row.exchange, row.routing_key, row.version))


def by_age(rows: Iterable[Contract]) -> list[Contract]:
    """The versions in force, in the order of `rows`."""
    several = list(rows)
    held = set(in_force(several))
    return [row for row in several if row in held]


def breaches(held: Sequence[CompiledContract], content: bytes | str | None) -> list[Breach]:
    """The contracts that a content breaks, one breach for each; None means a binary body."""
    value = _BINARY if content is None else parsed(content)
    return _explained(_broken(held, value), value)


def quick_breaches(held: Sequence[CompiledContract], content: bytes | None) -> list[Breach] | None:
    """`breaches`, if it is fast enough to run inline; else None."""
    if not held:  # the contract was removed meanwhile
        return []
    size, together = len(content or b""), sum([one.schema.effort for one in held])
    if size > inline_bytes(together):
        return None
    value = _BINARY if content is None else parsed(content)
    broken = _broken(held, value)
    if (
        broken
        and type(value) is not Violation
        and (size > explained_bytes(together) or any(one.schema.size > _MAX_EXPLAINED for one in broken))
    ):
        return None
    return _explained(broken, value)


def _broken(held: Sequence[CompiledContract], value: Any) -> Sequence[CompiledContract]:
    return held if type(value) is Violation else [one for one in held if not one.schema.valid(value)]


def _explained(broken: Sequence[CompiledContract], value: Any) -> list[Breach]:
    return [Breach(one.contract, value if type(value) is Violation else one.schema.explain(value)) for one in broken]
