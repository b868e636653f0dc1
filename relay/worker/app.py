"""A worker process: a relay whose publisher is a handler, over a schema that holds an inbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from relay import events
from relay.app.base import RelayBase
from relay.app.idle_exit import leave_when_idle
from relay.app.process import abandon, log_of, run_on_loop
from relay.app.relay import Companion, Relay, assemble
from relay.claims.intake import Intake
from relay.config.settings import Settings
from relay.engine.settler import RetryingSettler
from relay.errors import SettingsError, StoreError
from relay.observability.logs import LogSink
from relay.worker.by_id import ByIdIntake
from relay.worker.dispatcher import Dispatcher
from relay.worker.handler import Handler, each, home, together
from relay.worker.transactions import Settled, Transactions

AHEAD = 2
"""How many times as much is claimed as is handled at once: the next is here when one ends, and nothing waits long with its lock."""


def run(settings: Settings, handler: Handler, *, transaction: bool = False) -> int:
    """Handle messages until SIGTERM or SIGINT; return the exit code: 0 when it left in order, 1 when no handler ended any more.

    Raises:
        SettingsError: batches and transactions are both asked for.
    """
    _check(settings, transaction=transaction)
    log = log_of(settings)
    return run_on_loop(compose(settings, handler, log, partial(abandon, log), transaction=transaction).serve(log))


def run_named(settings: Settings, handler: Handler, ids: Sequence[str], *, transaction: bool = False) -> list[str]:
    """Handle these messages, each once, and leave; return a sentence for each that was not handled to its success.

    Raises:
        SettingsError: batches and transactions are both asked for.
    """
    _check(settings, transaction=transaction)
    log = log_of(settings)
    unhandled = [f"Message {id_} was not looked for: the worker was ended before." for id_ in ids]
    worker = compose_named(settings, handler, log, partial(abandon, log), transaction=transaction, ids=ids, unhandled=unhandled)
    code = run_on_loop(worker.serve(log))
    return unhandled or (["The worker was ended before it was through."] if code else [])


@dataclass(frozen=True, kw_only=True, eq=False)
class Worker:
    """A relay that hands over to a handler, and what outlives it."""

    relay: Relay
    dispatcher: Dispatcher
    transactions: Transactions
    stuck: asyncio.Event
    """Every handler that may run hangs."""

    async def serve(self, log: LogSink) -> int:
        """As a relay; 1 where it gave up."""
        await self.relay.serve(log)
        await self.transactions.aclose()
        code = int(self.stuck.is_set())
        if self.dispatcher.hangs:
            # A thread that never ends would keep the process for ever; what it was at keeps its lock until that expires.
            os._exit(code)
        return code


def compose(settings: Settings, handler: Handler, sink: events.Sink, abandon: Callable[[int], None], *, transaction: bool) -> Worker:
    """A worker that has connected to nothing yet; the arguments are those of `relay.app.outbox.compose`."""
    base = _base(settings, sink)
    # A handler says nothing about exchanges, so none of them is a stranger.
    intake = Intake(store=base.store, poll_interval=settings.poll_interval, share=base.flood_control(), put_back=base.put_back)
    idle = settings.exit_after_idle
    companions = [partial(leave_when_idle, idle)] if idle is not None else []
    return _assembled(base, handler, intake, abandon, transaction=transaction, companions=companions)


def compose_named(
    settings: Settings,
    handler: Handler,
    sink: events.Sink,
    abandon: Callable[[int], None],
    *,
    transaction: bool,
    ids: Sequence[str],
    unhandled: list[str],
) -> Worker:
    """A worker that handles the messages that were named, and leaves; `unhandled` then has a sentence for each that was not handled."""
    base = _base(settings, sink)
    intake = ByIdIntake(store=base.store, ids=ids)

    async def leave_when_through(relay: Relay) -> None:
        await intake.through.wait()
        await leave_when_idle(0.0, relay)

    async def look_back() -> None:
        with suppress(StoreError):
            unhandled[:] = await intake.unhandled()

    return _assembled(base, handler, intake, abandon, transaction=transaction, companions=[leave_when_through], before_leaving=look_back)


def _check(settings: Settings, *, transaction: bool) -> None:
    if transaction and settings.work_batch > 1:
        raise SettingsError("RELAY_WORK_BATCH is above 1, and --transaction hands over one message at a time: leave one of them out.")


def _base(settings: Settings, sink: events.Sink) -> RelayBase:
    at_once = settings.work_concurrency * settings.work_batch
    update = {"window": min(settings.window, AHEAD * at_once), "batch_size": min(settings.batch_size, at_once)}
    return RelayBase(settings.model_copy(update=update), sink, direction="inbox", peers=("database",))


def _assembled(
    base: RelayBase,
    handler: Handler,
    intake: Intake,
    abandon: Callable[[int], None],
    *,
    transaction: bool,
    companions: Sequence[Companion],
    before_leaving: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Worker:
    settled, stuck = Settled(), asyncio.Event()
    transactions = _transactions(base, handler, settled)
    dispatcher = _dispatcher(base, handler, transactions, stuck, transaction=transaction)

    async def leave_when_stuck(relay: Relay) -> None:
        """Leave, so that whoever watches the process starts another one."""
        await stuck.wait()
        relay.shutdown.signalled("stuck")

    relay = assemble(
        base,
        intake=intake,
        publisher=dispatcher,
        settler=settled.before(RetryingSettler(store=base.store, emit=base.emit)),
        abandon=abandon,
        companions=[leave_when_stuck, *companions],
        before_leaving=before_leaving,
    )
    return Worker(relay=relay, dispatcher=dispatcher, transactions=transactions, stuck=stuck)


def _transactions(base: RelayBase, handler: Handler, settled: Settled) -> Transactions:
    return Transactions(
        conninfo=base.database,
        schema=base.settings.schema_name,
        name=base.settings.name,
        prepare=base.settings.prepare,
        most_bytes=base.settings.window_bytes,
        handler=handler,
        settled=settled,
        policy=lambda: base.policy.now,
        emit=base.emit,
    )


def _dispatcher(base: RelayBase, handler: Handler, transactions: Transactions, stuck: asyncio.Event, *, transaction: bool) -> Dispatcher:
    batch = base.settings.work_batch
    plain = (each if batch == 1 else together)(handler, transactions.answer)
    return Dispatcher(
        run=transactions.run if transaction else plain,
        group=1 if transaction else batch,
        concurrency=base.settings.work_concurrency,
        seconds=base.settings.work_seconds,
        left_locked=base.store.leave_locked,
        stuck=stuck.set,
        emit=base.emit,
        home=home(handler),
    )
