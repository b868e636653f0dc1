"""The AsyncAPI document of contracts; tests/integration holds it against the official schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.contracts.asyncapi import MOST_KEYS, document
from relay.contracts.references import resolved
from relay.contracts.registry import Contract

pytestmark = pytest.mark.ids("A37")
ORDER: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {"lines": {"items": {"$ref": "#/$defs/line"}}, "$ref": {"type": "string"}, "kind": {"const": {"$ref": "#/kept"}}},
    "$defs": {"line": {"type": "object", "properties": {"of": {"$ref": "#"}}}},
}
NAMES = st.sampled_from(["", "orders", "a b", "{x}", "é\n", "*", "#", "$ref", "x" * 200]) | st.text(max_size=8)


def contract(schema: Any = ORDER, *, exchange: str = "orders", key: str = "order.*", version: int = 1, mode: str = "enforce") -> Contract:
    """A version of a contract."""
    return Contract(exchange, key, version, mode, json.dumps(schema))


def made(*contracts: Contract, keys: list[tuple[str, str]] | None = None) -> dict[str, Any]:
    """The document of them."""
    return document(contracts, keys or [], title="Shop", version="2.1").document


def references(part: Any) -> list[str]:
    """Every reference within the document."""
    if isinstance(part, list):
        return [found for one in part for found in references(one)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return own + [found for key, one in part.items() if key != "const" for found in references(one)]


def test_a_contract_is_a_channel_with_message_payload_headers_and_operation() -> None:
    """The exchange is in the binding, wildcards are parameters, and a version on trial is a message of its own."""
    whole = made(contract(), contract(True, version=2, mode="warn"))

    assert ("3.0.0", {"title": "Shop", "version": "2.1"}) == (whole["asyncapi"], whole["info"])
    [(name, channel)] = whole["channels"].items()
    assert ("orders.order._", "order.{word1}") == (name, channel["address"])
    assert {"name": "orders"} == channel["bindings"]["amqp"]["exchange"]
    assert ["orders.order._.v1", "orders.order._.v2"] == list(channel["messages"])
    first = whole["components"]["messages"]["orders.order._.v1"]
    assert {"version": 1, "mode": "enforce"} == first["x-relay-contract"]
    headers = resolved(whole, first["headers"]["$ref"])
    assert {"x-relay-id", "x-relay-replay-of", "traceparent", "tracestate"} == set(headers["properties"])
    assert ORDER["$defs"]["line"]["type"] == resolved(whole, first["payload"]["$ref"])["schema"]["$defs"]["line"]["type"]
    assert ("send", {"$ref": f"#/channels/{name}"}) == (
        whole["operations"][f"send.{name}"]["action"],
        whole["operations"][f"send.{name}"]["channel"],
    )


def test_references_of_a_schema_lead_where_it_stands_now() -> None:
    """Those by pointer; values that only look like references, and schemas with an address of their own, stay as they are."""
    whole = made(contract(), contract({**ORDER, "$id": "https://example.com/o"}, key="k"))
    moved = whole["components"]["schemas"]["orders.order._.v1"]["schema"]

    assert "#/components/schemas/orders.order._.v1/schema/$defs/line" == moved["properties"]["lines"]["items"]["$ref"]
    assert "#/components/schemas/orders.order._.v1/schema" == moved["$defs"]["line"]["properties"]["of"]["$ref"]
    assert ({"type": "string"}, {"$ref": "#/kept"}) == (moved["properties"]["$ref"], moved["properties"]["kind"]["const"])
    assert "#/$defs/line" == whole["components"]["schemas"]["orders.k.v1"]["schema"]["properties"]["lines"]["items"]["$ref"]
    assert all(resolved(made(contract()), found) is not None for found in references(made(contract())))


def test_keys_without_a_contract_are_channels_too() -> None:
    """Those that no pattern covers; of more than some hundreds the rest is counted."""
    whole = made(contract(), keys=[("orders", "order.paid"), ("orders", "else"), ("", "queue"), ("audit", "order.paid")])

    assert ["orders.order._", "default.queue", "audit.order.paid", "orders.else"] == list(whole["channels"])
    assert {"name": "", "type": "default"} == whole["channels"]["default.queue"]["bindings"]["amqp"]["exchange"]
    assert "payload" not in whole["components"]["messages"]["orders.else"]
    many = document([], [("orders", str(number)) for number in range(MOST_KEYS + 7)], title="t", version="1")
    assert (MOST_KEYS, 7) == (len(many.document["channels"]), many.left_out)


def test_names_that_look_alike_stay_apart() -> None:
    """Whatever letters they have, each channel is there once."""
    whole = made(keys=[("a", "b.c"), ("a.b", "c"), ("a", "b c"), ("a", "b_c"), ("a", "{b}")])
    assert 5 == len(whole["channels"]) == len(whole["operations"]) == len(whole["components"]["messages"])
    assert [None] == [channel["address"] for channel in whole["channels"].values() if channel["address"] is None]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.builds(contract, st.sampled_from([ORDER, True, False, {}, {"type": "array"}]), exchange=NAMES, key=NAMES), max_size=4),
    st.lists(st.tuples(NAMES, NAMES), max_size=4),
)
def test_every_reference_within_a_document_leads_somewhere(contracts: list[Contract], keys: list[tuple[str, str]]) -> None:
    """Whatever exchanges and keys are called."""
    whole = document(contracts, keys, title="t", version="1").document
    assert all(resolved(whole, found) is not None for found in references(whole))
