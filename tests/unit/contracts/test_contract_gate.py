"""Contracts before the encoder: which apply, what is rejected, what is reported, and what it costs where there are none."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import secrets
import time
import weakref
from collections import deque
from typing import Any

import pytest

from relay.amqp.publishing.publish_batch import PublishBatch
from relay.contracts import patterns
from relay.contracts.enforcing_encoder import EnforcingEncoder
from relay.contracts.registry import Contract, Contracts, in_force
from relay.events.contracts import ContractBroken, ContractUnusable
from relay.message import PublishResult, TruncatedPayload, Verdict
from relay.observability.logs import FLOODS
from relay.observability.metrics import Metrics
from tests.support.broker.publishing import Seen, batch, claim
from tests.support.fakes.channel_pool_harness import Bench
from tests.support.fakes.contract_gates import TEXT, checked, gate, load, refusal, row, verdict
from tests.support.fakes.steps import steps

pytestmark = pytest.mark.ids("A37")


def test_what_breaks_an_enforced_contract_is_never_written() -> None:
    """With the contract, the pointer, the rule and the reason in its sentence; its neighbours are sent."""
    one, _ = gate(row({"properties": {"n": {"type": "integer"}}}, key="order.*", version=3))

    refused = refusal(one, claim("orders", "order.paid", b'{"n": "x"}'))

    sentence = 'content breaks contract "orders" "order.*" version 3 at "/n", rule type: it is not of type integer'
    assert PublishResult(Verdict.INVALID, "contract_violated", sentence) == refused
    others = [("orders", "order.paid", b'{"n": 1}'), ("orders", "order", b'{"n": "x"}'), ("audit", "order.paid", b'{"n": "x"}')]
    assert ["sent"] * 3 == [verdict(one, claim(*other)) for other in others]


def test_what_breaks_a_contract_on_trial_is_sent_and_told_of() -> None:
    """With its id and the same sentence."""
    one, seen = gate(row(mode="warn"))
    broken = claim("orders", "paid", b'"x"')

    assert "sent" == verdict(one, broken)
    [told] = seen.of(ContractBroken)
    sentence = 'content breaks contract "orders" "#" version 1 at "", rule type: it is not of type integer'
    assert (broken.id, "orders", "paid", sentence) == (told.id, told.exchange, told.routing_key, told.detail)


@pytest.mark.parametrize(
    ("versions", "holds"),
    [
        ([(1, "enforce"), (2, "enforce")], [2]),
        ([(1, "enforce"), (2, "warn")], [1, 2]),
        ([(1, "warn"), (2, "enforce")], [2]),
        ([(1, "warn"), (2, "warn")], [2]),
        ([(1, "enforce"), (2, "warn"), (3, "warn")], [1, 3]),
        ([(2, "enforce"), (1, "enforce"), (3, "warn")], [2, 3]),
    ],
)
def test_the_newest_enforced_version_holds_and_a_newer_one_is_on_trial(versions: list[tuple[int, str]], holds: list[int]) -> None:
    """So a new version that only warns does not end what is enforced."""
    rows = [row(version=version, mode=mode) for version, mode in versions]
    assert holds == [one.version for one in in_force(rows)]


def test_every_pattern_that_matches_must_be_kept() -> None:
    """The general one and the special one."""
    one, _ = gate(row({"required": ["id"]}), row({"required": ["paid"]}, key="order.paid"))

    sent = [verdict(one, claim("orders", key, body)) for key in ("order.paid", "order.new") for body in (b'{"id": 1}', b'{"paid": 1}')]
    assert ["contract_violated", "contract_violated", "sent", "contract_violated"] == sent
    assert "sent" == verdict(one, claim("orders", "order.paid", b'{"id": 1, "paid": 1}'))


def test_a_binary_body_breaks_a_contract() -> None:
    """Whatever it holds: a contract is about JSON in content."""
    one, seen = gate(row("true"), row("true", exchange="audit", mode="warn"))

    refused = refusal(one, claim("orders", "paid", b"1", binary=True))
    assert isinstance(refused, PublishResult)
    assert refused.detail.endswith('at "", rule body: it is in the column body, and the contract is about JSON in content')
    assert "sent" == verdict(one, claim("audit", "paid", b"1", binary=True))
    assert 1 == len(seen.of(ContractBroken))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (claim("orders", payload=TruncatedPayload(b'"x')), "body_too_large"),
        (claim("orders", payload=b'"x"', options='{"nonsense": 1}'), "option_unknown"),
        (claim("é" * 200, payload=b'"x"'), "name_too_long"),
    ],
)
def test_what_cannot_be_sent_at_all_is_told_as_before(made: Any, code: str) -> None:
    """The encoder speaks first, and a contract of what it takes."""
    bench = Bench()
    job = PublishBatch(batch([made, claim("orders")]), bench.clock)
    job.refused = dict.fromkeys(range(2), PublishResult(Verdict.INVALID, "contract_violated"))
    bench.pool.submit(job)

    assert [code, "contract_violated"] == [result.code for result in job.results if result]
    assert [] == bench.pipe.methods()


def test_without_contracts_nothing_stands_before_a_batch() -> None:
    """From the beginning, for other exchanges, and once the last contract is gone."""
    one, _ = gate()
    assert [] == one.concerned(batch([claim("orders")]))

    load(one, row())
    assert [1] == one.concerned(batch([claim("audit"), claim("orders")]))
    load(one)
    assert [] == one.concerned(batch([claim("orders")]))


async def test_keys_are_looked_up_in_turns_like_contents() -> None:
    """Also those that no contract is about: before a batch is written nothing is looked up, and then a few between other work."""
    ticks = itertools.count()
    one = EnforcingEncoder(Seen(), clock=lambda: next(ticks) / 1000)
    load(one, row(key="#.late"))
    made, handed = batch([claim("orders", f"{number}" + ".a" * 120) for number in range(30)]), list[list[int]]()

    assert 0 == steps(lambda: one.concerned(made), patterns)
    await one.check(made, one.concerned(made), lambda places, _: handed.append([*places]))
    assert [*range(30)] == [place for places in handed for place in places]
    assert 5 > max(map(len, handed))


@pytest.mark.parametrize(
    ("unknown", "sentence"),
    [
        (row({"type": "objekt"}), 'The schema is wrong at "/type"'),
        (row("{"), "The schema is not JSON, or nests too deep."),
        (row(mode="shadow"), 'Its mode is "shadow", which this relay does not know'),
        (row({"$ref": "https://example.com/x"}), "A $ref leads out of the schema"),
    ],
)
def test_a_contract_that_this_relay_cannot_read_stops_nothing(unknown: Contract, sentence: str) -> None:
    """Its messages go unchecked, which is reported and shown; the others are checked."""
    one, seen = gate(unknown, row(exchange="audit"))

    assert "sent" == verdict(one, claim("orders", payload=b'"x"'))
    assert "contract_violated" == verdict(one, claim("audit", payload=b'"x"'))
    [told] = seen.of(ContractUnusable)
    assert sentence in told.error
    assert ("orders", "#", 1) == (told.exchange, told.routing_key, told.version)
    assert [f'"orders" "#" version 1: {told.error}'] == one.unusable


def test_many_contracts_that_cannot_be_read_are_told_of_in_few_words() -> None:
    """A heartbeat shows the first, and the log one line a second."""
    one, seen = gate(*[row("{", key=f"k{n}") for n in range(100)])

    assert 10 == len(one.unusable)
    assert 100 == len(seen.of(ContractUnusable))
    assert ContractUnusable in FLOODS


def test_checks_give_way_after_a_short_while() -> None:
    """A turn is a few milliseconds of checks: what is left waits for the next one."""
    ticks = itertools.count()
    one = EnforcingEncoder(Seen(), clock=lambda: next(ticks) * 0.002)
    load(one, row())
    left = deque(range(10))

    passed, _ = one._check_slice(batch([claim("orders", payload=b"1")] * 10), left, [])
    assert [0, 1] == passed
    assert [*range(2, 10)] == [*left]


async def test_everything_else_has_as_much_time_as_checks_had() -> None:
    """After each turn the next one comes as much later as that took."""
    ticks, loop = itertools.count(), asyncio.get_running_loop()
    one = EnforcingEncoder(Seen(), clock=lambda: next(ticks) * 0.02)
    load(one, row())
    began = loop.time()

    assert 4 == len(await checked(one, *[claim("orders", payload=b"1")] * 4))
    assert loop.time() - began >= 3 * 0.06  # a turn looks at this clock four times; no check waits behind the last one


def test_contracts_that_were_replaced_are_forgotten_and_others_are_kept() -> None:
    """A change of one compiles that one, and no former ones fill the memory."""
    one, _ = gate(row(key="a"), row(TEXT, key="b"))
    kept, gone = (one._contracts.of("orders", key)[0].schema for key in "ab")
    former = weakref.ref(gone)
    del gone
    for number in range(3):
        load(one, row(key="a"), row({"maximum": number}, key="b"))
    gc.collect()

    assert former() is None
    assert kept is one._contracts.of("orders", "a")[0].schema


def test_names_of_a_contract_are_fit_for_a_log() -> None:
    """They are fit whatever is in the table, and show nothing of the content."""
    canary = secrets.token_hex(8)
    one, _ = gate(row(exchange="orders", key="#", schema={"required": ["\x1b[2J"]}), row("false", key="é\n.#"))

    refused = refusal(one, claim("orders", "é\n", json.dumps({canary: canary}).encode()))
    assert isinstance(refused, PublishResult)
    assert refused.detail.isascii()
    assert refused.detail.isprintable()
    assert canary not in refused.detail


def test_many_routing_keys_are_not_remembered_for_ever() -> None:
    """A key with an id in it comes once."""
    contracts = Contracts([row()])
    for number in range(10_000):
        assert 1 == len(contracts.of("orders", f"order.{number}"))
    assert len(contracts._known["orders"]) <= 4096


async def test_a_check_of_a_small_message_takes_little() -> None:
    """At most three times what Python takes to read its JSON (1.1 to 1.4 times measured): a ratio, since machines differ and are busy."""
    schema = {
        "type": "object",
        "required": ["order", "state", "customer"],
        "properties": {
            "order": {"type": "integer", "minimum": 1},
            "state": {"enum": ["placed", "paid"]},
            "total": {"type": "number"},
            "customer": {"type": "string", "format": "uuid"},
            "note": {"maxLength": 200},
            "sku": {"pattern": "^[A-Z]{3}-[0-9]{4}$"},
        },
    }
    body = {
        "order": 7,
        "state": "paid",
        "total": 12.5,
        "customer": "0190f3c4-1111-7000-8000-000000000000",
        "note": "x" * 120,
        "sku": "ABC-1234",
    }
    one, _ = gate(row(schema))
    content = json.dumps(body).encode()
    made = batch([claim("orders", "order.paid", content)] * 500)

    async def seconds() -> tuple[float, float]:
        passed: list[int] = []
        began = time.thread_time()
        await one.check(made, one.concerned(made), lambda places, _: passed.extend(places))
        checked = time.thread_time()
        assert [*range(500)] == passed
        for _ in range(500):
            json.loads(content)
        return checked - began, time.thread_time() - checked

    checks, readings = map(min, zip(*[await seconds() for _ in range(10)], strict=True))
    assert checks < 3 * readings


def test_metrics_count_contracts_and_what_breaks_those_on_trial() -> None:
    """Contracts count by their current mode, also those that cannot be read. Warnings count by exchange, from the first message on."""
    metrics = Metrics()
    one = EnforcingEncoder(metrics.sink)
    now = [row(mode="warn"), row(key="x", mode="shadow"), row(key="y", schema="{")]
    for rows in (now, [row(key="a"), row(key="b")], now):
        load(one, *rows)
    for _ in range(3):
        refusal(one, claim("orders", payload=b'"x"'))

    page = metrics.render()[0].decode()
    figures = {"enforce": 0, "warn": 1, "unusable": 2}
    assert all(f'relay_contracts{{mode="{mode}"}} {figure:.1f}\n' in page for mode, figure in figures.items())
    assert 'relay_contract_warnings_total{exchange="orders"} 3.0\n' in page
