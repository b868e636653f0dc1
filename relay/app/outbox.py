"""Composes the relay from settings and runs it, for `relay run`."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from relay import events
from relay.amqp.publishing.publisher import RabbitPublisher
from relay.app.base import RelayBase
from relay.app.idle_exit import leave_when_idle
from relay.app.process import abandon, log_of, run_on_loop
from relay.app.relay import Relay, assemble
from relay.claims.intake import Intake
from relay.claims.unconfirmed_exchanges import UnconfirmedExchanges
from relay.codec.encoder import Encoders
from relay.config.settings import Settings
from relay.engine.policy import Policy
from relay.engine.settler import RetryingSettler


def run(settings: Settings) -> int:
    """Run the relay until SIGTERM or SIGINT; return the exit code, which is 0 after an orderly shutdown."""
    log = log_of(settings)
    run_on_loop(compose(settings, log, partial(abandon, log)).serve(log))
    return 0


def compose(settings: Settings, sink: events.Sink, abandon: Callable[[int], None], *, clock: Callable[[], float] = time.monotonic) -> Relay:
    """A relay that has not connected yet; `sink` gets its events, `abandon` is passed to `Shutdown`."""
    encoders = Encoders(max_body_bytes=Policy().max_body_bytes, allowed_exchanges=settings.allowed_exchanges)
    base = RelayBase(
        settings,
        sink,
        direction="outbox",
        peers=("database", "broker"),
        adopted=lambda policy: encoders.limit(policy.max_body_bytes),
        clock=clock,
    )
    publisher = RabbitPublisher(
        urls=[base.secret("amqp_url")],
        name=settings.name,
        encoder=encoders.make,
        checks=base.contracts,
        emit=base.emit,
        clock=clock,
    )
    return assemble(
        base,
        intake=_intake(base),
        publisher=publisher,
        settler=RetryingSettler(store=base.store, emit=base.emit),
        abandon=abandon,
        companions=[partial(leave_when_idle, settings.exit_after_idle)] if settings.exit_after_idle is not None else [],
    )


def _intake(base: RelayBase) -> Intake:
    return Intake(
        store=base.store,
        poll_interval=base.settings.poll_interval,
        share=base.flood_control(),
        strangers=UnconfirmedExchanges(window=base.settings.window, in_flight=lambda: base.window.exchanges),
        put_back=base.put_back,
        clock=base.clock,
    )
