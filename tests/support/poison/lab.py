"""Where poison goes: worlds of one broker, each with its limit, its login, every kind of exchange and every kind of queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from relay import devservers
from relay.devservers.find import find_rabbitmq

PLUGINS: Final = (
    *("rabbitmq_federation", "rabbitmq_shovel"),
    *("rabbitmq_consistent_hash_exchange", "rabbitmq_random_exchange", "rabbitmq_recent_history_exchange"),
    *("rabbitmq_mqtt", "rabbitmq_stomp"),
)
MOST_BYTES: Final = 2 << 20
"""Of a message that the broker takes."""
SHUT, OPEN, CLOSED, NOWHERE = "shut.", "open.", "closed.", "nowhere"
"""Beginnings of names: exchanges that no login may write to; routing keys that a login may use at a topic exchange, and may not."""
SOON: Final[dict[str, Any]] = {"x-message-ttl": 1}
QUORUM: Final[dict[str, Any]] = {"x-queue-type": "quorum"}
DIRECT: Final = "direct"
TOPICS: Final = "amq.topic"
"""The exchange of MQTT and STOMP subscribers; whatever the direct one leads to a queue comes there too."""


class Ports(NamedTuple):
    """Where the node listens for subscribers."""

    mqtt: int
    stomp: int


class Kind(NamedTuple):
    """Arguments of a queue, and what becomes of its messages."""

    arguments: dict[str, Any]
    dead_letters: bool = False
    """They end in another queue, two hops on: what the broker wrote at the first is read at the second."""
    returns: str = ""
    """Its consumer returns each message `always`, until the delivery limit is reached, or `once`, for which it comes back dead-lettered."""
    refuses: str = ""
    """It nacks `some` messages, or `all`."""
    far: bool = False
    """They end in another vhost."""


KINDS: Final = {
    "classic": Kind({}),
    "lazy": Kind({"x-queue-mode": "lazy"}),
    "priority": Kind({"x-max-priority": 4}),
    "single": Kind({"x-single-active-consumer": True}),
    "expiring": Kind(SOON, dead_letters=True),
    "expiring-priority": Kind({**SOON, "x-max-priority": 255}, dead_letters=True),
    "to-itself": Kind({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{OPEN}to-itself"}, returns="once"),
    "dropping": Kind({"x-max-length": 0, "x-overflow": "drop-head"}, dead_letters=True),
    "rejecting": Kind({"x-max-length": 1, "x-overflow": "reject-publish"}, refuses="some"),
    "rejecting-dead": Kind({"x-max-length": 0, "x-overflow": "reject-publish-dlx"}, dead_letters=True, refuses="all"),
    "quorum": Kind(QUORUM),
    "quorum-expiring": Kind({**QUORUM, **SOON}, dead_letters=True),
    "quorum-at-least-once": Kind(
        {**QUORUM, **SOON, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}, dead_letters=True
    ),
    "quorum-limit": Kind({**QUORUM, "x-delivery-limit": 1}, dead_letters=True, returns="always"),
    "stream": Kind({"x-queue-type": "stream"}),
    "federated": Kind({}, far=True),
    "federated-queue": Kind({}, far=True),
    "shovelled": Kind({}, far=True),
}
"""Kinds of queues; the routing keys `open.<kind>` and `closed.<kind>` lead there."""
SELECTED: Final = ("other", "third")
"""Plain queues, to which the `CC` and `BCC` of the catalogue lead."""
PARKED: Final = {"parked": {}, "parked-quorum": QUORUM}
"""Queues without a consumer, and their arguments."""
ENDS: Final = (*KINDS, *SELECTED)
"""What is consumed from."""
EXCHANGES: Final[dict[str, dict[str, Any]]] = {
    DIRECT: {},
    "topic": {"binding": "#"},
    "fanout": {},
    "headers": {"match": {"x-match": "all"}},
    "x-consistent-hash": {"binding": "1", "arguments": {"hash-header": "hash-on"}},
    "x-random": {},
    "x-recent-history": {"arguments": {"x-recent-history-length": 5}},
    "alternate": {"type": "fanout", "arguments": {"alternate-exchange": DIRECT}},
}
"""What differs from a plain exchange of that type; all lead to the direct one, which leads to the queues by routing key."""
INTERNAL, MISSING, DEFAULT = "internal", "missing", ""
"""Further exchanges: one that takes nothing, one that does not exist, and the default one."""


@dataclass(frozen=True)
class World:
    """What limits the relay of a world."""

    user: Mapping[str, int] = field(default_factory=dict)
    """Limits of its login."""
    vhost: Mapping[str, int] = field(default_factory=dict)
    """Limits of its vhost."""
    barred: str | None = None
    """An exchange that its login may not write to, in addition to those that no login may."""
    tags: tuple[str, ...] = ()
    channel_max: int | None = None
    """Channels that the broker grants a connection."""
    relay: Mapping[str, str] = field(default_factory=dict)
    """Settings of its own."""
    most_bytes: int | None = None
    """Of a body that the relay sends."""
    paused: str | None = None
    """An exchange that is paused until everything else has ended."""
    limited: str | None = None
    """An exchange of which so much is sent in a second."""
    forbidden: str | None = None
    """An exchange that is missing from the relay's list."""


