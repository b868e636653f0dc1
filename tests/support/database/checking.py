"""Fixtures: what `relay check --queue` says of a queue, and what happens between its two looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.relays.cli import Cli, Seeded

RELAY = "INSERT INTO queue_message_relay (name, version, host, pid, state) VALUES ('relay-1', '1.0', 'h', 1, %s) RETURNING id"
Between = Callable[[Callable[[], object]], None]


@pytest.fixture
def beside(seeded: Seeded) -> Iterator[Seeded]:
    """The database with its triggers switched off."""
    seeded.run("SET session_replication_role = replica")
    yield seeded
    seeded.run("RESET session_replication_role")


@pytest.fixture
def relay_row(seeded: Seeded) -> int:
    """A relay that lives, reaches its broker and has just walked the queue, by its row."""
    [(id_,)] = seeded.run(RELAY, '{"broker": "up", "walked_ago": -1000}')
    return int(id_)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Makes something happen between the two looks, in place of the time that passes there."""

    def instead(happens: Callable[[], object]) -> None:
        # Only the name in that module is replaced: threads of others, such as those that Spark leaves, continue to sleep.
        monkeypatch.setattr("relay.cli.commands.check.time", SimpleNamespace(sleep=lambda _seconds: happens()))

    return instead


def lost(cli: Cli, *args: str) -> dict[str, str]:
    """Reasons of the lost messages by id, of which there must be some."""
    return {row["id"]: row["reason"] for row in cli.json("check", "--queue", *args, code=1)["lost_messages"]}


def kept(cli: Cli, *args: str) -> Any:
    """What the command says where no message is lost."""
    found = cli.json("check", "--queue", *args)
    assert [] == found["lost_messages"]
    return found
