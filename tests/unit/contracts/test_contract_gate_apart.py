"""Contents that are checked in a separate process: which go there, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from relay.contracts.check_time import MAX_INLINE_BYTES, explained_bytes, inline_bytes
from relay.contracts.large_checks import CheckFailure, CheckResult
from relay.contracts.schema import Schema
from relay.contracts.violation import Violation
from relay.events.contracts import ContractBroken
from relay.message import PublishResult, TruncatedPayload, Verdict
from tests.support.broker.publishing import batch, claim
from tests.support.fakes.contract_gates import INTEGER, Scripted, checked, gate, row

pytestmark = pytest.mark.ids("A37")


async def test_large_contents_go_apart_and_hold_up_nothing() -> None:
    """Each is handed over when its check has ended, after everything else."""
    checker = Scripted()
    one, _ = gate(row({"type": ["integer", "string"]}), checker=checker)
    large, small = claim("orders", payload=b'"%s"' % (b"x" * MAX_INLINE_BYTES)), claim("orders", payload=b'"x"')

    assert [[small.id], [large.id]] == await checked(one, large, small)
    assert [("orders", ['{"type": ["integer", "string"]}'])] == checker.asked


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(30)}}, MAX_INLINE_BYTES),
        ({"items": {"anyOf": [{"const": n} for n in range(300)]}}, 8_000),
        ({"pattern": "^[A-Z]{3}-[0-9]{4}$"}, MAX_INLINE_BYTES),
        ({"enum": [f"state {n}" for n in range(1000)]}, MAX_INLINE_BYTES),
        ({"items": {"enum": [f"state {n}" for n in range(1000)]}}, MAX_INLINE_BYTES),
        ({"uniqueItems": False}, MAX_INLINE_BYTES),
        ({"properties": {"n": {"multipleOf": 0.01}}}, 2048),
        ({"items": {"uniqueItems": True}}, 2048),
        ({"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"}, 2048),
        ({"patternProperties": {r"(a)\1": True}}, 2048),
        ({"enum": [{"a": n} for n in range(8000)]}, 32),
        ({"patternProperties": {f"x{n}$": False for n in range(1000)}}, 1024),
    ],
)
def test_how_much_is_checked_in_place_hangs_on_the_schema(schema: Any, most: int) -> None:
    """64 KiB, and less where a content can make a check slow."""
    found = inline_bytes(Schema(schema).effort)
    assert found == MAX_INLINE_BYTES if most == MAX_INLINE_BYTES else found <= most


async def test_what_is_larger_and_breaks_a_contract_goes_apart_to_be_explained() -> None:
    """That it does is found at once; where it does takes long to be looked for. What keeps it is sent without."""
    checker = Scripted(CheckResult([Violation("/9", "type", "it is not of type integer")], None))
    one, _ = gate(row({"items": {"type": "integer"}}), checker=checker)
    most = explained_bytes(Schema({"items": {"type": "integer"}}).effort)
    fine, small, large = (
        claim("orders", payload=payload) for payload in (b"[%s1]" % (b"1," * most), b'[1,""]', b'[%s""]' % (b"1," * most))
    )

    assert [[fine.id, "contract_violated"], ["contract_violated"]] == await checked(one, large, fine, small)
    assert 1 == len(checker.asked)


async def test_what_was_fetched_in_part_is_not_judged() -> None:
    """It is over the limit, which the encoder says. A part of JSON breaks each contract, and a contract on trial would report that."""
    one, seen = gate(row(mode="warn"), row(exchange="audit"))

    assert [] == one.concerned(batch([claim("orders", payload=TruncatedPayload(b"[1,")), claim("audit", payload=TruncatedPayload(b"[1,"))]))
    assert [] == seen.of(ContractBroken)


async def test_contracts_that_hold_for_a_message_are_weighed_together() -> None:
    """Each takes its time: a content that one of them may check in place goes apart for four."""
    checker, schema = Scripted(), {"items": {"anyOf": [{"const": n} for n in range(40)]}}
    one, _ = gate(*[row(schema, key="#" + ".#" * n) for n in range(4)], row(schema, exchange="audit"), checker=checker)
    content = b"[%s1]" % (b"1," * (inline_bytes(Schema(schema).effort) // 2 - 2))
    large, fine = claim("orders", payload=content), claim("audit", payload=content)

    assert {(large.id,), (fine.id,)} == {tuple(ids) for ids in await checked(one, large, fine)}
    assert [("orders", 4)] == [(exchange, len(schemas)) for exchange, schemas in checker.asked]


@pytest.mark.parametrize(
    ("end", "refused"), [(CheckFailure.TIME, Verdict.INVALID), (CheckFailure.MEMORY, Verdict.INVALID), (CheckFailure.LOST, Verdict.REFUSED)]
)
async def test_a_check_without_an_end_ends_the_message(end: CheckFailure, refused: Verdict) -> None:
    """The result has a code of its own. It is only a failed attempt where nothing shows that the message is at fault."""
    one, seen = gate(row(), row(key="big", mode="warn"), checker=Scripted(CheckResult([], end)))
    made = batch([claim("orders", "big", b'"%s"' % (b"x" * MAX_INLINE_BYTES))])
    results: dict[int, PublishResult] = {}
    await one.check(made, [0], lambda _, refusals: results.update(refusals))

    assert {
        0: PublishResult(refused, "contract_unchecked", f'content was not checked against contract "orders" "#" version 1: {end}')
    } == results
    assert [] == seen.of(ContractBroken)


async def test_a_contract_on_trial_costs_no_enforced_one_its_check() -> None:
    """It comes last, and its message goes out."""
    checker = Scripted(
        CheckResult([None], CheckFailure.TIME), CheckResult([Violation("", "type", "it is not of type integer")], CheckFailure.TIME)
    )
    one, seen = gate(row("true", key="#", mode="warn"), row(key="big"), checker=checker)
    large = claim("orders", "big", b'"%s"' % (b"x" * MAX_INLINE_BYTES))

    assert [[large.id], ["contract_violated"]] == await checked(one, large, large)
    assert [[INTEGER, "true"]] * 2 == [schemas for _, schemas in checker.asked]
    [told] = seen.of(ContractBroken)
    assert 'content was not checked against contract "orders" "#" version 1: its check takes too much time' == told.detail
