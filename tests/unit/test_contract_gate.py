"""Contracts before the encoder: which hold, what is rejected, what is told of, and what it costs where there are none."""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import pytest

from relay.contracts.events import ContractBroken, ContractsHeld, ContractUnusable
from relay.contracts.gate import Gate, Gates
from relay.contracts.registry import Contract, Contracts, holding
from relay.encoding import Encoded
from relay.message import Cut, PublishResult, Verdict
from relay.metrics import Metrics
from tests.support.publishing import Seen, claim

pytestmark = pytest.mark.ids("A37")
INTEGER, TEXT = '{"type": "integer"}', '{"type": "string"}'


def row(schema: Any = INTEGER, *, exchange: str = "orders", key: str = "#", version: int = 1, mode: str = "enforce") -> Contract:
    """A version of a contract."""
    return Contract(exchange, key, version, mode, schema if isinstance(schema, str) else json.dumps(schema))


def gate(*rows: Contract) -> tuple[Gate, Seen]:
    """A gate with these contracts, and what it tells."""
    seen = Seen()
    gates = Gates(max_body_bytes=1 << 20, allowed_exchanges=["orders", "audit"], emit=seen)
    gates.hold(rows)
    return gates.make(131_072), seen


def verdict(made: Encoded | PublishResult) -> str:
    """The code of a refusal, or that it is sent."""
    return made.code if isinstance(made, PublishResult) else "sent"


def test_what_breaks_an_enforced_contract_is_never_written() -> None:
    """With the contract, the pointer, the rule and the reason in its sentence; its neighbours are sent."""
    one, _ = gate(row({"properties": {"n": {"type": "integer"}}}, key="order.*", version=3))

    refused = one.encode(claim("orders", "order.paid", b'{"n": "x"}'))

    sentence = 'content breaks contract "orders" "order.*" version 3 at "/n", rule type: it is not of type integer'
    assert PublishResult(Verdict.INVALID, "contract_violated", sentence) == refused
    others = [("orders", "order.paid", b'{"n": 1}'), ("orders", "order", b'{"n": "x"}'), ("audit", "order.paid", b'{"n": "x"}')]
    assert ["sent"] * 3 == [verdict(one.encode(claim(*other))) for other in others]


def test_what_breaks_a_contract_on_trial_is_sent_and_told_of() -> None:
    """With its id and the same sentence."""
    one, seen = gate(row(mode="warn"))
    broken = claim("orders", "paid", b'"x"')

    assert "sent" == verdict(one.encode(broken))
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
    assert holds == [one.version for one in holding(rows)]


def test_every_pattern_that_matches_must_be_kept() -> None:
    """The general one and the special one."""
    one, _ = gate(row({"required": ["id"]}), row({"required": ["paid"]}, key="order.paid"))

    sent = [
        verdict(one.encode(claim("orders", key, body))) for key in ("order.paid", "order.new") for body in (b'{"id": 1}', b'{"paid": 1}')
    ]
    assert ["contract_violated", "contract_violated", "sent", "contract_violated"] == sent
    assert "sent" == verdict(one.encode(claim("orders", "order.paid", b'{"id": 1, "paid": 1}')))


def test_a_binary_body_breaks_a_contract() -> None:
    """Whatever it holds: a contract is about JSON in content."""
    one, seen = gate(row("true"), row("true", exchange="audit", mode="warn"))

    refused = one.encode(claim("orders", "paid", b"1", binary=True))
    assert isinstance(refused, PublishResult)
    assert refused.detail.endswith('at "", rule body: it is in the column body, and the contract is about JSON in content')
    assert "sent" == verdict(one.encode(claim("audit", "paid", b"1", binary=True)))
    assert 1 == len(seen.of(ContractBroken))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (claim("orders", payload=Cut(b'"x')), "body_too_large"),
        (claim("orders", payload=b'"x"', options='{"nonsense": 1}'), "option_unknown"),
        (claim("secret", payload=b'"x"'), "exchange_forbidden"),
    ],
)
def test_what_cannot_be_sent_at_all_is_told_as_before(made: Any, code: str) -> None:
    """The encoder speaks first."""
    one, _ = gate(row(), row(exchange="secret"))
    assert code == verdict(one.encode(made))


