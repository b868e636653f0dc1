"""A gate with contracts, a process next to it that answers as a test wants, and what becomes of messages."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from relay.contracts.enforcing_encoder import EnforcingEncoder
from relay.contracts.large_checks import CheckResult, LargeChecks
from relay.contracts.registry import Contract
from relay.message import Claim, PublishResult
from tests.support.broker.publishing import Seen, batch

INTEGER, TEXT = '{"type": "integer"}', '{"type": "string"}'


def row(schema: Any = INTEGER, *, exchange: str = "orders", key: str = "#", version: int = 1, mode: str = "enforce") -> Contract:
    """A version of a contract."""
    return Contract(exchange, key, version, mode, schema if isinstance(schema, str) else json.dumps(schema))


class Scripted(LargeChecks):
    """Answers what a test wants, and notes what it was asked."""

    def __init__(self, *answers: CheckResult) -> None:
        super().__init__()
        self.answers = [*answers]
        self.asked: list[tuple[str, list[str]]] = []

    async def judge(self, exchange: str, content: bytes, schemas: Any) -> CheckResult:  # noqa: ARG002
        """Say the next answer, by default that all is well."""
        self.asked.append((exchange, schemas))
        return self.answers.pop(0) if self.answers else CheckResult([None] * len(schemas), None)


def gate(*rows: Contract, checker: LargeChecks | None = None) -> tuple[EnforcingEncoder, Seen]:
    """A gate with these contracts, and what it tells. No time passes for it, so that it never ends a slice."""
    seen = Seen()
    made = EnforcingEncoder(seen, checker=checker, clock=lambda: 0.0)
    load(made, *rows)
    return made, seen


def load(one: EnforcingEncoder, *rows: Contract) -> None:
    """Have these contracts hold, without a rest between two."""
    for _ in one.loading(rows):
        pass


def refusal(one: EnforcingEncoder, message: Claim) -> PublishResult | None:
    """What it says of a message."""
    return one._check_slice(batch([message]), deque([0]), [])[1].get(0)


def verdict(one: EnforcingEncoder, message: Claim) -> str:
    """The code of a refusal, or that it is sent."""
    found = refusal(one, message)
    return found.code if found else "sent"


async def checked(one: EnforcingEncoder, *messages: Claim) -> list[list[str]]:
    """Check a batch; return what is handed over at once: ids that pass, and codes of those that do not."""
    made, handed = batch(messages), list[list[str]]()
    await one.check(
        made,
        one.concerned(made),
        lambda places, refused: handed.append([refused[at].code if at in refused else made.claims[at].id for at in places]),
    )
    return handed
