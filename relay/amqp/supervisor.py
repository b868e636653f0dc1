"""Keeps one connection to the broker: connects, waits until the connection ends, and connects again after a growing pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from relay import events
from relay.aio import pause
from relay.amqp.connection import BrokerConnection, ConnectionLost, connect
from relay.amqp.frames import FrameParser
from relay.errors import BrokerError
from relay.events import broker
from relay.net.amqp_url import each_host
from relay.net.secret_url import Secret, current

SETTLED_AFTER: Final = 1.0
"""Seconds that a connection must live before the pauses start at the shortest again. A poison message may end each connection at once."""
QUIET: Final = 1.0
"""Seconds between two events of the same kind."""


class ConnectionUser(Protocol):
    """The user of the connection."""

    def up(self, link: BrokerConnection) -> None:
        """A connection is open."""

    def down(self, lost: ConnectionLost) -> None:
        """The connection has ended."""


class Supervisor:
    """Connects to the first of several hosts that answers, and after a lost connection to the next host, as long as `run` runs."""

    def __init__(
        self,
        *,
        urls: Sequence[Secret],
        name: str,
        heartbeat: int,
        tenant: ConnectionUser,
        clock: Callable[[], float],
        emit: events.Sink,
        cut: type[FrameParser] = FrameParser,
    ) -> None:
        self._urls = urls
        self._name = name
        self._heartbeat = heartbeat
        self._tenant = tenant
        self._clock = clock
        self._emit = emit
        self._cut = cut
        self._failures = 0
        self._tries = 0
        self._told_up = False
        self._told_down_at = -QUIET
        self._risky = events.warn_once(emit)

    async def run(self) -> None:
        """Keep a connection open until cancelled; then close it."""
        hosts: list[str] = []
        while True:
            try:
                hosts = [host for secret in self._urls for host in each_host(current(secret))]
                link = await connect(hosts[self._tries % len(hosts)], name=self._name, heartbeat=self._heartbeat, cut=self._cut)
                await self._live(link)
            except BrokerError as error:
                self._tell_down(str(error))
            except Exception as error:  # noqa: BLE001 - whatever the error, a relay must keep trying, and report it
                self._tell_down(f"The connection to the broker could not be kept ({error!r}); report this as a bug.")
            self._tries += 1
            rounds, rest = divmod(self._failures, len(hosts) or 1)
            # The next host is tried after the shortest pause; the pauses grow when all hosts have failed.
            await asyncio.sleep(pause(1 if rest else rounds))

    async def _live(self, link: BrokerConnection) -> None:
        """Let the tenant use the connection until the connection ends."""
        began = self._clock()
        self._tenant.up(link)
        if link.risk:
            self._risky(link.risk)
        if not self._told_up:
            self._told_up = True
            self._emit(broker.BrokerUp(link.version, link.host))
        lost = ConnectionLost("The relay closes the connection.")
        try:
            lost = await asyncio.shield(link.tap.ended)
        finally:
            self._tenant.down(lost)
            await link.close()
        if self._clock() - began > SETTLED_AFTER:
            self._failures = 0
        self._tell_down(lost.sentence)

    def _tell_down(self, sentence: str) -> None:
        self._failures += 1
        if self._clock() - self._told_down_at >= QUIET:
            self._told_down_at, self._told_up = self._clock(), False
            self._emit(broker.BrokerDown(sentence, self._failures))
