"""A worker process: a relay that reads an inbox and calls a handler instead of publishing."""

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
from relay.worker.handler import Handler, in_batches, one_by_one, package_of
from relay.worker.transactions import SettledPositions, Transactions

AHEAD = 2
"""Claimed messages per running handler: when a handler ends, the next message is already claimed, and has not been locked for long."""


def run(settings: Settings, handler: Handler, *, transaction: bool = False) -> int:
    """Handle messages until SIGTERM or SIGINT; return the exit code: 0 after a clean shutdown, 1 when every handler hangs.

    Raises:
        SettingsError: batches and transactions are both set.
    """
    _check(settings, transaction=transaction)
    log = log_of(settings)
    return run_on_loop(compose(settings, handler, log, partial(abandon, log), transaction=transaction).serve(log))


def run_named(settings: Settings, handler: Handler, ids: Sequence[str], *, transaction: bool = False) -> list[str]:
    """Handle these messages, each once, and exit; return one sentence for each message that was not handled successfully.

    Raises:
        SettingsError: batches and transactions are both set.
    """
    _check(settings, transaction=transaction)
    log = log_of(settings)
    unhandled = [f"Message {id_} was not claimed: the worker was stopped before." for id_ in ids]
    worker = compose_named(settings, handler, log, partial(abandon, log), transaction=transaction, ids=ids, unhandled=unhandled)
    code = run_on_loop(worker.serve(log))
    return unhandled or (["The worker was stopped before it had finished."] if code else [])


@dataclass(frozen=True, kw_only=True, eq=False)
class Worker:
    """A relay that calls a handler, and the parts that are closed after the relay."""

    relay: Relay
    dispatcher: Dispatcher
    transactions: Transactions
    stuck: asyncio.Event
    """Set when every handler slot hangs."""

    async def serve(self, log: LogSink) -> int:
        """Run until shutdown; return 1 if the worker gave up because its handlers hang."""
        await self.relay.serve(log)
        await self.transactions.aclose()
        code = int(self.stuck.is_set())
        if self.dispatcher.hangs:
            # A thread that never ends would keep the process alive for ever. Its message stays locked until the lock expires.
            os._exit(code)
        return code


def compose(settings: Settings, handler: Handler, sink: events.Sink, abandon: Callable[[int], None], *, transaction: bool) -> Worker:
    """A worker without connections yet; the arguments are those of `relay.app.outbox.compose`."""
    base = _base(settings, sink)
    # A handler confirms no exchanges, so no exchange is treated as unconfirmed.
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
    """A worker that handles the messages with these ids and exits; `unhandled` then has one sentence for each message not handled."""
    base = _base(settings, sink)
    intake = ByIdIntake(store=base.store, ids=ids)

    async def exit_when_done(relay: Relay) -> None:
        await intake.exhausted.wait()
        await leave_when_idle(0.0, relay)

    async def report_unhandled() -> None:
        with suppress(StoreError):
            unhandled[:] = await intake.unhandled()

    return _assembled(base, handler, intake, abandon, transaction=transaction, companions=[exit_when_done], before_leaving=report_unhandled)


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
    settled, stuck = SettledPositions(), asyncio.Event()
    transactions = _transactions(base, handler, settled)
    dispatcher = _dispatcher(base, handler, transactions, stuck, transaction=transaction)

    async def exit_when_stuck(relay: Relay) -> None:
        """Exit, so that the supervisor restarts the process."""
        await stuck.wait()
        relay.shutdown.signalled("stuck")

    relay = assemble(
        base,
        intake=intake,
        publisher=dispatcher,
        settler=settled.excluded_from(RetryingSettler(store=base.store, emit=base.emit)),
        abandon=abandon,
        companions=[exit_when_stuck, *companions],
        before_leaving=before_leaving,
    )
    return Worker(relay=relay, dispatcher=dispatcher, transactions=transactions, stuck=stuck)


def _transactions(base: RelayBase, handler: Handler, settled: SettledPositions) -> Transactions:
    return Transactions(
        conninfo=base.database,
        schema=base.settings.schema_name,
        name=base.settings.name,
        prepare=base.settings.prepare,
        max_bytes=base.settings.window_bytes,
        handler=handler,
        settled=settled,
        policy=lambda: base.policy.now,
        emit=base.emit,
    )


def _dispatcher(base: RelayBase, handler: Handler, transactions: Transactions, stuck: asyncio.Event, *, transaction: bool) -> Dispatcher:
    batch = base.settings.work_batch
    plain = (one_by_one if batch == 1 else in_batches)(handler, transactions.answer)
    return Dispatcher(
        run=transactions.run if transaction else plain,
        group=1 if transaction else batch,
        concurrency=base.settings.work_concurrency,
        seconds=base.settings.work_seconds,
        left_locked=base.store.leave_locked,
        stuck=stuck.set,
        emit=base.emit,
        package=package_of(handler),
    )