WORLDS: Final = {
    "unlimited": World(),
    "max-channels": World(user={"max-channels": 4}),
    "max-connections": World(user={"max-connections": 1}, barred=DEFAULT),
    # Nine connections: three links, the test's consumers, its two subscribers, and its publisher or the relay's one connection. The other
    # two are for links that come back before their old connections are gone.
    "vhost": World(vhost={"max-connections": 9, "max-queues": 40}),
    "channel-max": World(channel_max=4),
    "sizes": World(relay={"RELAY_WINDOW": "50", "RELAY_WINDOW_BYTES": "1048576"}, most_bytes=100_000),
    "list": World(relay={"RELAY_ALLOWED_EXCHANGES": "[!f]*,amq.default"}, forbidden="fanout"),
    "held": World(paused="fanout", limited="headers"),
    "impersonator": World(tags=("impersonator",)),
}
PER_SECOND: Final = 100
"""Messages of the limited exchange."""


def queue(kind: str) -> str:
    """Name of the queue of a kind."""
    return kind if kind in SELECTED else OPEN + kind


def end(kind: str) -> str:
    """Name of the queue in which messages of a kind end."""
    return f"end.{kind}" if kind in KINDS and KINDS[kind].dead_letters else queue(kind)


def is_far(kind: str) -> bool:
    """Whether they end in the world's other vhost."""
    return kind in KINDS and KINDS[kind].far


def far(world: str) -> str:
    """The world's other vhost."""
    return f"{world}.far"


ALARMS: Final = """
    Memory = fun vm_memory_monitor:set_vm_memory_high_watermark/1, Disk = fun rabbit_disk_monitor:set_disk_free_limit/1,
    Shine = fun() -> receive over -> exit(normal) after 1500 -> ok end end,
    Rain = fun(Set, Low, Enough) -> Set(Low), timer:sleep(500), Set(Enough), Shine() end,
    Go = fun Go() -> Rain(Memory, 1.0e-6, {absolute, "2GB"}), Rain(Disk, "900000GB", "50MB"), Go() end,
    register(alarms, spawn(Go)).
"""
"""Raises a memory alarm and ends it, then a disk alarm, and so on until it gets the message to stop."""


@asynccontextmanager
async def alarms(node: devservers.RabbitMQ) -> AsyncIterator[None]:
    """Until the end of the block alarms of the node come and go."""
    await asyncio.to_thread(node.ctl, "eval", ALARMS)
    yield
    await asyncio.to_thread(node.ctl, "eval", "alarms ! over.")


def config(ports: Ports) -> str:
    """Of a node with all worlds."""
    lines = [
        f"max_message_size = {MOST_BYTES}",
        f"mqtt.listeners.tcp.1 = 127.0.0.1:{ports.mqtt}",
        f"stomp.listeners.tcp.1 = 127.0.0.1:{ports.stomp}",
    ]
    if find_rabbitmq().version >= "4":
        lines.append(f"mqtt.max_packet_size_authenticated = {MOST_BYTES}")
    return "\n".join([*lines, ""])


def build(node: devservers.RabbitMQ) -> None:
    """Make all worlds on a node that has the plugins and the configuration above."""
    node.ctl("await_startup")
    # A shovel publishes a message in the name that it has, and stops where its login may not.
    node.ctl("set_user_tags", "guest", "administrator", "impersonator")
    parts: dict[str, list[dict[str, Any]]] = {}
    for name, world in WORLDS.items():
        for part, entry in _definitions(name, world, node.url):
            parts.setdefault(part, []).append(entry)
    path = node.folder / "definitions.json"
    path.write_text(json.dumps(parts))
    node.ctl("import_definitions", str(path))


