"""Checks that a schema fits a process: it must not be older than the process, and must have the process's direction; no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from relay.errors import StoreError, WrongDirectionError

_OTHER_WAY = {
    "outbox": "The schema holds an inbox, and a relay would publish again what was received: name the outbox's schema (RELAY_SCHEMA).",
    "inbox": "The schema holds an outbox, whose messages are a relay's to publish: name the inbox's schema (RELAY_SCHEMA), or make this "
    "one an inbox (relay config set direction inbox).",
}
"""The error message for a schema of the other direction, by the direction that the process needs."""


def check_version(version: int, needs: int) -> None:
    """Refuse a schema that is too old. A newer schema only adds to the objects that an older process uses.

    Raises:
        StoreError: the schema is too old: run `relay migrate`.
    """
    if version < needs:
        raise StoreError(f"The schema is at version {version} and this relay needs {needs}: run `relay migrate`.")


def is_of(direction: str, settings: Mapping[str, str]) -> bool:
    """Whether the database's settings say that the schema is an `outbox`, or an `inbox`."""
    return settings.get("direction", "outbox") == direction


def other_way(direction: str) -> WrongDirectionError:
    """The error for a process of this direction on a schema of the other direction."""
    return WrongDirectionError(_OTHER_WAY[direction])
