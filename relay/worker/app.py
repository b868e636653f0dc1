"""A worker process: a relay whose publisher is a handler, over a schema that holds an inbox."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from relay.app.outbox import Relay
from relay.app.process import run_on_loop
from relay.claims.intake import Intake
from relay.config.settings import Settings
from relay.engine.loop import Engine
from relay.engine.settler import RetryingSettler
from relay.errors import SettingsError, StoreError
from relay.ports import LivePublisher, Settler
from relay.worker.by_id import ByIdIntake
from relay.worker.dispatcher import Dispatcher
from relay.worker.handler import Handler, each, home, together
from relay.worker.transactions import Settled, Transactions

AHEAD = 2
"""How many times as much is claimed as is handled at once: the next is here when one ends, and nothing waits long with its lock."""


def run(
    settings: Settings, handler: Handler, *, transaction: bool = False, serve: Callable[[], Coroutine[Any, Any, int]] | None = None
) -> int:
    """Handle messages until SIGTERM or SIGINT; return the exit code: 0 when it left in order, 1 when no handler ended any more.

    Raises:
        SettingsError: batches and transactions are both asked for.
    """
    if transaction and settings.work_batch > 1:
        raise SettingsError("RELAY_WORK_BATCH is above 1, and --transaction hands over one message at a time: leave one of them out.")
    return run_on_loop(settings, serve or (lambda: Worker(settings, handler, transaction=transaction).serve()))


def run_named(settings: Settings, handler: Handler, ids: Sequence[str], *, transaction: bool = False) -> list[str]:
    """Handle these messages, each once, and leave; return a sentence for each that was not handled to its success."""
    work: list[ByIdWorker] = []

    async def serve() -> int:
        work.append(ByIdWorker(settings, handler, ids, transaction=transaction))
        return await work[0].serve()

    code = run(settings, handler, transaction=transaction, serve=serve)
    return work[0].unhandled or (["The worker was ended before it was through."] if code else [])


class Worker(Relay):
    """Claims, hands over, settles."""

    direction = "inbox"
    peers = ("database",)

    def __init__(self, settings: Settings, handler: Handler, *, transaction: bool = False) -> None:
        at_once = settings.work_concurrency * settings.work_batch
        update = {"window": min(settings.window, AHEAD * at_once), "batch_size": min(settings.batch_size, at_once)}
        self._handler = handler
        self._transaction = transaction
        self._gave_up = False
        self._handling: Dispatcher | None = None
        self._settled = Settled()
        super().__init__(settings.model_copy(update=update))

    async def serve(self) -> int:
        """As a relay; 1 where it gave up."""
        code = 1 if await super().serve() or self._gave_up else 0
        await self._transactions.aclose()
        if self._handling is not None and self._handling.hangs:
            # A thread that never ends would keep the process for ever; what it was at keeps its lock until that expires.
            os._exit(code)
        return code

    def _make_publisher(self) -> LivePublisher:
        batch = self._settings.work_batch
        plain = (each if batch == 1 else together)(self._handler, self._transactions.answer)
        self._handling = Dispatcher(
            run=self._transactions.run if self._transaction else plain,
            group=1 if self._transaction else batch,
            concurrency=self._settings.work_concurrency,
            seconds=self._settings.work_seconds,
            left_locked=self._store.leave_locked,
            stuck=self._give_up,
            emit=self._emit,
            home=home(self._handler),
        )
        return self._handling

    def _make_intake(self) -> Intake:
        # A handler says nothing about exchanges, so none of them is a stranger.
        return Intake(store=self._store, poll_interval=self._settings.poll_interval, share=self._make_share())

    @cached_property
    def _transactions(self) -> Transactions:
        return Transactions(
            conninfo=self._database,
            schema=self._settings.schema_name,
            name=self._settings.name,
            prepare=self._settings.prepare,
            most_bytes=self._settings.window_bytes,
            handler=self._handler,
            settled=self._settled,
            policy=lambda: self._policy,
            emit=self._emit,
        )

    def _make_settler(self) -> Settler:
        return self._settled.before(RetryingSettler(store=self._store, emit=self._emit))

    def _give_up(self) -> None:
        """Every handler that may run hangs: leave, so that whoever watches the process starts another one."""
        self._gave_up = True
        self._signalled("stuck")


class ByIdWorker(Worker):
    """Handles the messages that were named, and leaves."""

    def __init__(self, settings: Settings, handler: Handler, ids: Sequence[str], *, transaction: bool) -> None:
        self._ids = ids
        # Any number of seconds says that it leaves by itself; when, says `_leave_when_idle`.
        super().__init__(settings.model_copy(update={"exit_after_idle": 0.0}), handler, transaction=transaction)
        self.unhandled = [f"Message {id_} was not looked for: the worker was ended before." for id_ in ids]
        """A sentence for each message that was not handled."""

    def _make_intake(self) -> Intake:
        self._named = ByIdIntake(store=self._store, ids=self._ids)
        return self._named

    async def _leave_when_idle(self, engine: Engine, seconds: float) -> None:
        await self._named.through.wait()
        await super()._leave_when_idle(engine, seconds)

    async def _leave(self) -> None:
        with suppress(StoreError):
            self.unhandled = await self._named.unhandled()
        await super()._leave()