Part = tuple[str, dict[str, Any]]


def _definitions(name: str, world: World, url: str) -> Iterator[Part]:
    yield "users", {"name": name, "password": "secret", "tags": [*world.tags], "limits": dict(world.user)}
    for vhost in (name, far(name)):
        yield "vhosts", {"name": vhost}
        yield "permissions", {"user": "guest", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
    barred = "" if world.barred is None else f"|{world.barred or 'amq.default'}$"
    yield "permissions", {"user": name, "vhost": name, "configure": "", "write": f"^(?!{SHUT[:-1]}[.]{barred})", "read": ""}
    if world.vhost:
        yield "parameters", {"vhost": name, "component": "vhost-limits", "name": "limits", "value": dict(world.vhost)}
    yield "topic_permissions", {"user": name, "vhost": name, "exchange": "topic", "write": f"^(?!{CLOSED[:-1]}[.])", "read": ""}
    yield from _exchanges(name)
    for kind in ENDS:
        yield from _queues(name, kind)
    for parked, arguments in PARKED.items():
        yield "queues", _queue(name, parked, arguments)
    yield from _links(name, url)


def _exchanges(vhost: str) -> Iterator[Part]:
    for kind, special in EXCHANGES.items():
        for name in (kind, SHUT + kind):
            yield "exchanges", _exchange(vhost, name, special.get("type", kind), special.get("arguments", {}))
        if kind not in {DIRECT, "alternate"}:
            yield "bindings", _binding(vhost, kind, "exchange", DIRECT, special.get("binding", ""), special.get("match", {}))
    yield "exchanges", {**_exchange(vhost, INTERNAL, DIRECT, {}), "internal": True}
    yield "exchanges", _exchange(far(vhost), DIRECT, DIRECT, {})


def _queues(name: str, kind: str) -> Iterator[Part]:
    made = KINDS.get(kind, Kind({}))
    arguments = dict(made.arguments)
    if made.dead_letters:
        middle = {**SOON, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": end(kind)}
        arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"middle.{kind}"}
        yield "queues", _queue(name, end(kind), {})
        yield "queues", _queue(name, f"middle.{kind}", middle)
    if made.far:
        yield "queues", _queue(far(name), queue(kind), {})
    vhost = far(name) if kind == "federated" else name
    if kind != "federated":
        yield "queues", _queue(name, queue(kind), arguments)
    for key in (kind,) if kind in SELECTED else (OPEN + kind, CLOSED + kind):
        yield "bindings", _binding(vhost, DIRECT, "queue", queue(kind), key, {})
        yield "bindings", _binding(name, DIRECT, "exchange", TOPICS, key, {})


def _links(name: str, url: str) -> Iterator[Part]:
    """Federate the exchange and a queue, and shovel another queue."""
    upstream = {"uri": url + name, "reconnect-delay": 1}
    yield "parameters", {"vhost": far(name), "component": "federation-upstream", "name": "near", "value": upstream}
    for what, pattern in (("exchanges", f"^{DIRECT}$"), ("queues", f"^{queue('federated-queue')}$")):
        policy = {"name": what, "pattern": pattern, "apply-to": what, "definition": {"federation-upstream": "near"}, "priority": 0}
        yield "policies", {"vhost": far(name), **policy}
    shovel = {
        "src-uri": url + name, "src-queue": queue("shovelled"), "dest-uri": url + far(name), "dest-queue": queue("shovelled"),
        "dest-add-forward-headers": True, "reconnect-delay": 1,
    }  # fmt: skip
    yield "parameters", {"vhost": name, "component": "shovel", "name": "shovel", "value": shovel}


def _exchange(vhost: str, name: str, kind: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"vhost": vhost, "name": name, "type": kind, "durable": True, "auto_delete": False, "internal": False, "arguments": arguments}


def _queue(vhost: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"vhost": vhost, "name": name, "durable": True, "auto_delete": False, "arguments": arguments}


def _binding(vhost: str, source: str, what: str, destination: str, key: str, arguments: dict[str, Any]) -> dict[str, Any]:
    ends = {"source": source, "destination_type": what, "destination": destination}
    return {"vhost": vhost, **ends, "routing_key": key, "arguments": arguments}
