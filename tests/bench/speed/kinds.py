"""Kinds of messages: how an application inserts them, and the bytes that a publisher writes for the same ones."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from relay.codec.encoder import Encoded, Encoder, encode_batch
from relay.message import Claim

QUEUE = "speed"
ROUTING_KEY = "k"
CHANNEL = 1
FRAME_MAX = 131_072
MAX_BODY = 16 << 20
_PLACEHOLDER = str(uuid.UUID(int=0))
_LARGEST_CONTENT = 4096
"""Bytes of payload above which it is a `body` of random bytes; below, it is JSON."""
_AROUND_PAD = len('{"pad": "", "value": 123456}')
_INSERT = """
    INSERT INTO queue_message (exchange, routing_key, content, body, options, ordering_key)
    SELECT %(exchange)s || CASE WHEN %(exchanges)s > 1 THEN '-' || n %% %(exchanges)s ELSE '' END, %(routing_key)s,
        CASE WHEN %(body)s::bytea IS NULL THEN jsonb_build_object('value', 100000 + n, 'pad', %(pad)s::text) ELSE '{}' END,
        %(body)s::bytea, %(options)s, CASE WHEN %(keys)s > 0 THEN 'key-' || n %% %(keys)s END
    FROM generate_series(1, %(rows)s) AS n
"""
HEADERS = {f"header-{number}": f"value of header {number}" for number in range(10)}


@dataclass(frozen=True)
class Kind:
    """Messages that are alike; `rows` are drained in a round."""

    name: str
    rows: int
    size: int = 300
    """Bytes of payload."""
    options: Mapping[str, object] = field(default_factory=dict)
    exchanges: int = 1
    keys: int = 0
    """Ordering keys; 0: without order."""
    quorum: bool = False
    least: float | None = None
    """Share of the bare publisher's rate that must be reached."""

    @property
    def exchange_names(self) -> list[str]:
        """Exchanges that the messages go to in turn."""
        return [QUEUE] if self.exchanges == 1 else [f"{QUEUE}-{number}" for number in range(self.exchanges)]

    @property
    def queue_arguments(self) -> dict[str, str]:
        """Of the one queue that takes them all."""
        return {"x-queue-type": "quorum"} if self.quorum else {}

    def insert(self, url: str, rows: int | None = None) -> None:
        """Insert them in one transaction, over a connection of their own."""
        with psycopg.connect(url) as connection:
            self.insert_over(connection, rows)

    def insert_over(self, connection: psycopg.Connection[Any], rows: int | None = None) -> None:
        """The same over a connection that stays: its CPU so far is known, where that of one that just ended may be counted late."""
        body = os.urandom(self.size) if self.size > _LARGEST_CONTENT else None
        values = {
            "exchange": QUEUE, "exchanges": self.exchanges, "routing_key": ROUTING_KEY, "body": body, "pad": self._pad(),
            "options": Jsonb(dict(self.options)), "keys": self.keys, "rows": rows or self.rows,
        }  # fmt: skip
        connection.execute(_INSERT, values)

    def templates(self) -> list[tuple[bytes, ...]]:
        """For each exchange the frames of a message, cut at its id: `id.join(template)` are the bytes to write."""
        encoder = Encoder(frame_max=FRAME_MAX, max_body_bytes=MAX_BODY, allowed_exchanges=None)
        payload = os.urandom(self.size) if self.size > _LARGEST_CONTENT else f'{{"pad": "{self._pad()}", "value": 100001}}'.encode()
        options = json.dumps(self.options).encode() if self.options else None
        found = []
        for name in self.exchange_names:
            binary = self.size > _LARGEST_CONTENT
            claim = Claim(1, 1, _PLACEHOLDER, name, ROUTING_KEY, payload, binary, options, None, None, 1, None)
            encoded = encoder.encode(claim)
            assert isinstance(encoded, Encoded), encoded
            found.append(tuple(encode_batch([encoded], CHANNEL).split(_PLACEHOLDER.encode())))
        return found

    def _pad(self) -> str:
        return "x" * (self.size - _AROUND_PAD)


PLAIN = Kind("300 B of JSON", 60_000, least=0.8)
SHORT = Kind("300 B of JSON", 20_000)
MIXED = (
    Kind("options with 10 headers", 20_000, options={"headers": HEADERS}, least=0.75),
    Kind("50 exchanges mixed", 20_000, exchanges=50, least=0.75),
    Kind("1 kB of JSON", 20_000, size=1_000, least=0.75),
    Kind("quorum queue", 20_000, quorum=True, least=0.75),
)
LARGE = (
    Kind("bodies of 10 kB", 8_000, size=10_000, least=0.6),
    Kind("bodies of 100 kB", 1_500, size=100_000, least=0.6),
    Kind("bodies of 1 MB", 150, size=1_000_000, least=0.6),
)
ORDERED = (Kind("ordered, 1,000 keys", 20_000, keys=1_000), Kind("ordered, 10 keys", 2_000, keys=10))
