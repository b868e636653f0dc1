"""Reads the relays or workers that are alive, and has the advice if none is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from relay.postgres.operator_session import OperatorSession

NONE_ALIVE = (
    "no relay is alive, so nothing is sent: start one with `relay run`",
    "no worker is alive, so nothing is handled: start one with `relay work`",
)
"""The advice if no process is alive: for an outbox, and for an inbox."""
UNABLE = "no relay reaches its broker, so nothing is sent: `relay status` says why"

Relays = dict[int, Mapping[str, Any]]


class Workers(NamedTuple):
    """The relays or workers with a heartbeat: rows of `read_relays.sql`."""

    rows: Sequence[Mapping[str, Any]]
    direction: str

    @property
    def alive(self) -> Relays:
        """The living relays or workers, by id."""
        return {row["id"]: row for row in self.rows if row["alive"]}

    @property
    def able(self) -> Relays:
        """The living relays or workers that reach their broker, by id."""
        return {id_: row for id_, row in self.alive.items() if row["state"].get("broker", "up") == "up"}

    @property
    def stopped(self) -> str | None:
        """Why no message is processed, with advice; None while a living relay or worker can process some."""
        if not self.alive:
            return NONE_ALIVE[self.direction == "inbox"]
        return None if self.able else UNABLE

    def said(self, what: str) -> dict[str, Any]:
        """The reports of living relays by exchange; `what` is `silent` or `behind`."""
        return {name: about for row in self.alive.values() for name, about in _items(row["state"].get(what))}


def read_workers(opened: OperatorSession) -> Workers:
    """Read the relays or workers."""
    found = [row["value"] for row in opened.rows("read_policy") if (row["kind"], row["name"]) == ("setting", "direction")]
    return Workers(opened.rows("read_relays"), *found or ["outbox"])


def _items(said: object) -> list[tuple[str, Any]]:
    """The reports in a heartbeat's value. A relay of another version may report something else, which counts as empty."""
    if isinstance(said, dict):
        return list(said.items())
    return [(name, None) for name in said] if isinstance(said, list) else []
