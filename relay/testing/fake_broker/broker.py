"""The in-memory broker for tests: declares exchanges and queues, returns messages, and injects faults."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from relay.testing.fake_broker import server
from relay.testing.fake_broker.topology import Delivered, Kind

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own, so that a test may block or run another loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._up = threading.Event()
        self._end: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="relay.testing", daemon=True)
        self._thread.start()
        self._up.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return the result; blocks the calling thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._runner.get_loop()).result()

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The same as `run`, for a caller on another loop, which is not blocked."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._runner.get_loop()))

    def close(self) -> None:
        """End the loop and its thread."""
        assert self._end is not None
        self._runner.get_loop().call_soon_threadsafe(self._end.set)
        self._thread.join()

    def _main(self) -> None:
        with self._runner:
            self._runner.run(self._until_closed())

    async def _until_closed(self) -> None:
        self._end = asyncio.Event()
        self._up.set()
        await self._end.wait()


class Broker:
    """A broker that listens on a loopback port within a `with` block. Every method may be called from any thread.

    Messages are routed as RabbitMQ would route them: by exchanges of the four types and the default exchange, with CC, BCC and `mandatory`.
    There are no consumers: `queue` returns the messages that a consumer would get.
    """

    def __init__(self) -> None:
        self._loop = Loop()
        self._server = server.BrokerPort()

    def __enter__(self) -> Self:
        """Start to listen."""
        self._loop.run(self._server.start())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End every connection, and stop listening."""
        self._loop.run(self._server.aclose())
        self._loop.close()

    @property
    def url(self) -> str:
        """The broker's AMQP URL."""
        return f"amqp://guest:guest@127.0.0.1:{self._server.port}/"

    def declare_exchange(self, name: str, kind: Kind = "topic", *, internal: bool = False) -> None:
        """Declare an exchange, as the applications do in production; the relay never declares anything.

        Raises:
            TopologyError: a different exchange of that name exists.
        """
        self._do(lambda: self._server.topology.declare_exchange(name, kind, internal=internal))

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange, with its bindings."""
        self._do(lambda: self._server.topology.exchanges.pop(name, None))

    def declare_queue(self, name: str, *, max_length: int | None = None) -> None:
        """Declare a queue; the default exchange routes to it by name. A full queue refuses messages (nack).

        Raises:
            TopologyError: a different queue of that name exists.
        """
        self._do(lambda: self._server.topology.declare_queue(name, max_length=max_length))

    def bind(self, queue: str, exchange: str, routing_key: str = "#", *, arguments: Mapping[str, Any] | None = None) -> None:
        """Bind a queue to an exchange, and declare the queue if it is missing.

        Args:
            queue: the queue's name.
            exchange: an exchange that was declared.
            routing_key: a routing key, or for a topic exchange a pattern; the pattern `#` matches every key.
            arguments: for a headers exchange the headers that must match, and `x-match`.

        Raises:
            TopologyError: there is no such exchange.
        """

        def bind() -> None:
            if queue not in self._server.topology.queues:
                self._server.topology.declare_queue(queue, max_length=None)
            self._server.topology.bind(queue, exchange, routing_key, arguments or {})

        self._do(bind)

    def queue(self, name: str) -> list[Delivered]:
        """The messages of a queue, oldest first, as a consumer would receive them.

        Raises:
            TopologyError: no such queue was declared.
        """
        return self._do(lambda: list(self._server.topology.queue(name).messages))

    def purge(self, name: str) -> list[Delivered]:
        """Consume and acknowledge all messages of a queue; return them.

        Raises:
            TopologyError: no such queue was declared.
        """

        def purge() -> list[Delivered]:
            taken = self._server.topology.queue(name).messages
            self._server.topology.queue(name).messages = []
            return taken

        return self._do(purge)

    def refuse(self, exchange: str, times: int | None = None) -> None:
        """Nack the next `times` messages of an exchange; without `times`, nack all messages until `refuse(exchange, 0)`."""
        self._do(lambda: self._server.faults.nacks.update({exchange: times}))

    def forbid(self, exchange: str, *, forbidden: bool = True) -> None:
        """Deny writes to an exchange (403), or allow them again."""
        change = self._server.faults.forbidden.add if forbidden else self._server.faults.forbidden.discard
        self._do(lambda: change(exchange))

    def silence(self, exchange: str) -> None:
        """Accept messages of an exchange without confirms, until `answer`."""
        self._do(lambda: self._server.hush(exchange, silent=True))

    def answer(self, exchange: str) -> None:
        """Resume confirms, and confirm the withheld messages."""
        self._do(lambda: self._server.hush(exchange, silent=False))

    def block(self) -> None:
        """Raise a resource alarm: publishing clients are notified, and no message is accepted until `unblock`."""
        self._do(lambda: self._server.block(blocked=True))

    def unblock(self) -> None:
        """End the alarm."""
        self._do(lambda: self._server.block(blocked=False))

    def drop(self) -> None:
        """Cut every connection once."""
        self._do(self._server.drop)

    def down(self) -> None:
        """Cut every connection and accept none, until `up`. Queues keep their messages."""

        def down() -> None:
            self._server.down = True
            self._server.drop()

        self._do(down)

    def up(self) -> None:
        """Accept connections again."""
        self._do(lambda: setattr(self._server, "down", False))

    def _do(self, what: Callable[[], T]) -> T:
        async def do() -> T:
            return what()

        return self._loop.run(do())
