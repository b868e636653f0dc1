"""In which order hosts are tried, and how long is waited between two tries."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from relay.amqp import supervisor
from relay.amqp.connection import BrokerConnection, ConnectionLost
from relay.amqp.supervisor import ConnectionUser, Supervisor
from relay.errors import BrokerError
from relay.events.broker import BrokerDown, BrokerUp
from tests.support.broker.publishing import Seen

URL = "amqp://u:p@a,b,c/v"


class Network:
    """Hosts by their letter: those in `up` answer, and each connection lives until `lose`."""

    def __init__(self, *up: str) -> None:
        self.up = set(up)
        self.tried: list[str] = []
        self.pauses: list[float] = []
        self._ended: asyncio.Future[ConnectionLost] | None = None

    async def connect(self, url: str, **_: Any) -> BrokerConnection:
        """Answer, or refuse."""
        host = url.partition("@")[2][0]
        self.tried.append(host)
        if host not in self.up:
            raise BrokerError(f"The broker at {host} is not there.")
        self._ended = asyncio.get_running_loop().create_future()
        tap = SimpleNamespace(ended=self._ended)
        return cast("BrokerConnection", SimpleNamespace(tap=tap, host=host, version="4", close=self._closed, risk=None))

    def lose(self, host: str) -> None:
        """The host goes, and the connection to it."""
        self.up.remove(host)
        assert self._ended is not None
        self._ended.set_result(ConnectionLost(f"The connection to {host} is lost."))

    async def pause(self, seconds: float) -> None:
        """Note a pause and let the others run."""
        self.pauses.append(seconds)
        await _SLEEP(0)

    async def _closed(self) -> None:
        """Nothing to say goodbye to."""


_SLEEP = asyncio.sleep


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    """No host answers yet."""
    made = Network()
    monkeypatch.setattr(supervisor, "connect", made.connect)
    monkeypatch.setattr(supervisor.asyncio, "sleep", made.pause)  # type: ignore[attr-defined]
    monkeypatch.setattr("random.random", lambda: 0.0)
    return made


async def ticks(count: int) -> None:
    """Let the other tasks take steps."""
    for _ in range(count):
        await _SLEEP(0)


def supervise(seen: Seen, *urls: str) -> asyncio.Task[None]:
    """A supervisor at work, without quiet times between its events."""
    tenant = cast("ConnectionUser", SimpleNamespace(up=lambda link: None, down=lambda lost: None))
    clock = iter(range(0, 1_000_000, 10)).__next__
    made = Supervisor(urls=urls, name="test", heartbeat=10, tenant=tenant, clock=clock, emit=seen)
    return asyncio.create_task(made.run())


async def test_hosts_are_tried_in_their_order_and_after_a_loss_the_next_comes_first(network: Network) -> None:
    """From the last one it is the first again; a connection stays where it is when an earlier host is back."""
    network.up = {"b", "c"}
    seen = Seen()
    task = supervise(seen, URL)
    await ticks(20)
    assert ["a", "b"] == network.tried
    network.up.add("a")
    network.lose("b")
    await ticks(20)
    network.lose("c")
    await ticks(20)
    task.cancel()

    assert ["a", "b", "c", "a"] == network.tried
    assert ["b", "c", "a"] == [event.host for event in seen.of(BrokerUp)]
    assert ["The broker at a is not there.", "The connection to b is lost.", "The connection to c is lost."] == [
        event.error for event in seen.of(BrokerDown)
    ]


async def test_pauses_grow_when_no_host_will_do(network: Network) -> None:
    """Within a round the next host is tried soon; one host alone has a round to itself."""
    for urls, pauses in (
        (["amqp://u:p@a/v"], [0.1, 0.2, 0.4, 0.8]),
        ([URL], [0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.4]),
        (["amqp://u:p@a/v", "amqp://u:p@b/v"], [0.1, 0.1, 0.1, 0.2]),
    ):
        network.pauses.clear()
        task = supervise(Seen(), *urls)
        deadline = time.monotonic() + 30
        while len(network.pauses) < len(pauses) and time.monotonic() < deadline:
            await ticks(1)
        task.cancel()
        assert pauses == network.pauses[: len(pauses)]
