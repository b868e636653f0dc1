"""relay contract asyncapi: what it writes is valid by AsyncAPI's own schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.integration.cli.asyncapi import official_schema
from tests.support.relays.cli import Cli, Seeded

pytestmark = pytest.mark.ids("A37")
SCHEMAS: list[Any] = [
    {"properties": {"lines": {"items": {"$ref": "#/$defs/line"}}}, "$defs": {"line": {"type": ["object", "null"]}}},
    {"$id": "https://example.com/o", "prefixItems": [{"const": 1}], "unevaluatedItems": False},
    True,
    False,
]


def test_the_official_schema_takes_the_document(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """With every kind of channel and of schema, and names that no document can have; and it refuses one that is wrong."""
    for number, schema in enumerate(SCHEMAS):
        seeded.run("SELECT queue_message_contract_add('orders', %s, %s)", f"k{number}.*.#", json.dumps(schema))
        seeded.run("SELECT queue_message_contract_add('orders', 'k0.*.#', %s, mode => 'enforce')", json.dumps({"title": "another"}))
    for exchange, key in (("", "queue"), ("\u00e9\n", "{x}"), ("orders", "plain")):
        seeded.archive("success", exchange=exchange, routing_key=key)
    assert "" == cli("contract", "asyncapi", "--output", str(tmp_path / "api.json"), "--title", "Shop", "--api-version", "2.1")
    written = json.loads((tmp_path / "api.json").read_text(encoding="utf-8"))
    assert written == json.loads(cli("contract", "asyncapi", "--title", "Shop", "--api-version", "2.1"))
    assert 7 == len(written["channels"])

    validator = jsonschema_rs.Draft7Validator(official_schema(), offline=True)
    assert [] == [(error.instance_path, error.message[:200]) for error in validator.iter_errors(written)]
    written["operations"]["send.orders.plain"]["action"] = "shout"
    assert not validator.is_valid(written)


def test_a_file_that_cannot_be_written_is_told(cli: Cli, seeded: Seeded, tmp_path: Path) -> None:
    """In one sentence."""
    said = cli.refused("contract", "asyncapi", "--output", str(tmp_path / "absent" / "api.json"), code=2)
    assert "cannot be written: No such file or directory" in said
