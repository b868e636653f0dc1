"""Describes contracts as an AsyncAPI 3 document: channels, messages with payload and headers, operations, bindings of RabbitMQ. No I/O."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from relay.contracts.patterns import Patterns, has_wildcards
from relay.contracts.registry import Contract, in_force

MOST_KEYS: Final = 500
"""The most routing keys without a contract that a document lists; keys that contain ids may be unlimited in number."""
SCHEMA_FORMAT: Final = "application/schema+json;version=draft-2020-12"
_BINDINGS: Final = "0.3.0"
"""Version of AsyncAPI's bindings for AMQP 0-9-1."""
_VALUES: Final = frozenset({"enum", "const", "default", "examples"})
_HEADERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["x-relay-id"],
    "properties": {
        "x-relay-id": {
            "type": "string",
            "format": "uuid",
            "description": "The message's id in queue and archive; the same in each delivery.",
        },
        "x-relay-replay-of": {"type": "string", "format": "uuid", "description": "The message that this one is a replay of."},
        "traceparent": {"type": "string", "description": "W3C trace context of the business transaction, where there was one."},
        "tracestate": {"type": "string", "description": "Goes with traceparent."},
    },
}


class AsyncApiDocument(NamedTuple):
    """A document, and the number of keys that it omits."""

    document: dict[str, Any]
    left_out: int
    named: int


def document(contracts: Iterable[Contract], keys: Iterable[tuple[str, str]], *, title: str, version: str) -> AsyncApiDocument:
    """Describe the contracts in force, and the exchanges and routing keys that were used without a contract.

    Args:
        contracts: all versions.
        keys: exchanges and routing keys of recent messages.
        title: the document's title.
        version: the document's version.
    """
    current = in_force(contracts)
    patterns = {(one.exchange, one.routing_key) for one in current}
    uncovered = sorted(_free(keys, patterns))
    made = _Document()
    for exchange, pattern in sorted(patterns):
        made.channel(exchange, pattern, [one for one in current if (one.exchange, one.routing_key) == (exchange, pattern)])
    for exchange, key in uncovered[:MOST_KEYS]:
        made.channel(exchange, key, [])
    whole = {
        "asyncapi": "3.0.0",
        "info": {"title": title, "version": version},
        "defaultContentType": "application/json",
        "channels": made.channels,
        "operations": made.operations,
        "components": {"schemas": made.schemas, "messages": made.messages},
    }
    return AsyncApiDocument(whole, max(0, len(uncovered) - MOST_KEYS), MOST_KEYS)


def _free(keys: Iterable[tuple[str, str]], taken: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """The keys that no pattern of their exchange matches."""
    several: dict[str, list[str]] = defaultdict(list)
    for exchange, pattern in taken:
        several[exchange].append(pattern)
    patterns = {exchange: Patterns(its_own) for exchange, its_own in several.items()}
    return {(exchange, key) for exchange, key in keys if exchange not in patterns or not patterns[exchange].matching(key)}


class _Document:
    def __init__(self) -> None:
        self.channels: dict[str, Any] = {}
        self.operations: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self.schemas: dict[str, Any] = {"relayHeaders": dict(_HEADERS)}

    def channel(self, exchange: str, pattern: str, versions: list[Contract]) -> None:
        """Add a channel, its messages and the operation that sends them."""
        name = _unused(f"{exchange or 'default'}.{pattern}", self.channels)
        messages = [self._message(name, version) for version in versions] or [self._message(name, None)]
        self.channels[name] = {
            **_address(pattern),
            "messages": {message: {"$ref": f"#/components/messages/{message}"} for message in messages},
            "bindings": {"amqp": {"is": "routingKey", "exchange": _exchange(exchange), "bindingVersion": _BINDINGS}},
        }
        self.operations[f"send.{name}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "messages": [{"$ref": f"#/channels/{name}/messages/{message}"} for message in messages],
            "bindings": {"amqp": {"deliveryMode": 2, "mandatory": True, "bindingVersion": _BINDINGS}},
        }

    def _message(self, channel: str, contract: Contract | None) -> str:
        name = _unused(f"{channel}.v{contract.version}" if contract else channel, self.messages)
        self.messages[name] = message = {"name": name, "headers": {"$ref": "#/components/schemas/relayHeaders"}}
        if contract is None:
            return name
        schema = _unused(name, self.schemas)
        self.schemas[schema] = {"schemaFormat": SCHEMA_FORMAT, "schema": _embedded(json.loads(contract.schema), schema)}
        message |= {
            "contentType": "application/json",
            "payload": {"$ref": f"#/components/schemas/{schema}"},
            "x-relay-contract": {"version": contract.version, "mode": contract.mode},
        }
        return name


def _unused(wanted: str, taken: Mapping[str, Any]) -> str:
    """A valid component name that is not taken yet."""
    plain = name = re.sub(r"[^A-Za-z0-9._-]", "_", wanted)
    number = 1
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


def _address(pattern: str) -> dict[str, Any]:
    """The routing key, or a template with a parameter for each wildcard. A key that would be read as a template gets no address."""
    if "{" in pattern or "}" in pattern:
        return {"address": None, "description": "Routing key with braces, see the contract."}
    if not has_wildcards(pattern):
        return {"address": pattern}
    words: list[str] = []
    parameters: dict[str, Any] = {}
    for word in pattern.split("."):
        if word in {"*", "#"}:
            name = f"{'word' if word == '*' else 'words'}{len(parameters) + 1}"
            parameters[name] = {"description": "One word." if word == "*" else "Any number of words, with dots between them."}
            words.append(f"{{{name}}}")
        else:
            words.append(word)
    return {"address": ".".join(words), "parameters": parameters}


def _exchange(name: str) -> dict[str, Any]:
    return {"name": name} if name else {"name": "", "type": "default"}


def _embedded(schema: Any, name: str) -> Any:
    """A schema as part of the document, with its pointer references adapted to its place in the document."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema if "$id" in schema else _with_references(schema, f"#/components/schemas/{name}/schema")


def _with_references(part: Any, root: str) -> Any:
    if isinstance(part, list):
        return [_with_references(one, root) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        key: root + value[1:]
        if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/"))
        else value
        if key in _VALUES
        else _with_references(value, root)
        for key, value in part.items()
    }