def test_without_contracts_nothing_stands_before_the_encoder() -> None:
    """The encoder's own method is what the connection calls, from the beginning and once the last contract is gone."""
    one, _ = gate()
    assert one.encode == one.encoder.encode

    one.hold(Contracts([row()]))
    assert "contract_violated" == verdict(one.encode(claim("orders", payload=b'"x"')))
    one.hold(Contracts())
    assert one.encode == one.encoder.encode


def test_a_change_reaches_the_connection_that_stands_and_those_to_come() -> None:
    """As the limit of a payload does."""
    seen = Seen()
    gates = Gates(max_body_bytes=100, allowed_exchanges=None, emit=seen)
    standing = gates.make(131_072)
    gates.hold([row()])
    gates.limit(3)

    for one in (standing, gates.make(131_072)):
        assert "contract_violated" == verdict(one.encode(claim("orders", payload=b'"x"')))
        assert "body_too_large" == verdict(one.encode(claim("orders", payload=b"1234")))
    assert [ContractsHeld(enforced=1, warned=0)] == seen.of(ContractsHeld)


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
    """Its messages go unchecked, which is told and shown; the others are checked."""
    one, seen = gate(unknown, row(exchange="audit"))

    assert "sent" == verdict(one.encode(claim("orders", payload=b'"x"')))
    assert "contract_violated" == verdict(one.encode(claim("audit", payload=b'"x"')))
    [told] = seen.of(ContractUnusable)
    assert sentence in told.error
    assert ("orders", "#", 1) == (told.exchange, told.routing_key, told.version)
    gates = Gates(max_body_bytes=1, allowed_exchanges=None, emit=seen)
    gates.hold([unknown])
    assert [f'"orders" "#" version 1: {told.error}'] == gates.unusable


def test_names_of_a_contract_are_fit_for_a_log() -> None:
    """Whatever stands in the table, and nothing of the content."""
    canary = secrets.token_hex(8)
    one, _ = gate(row(exchange="orders", key="#", schema={"required": ["\x1b[2J"]}), row("false", key="é\n.#"))

    refused = one.encode(claim("orders", "é\n", json.dumps({canary: canary}).encode()))
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


def test_a_check_of_a_small_message_takes_little() -> None:
    """Goal: 15 microseconds. Counted on 2 busy cores: 2; the best of some rounds, since a machine may be busy."""
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
    message = claim("orders", "order.paid", json.dumps(body).encode())
    assert "sent" == verdict(one.encode(message))

    def seconds(encode: Any) -> float:
        began = time.perf_counter()
        for _ in range(500):
            encode(message)
        return (time.perf_counter() - began) / 500

    checked, plain = (min(seconds(encode) for _ in range(10)) for encode in (one.encode, one.encoder.encode))
    assert checked - plain < 15e-6


def test_metrics_count_contracts_and_what_breaks_those_on_trial() -> None:
    """By mode as they are now, also those that cannot be read; by exchange what was told of, from the first message on."""
    metrics = Metrics()
    gates = Gates(max_body_bytes=1 << 20, allowed_exchanges=None, emit=metrics.sink)
    now = [row(mode="warn"), row(key="x", mode="shadow"), row(key="y", schema="{")]
    for rows in (now, [row(key="a"), row(key="b")], now):
        gates.hold(rows)
    one = gates.make(131_072)
    for _ in range(3):
        one.encode(claim("orders", payload=b'"x"'))

    page = metrics.render()[0].decode()
    figures = {"enforce": 0, "warn": 1, "unusable": 2}
    assert all(f'relay_contracts{{mode="{mode}"}} {figure:.1f}\n' in page for mode, figure in figures.items())
    assert 'relay_contract_warnings_total{exchange="orders"} 3.0\n' in page
