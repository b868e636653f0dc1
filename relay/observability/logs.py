"""Log lines: one for each event, human-readable or as JSON. No payload, password or line break is ever written.

The loggers of libraries have high levels: at lower levels aiormq prints frames and aio-pika prints messages, and an exception's text may
quote either. Any other text of a library is cut to its first line, and an exception to its type and code lines.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from relay import events
from relay.errors import RelayError
from relay.events.broker import BrokerBlocked, BrokerDown, BrokerUnblocked, BrokerUp, ChannelsLimited, ExchangeProven, ExchangeQuarantined
from relay.events.contracts import ContractBroken, ContractUnusable
from relay.events.inbox import DeliveryRejected, HandlerFailed, HandlerOverdue, QueueNarrowed, QueueOpened, QueueRefused, ReceiveFailed
from relay.events.schedules import KeyFails, ScheduleFails

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FLOODS = frozenset({
    ContractBroken, ContractUnusable, KeyFails, ScheduleFails,
    BrokerBlocked, BrokerDown, BrokerUnblocked, BrokerUp, ChannelsLimited, ExchangeProven, ExchangeQuarantined,
    events.DatabaseDown, events.DatabaseUp, events.ListenDown, events.ListenUp, events.LockLost, events.MaintenanceFailed,
    events.MessageDead, events.SettleFailed, DeliveryRejected, HandlerFailed, HandlerOverdue, QueueNarrowed,
    QueueOpened, QueueRefused, ReceiveFailed,
})  # fmt: skip
"""Kinds of events that one fault can cause by the thousand: each kind is logged at most once a second, with the number of suppressed
events."""
SAME_CAUSE: dict[type[events.Event], type[events.Event]] = dict.fromkeys(
    (events.SettleFailed, events.MaintenanceFailed, events.ListenDown, ReceiveFailed), events.DatabaseDown
)
"""Kinds of events with the same cause; they share the limit of one line a second."""
FLOOD_SECONDS = 1.0
"""Seconds between two lines of a kind in `FLOODS`."""
MAX_CHARACTERS = 1000
"""Most characters that are logged of one value."""
MAX_MEMBERS = 10
"""Most members that are logged of a value that is a list."""
_LIBRARY_LEVELS = {
    "aio_pika": logging.CRITICAL,
    "aiormq": logging.CRITICAL,
    "asyncio": logging.ERROR,
    "pamqp": logging.CRITICAL,
    "psycopg": logging.CRITICAL,
    "starlette": logging.ERROR,
    "uvicorn": logging.ERROR,
}


def configure(*, level: str, log_format: str | None, stream: TextIO | None = None) -> None:
    """Send log lines of this process to `stream`; a second call replaces the first.

    Args:
        level: lowest level of the relay's own lines: debug, info, warning, error.
        log_format: console or json; None means console on a terminal and json otherwise.
        stream: None means standard error.

    """
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_formatter(stream, log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("relay").setLevel(LEVELS[level])
    for name, least in _LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(least)


class LogSink:
    """Writes events at their level, and kinds in `FLOODS` at most once a second each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[type[events.Event], float] = {}
        self._suppressed: dict[type[events.Event], tuple[events.Event, int, str]] = {}
        """By kind: the last suppressed event, the number of suppressed events before it, and the time of the last one."""
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self._logger = structlog.wrap_logger(
            logging.getLogger("relay"),
            wrapper_class=structlog.stdlib.BoundLogger,
            processors=[structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        )

    def __call__(self, event: events.Event) -> None:
        """Write the event now, or count it."""
        kind = type(event)
        if kind is events.Stopped:
            self.flush()
            self._ended = True
        elif self._ended and event.level != "error":
            # At shutdown, components report the connections that they close themselves; such reports are not logged.
            return
        if self._suppressed:
            self._report_suppressed(self._clock(), but=kind)
        if event.level == "none":
            return
        values = _values(event)
        if kind in FLOODS:
            if not self._may_write(kind):
                self._suppress(event)
                return
            if kind in self._suppressed:
                values["suppressed"] = self._suppressed.pop(kind)[1] + 1
        self._logger.log(LEVELS[event.level], name_of(kind), **values)

    def _suppress(self, event: events.Event) -> None:
        """Keep the event until its second is over. If an event loop is running, a timer then writes the event."""
        kind = type(event)
        self._suppressed[kind] = (
            event,
            self._suppressed[kind][1] + 1 if kind in self._suppressed else 0,
            datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        )
        if self._timer is None:
            with suppress(RuntimeError):
                self._timer = asyncio.get_running_loop().call_later(FLOOD_SECONDS, self._report_when_due)

    def _report_when_due(self) -> None:
        self._timer = None
        self._report_suppressed(self._clock())
        if self._suppressed:
            self._timer = asyncio.get_running_loop().call_later(FLOOD_SECONDS / 10, self._report_when_due)

    def flush(self) -> None:
        """Write suppressed events at once, at shutdown."""
        self._report_suppressed(float("inf"))

    def _may_write(self, kind: type[events.Event]) -> bool:
        now, cause = self._clock(), SAME_CAUSE.get(kind, kind)
        if now < self._next.get(cause, now):
            return False
        self._next[cause] = now + FLOOD_SECONDS
        return True

    def _report_suppressed(self, now: float, but: type[events.Event] | None = None) -> None:
        for kind in [kind for kind in self._suppressed if now >= self._next[SAME_CAUSE.get(kind, kind)] and kind is not but]:
            self._next[SAME_CAUSE.get(kind, kind)] = now + FLOOD_SECONDS
            event, before, came = self._suppressed.pop(kind)
            values = _values(event) | ({"suppressed": before} if before else {}) | {"timestamp": came}
            self._logger.log(LEVELS[kind.level], name_of(kind), **values)


def name_of(kind: type[events.Event]) -> str:
    """The name of an event in log lines: DatabaseDown is `database_down`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _values(event: events.Event) -> dict[str, object]:
    return {field.name: getattr(event, field.name) for field in fields(event)}


def _formatter(stream: TextIO, log_format: str | None) -> structlog.stdlib.ProcessorFormatter:
    terminal = stream.isatty()
    if log_format == "console" or (log_format is None and terminal):
        renderer: Processor = structlog.dev.ConsoleRenderer(colors=terminal)
    else:
        renderer = structlog.processors.JSONRenderer(default=str)
    return structlog.stdlib.ProcessorFormatter(
        processors=[
            _name_and_error,
            structlog.stdlib.add_log_level,
            structlog.processors.MaybeTimeStamper(fmt="iso", utc=True),
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _sanitize,
            renderer,
        ]
    )


def _name_and_error(_: object, __: str, line: EventDict) -> EventDict:
    """Reduce a library's log line to its logger, the first line of its text, and the exception without the exception's text."""
    if line["_from_structlog"]:
        return line
    record: logging.LogRecord = line["_record"]
    line["event"] = str(line["event"]).split("\n", 1)[0]
    line["logger"] = record.name
    raised = line.pop("exc_info", None) or record.exc_info
    line.pop("stack_info", None)
    if isinstance(raised, tuple) and raised[1] is not None:
        line["error"] = str(raised[1]) if isinstance(raised[1], RelayError) else type(raised[1]).__name__
        line["where"] = " < ".join(
            f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in reversed(traceback.extract_tb(raised[2], -5))
        )
    return line


def _sanitize(_: object, __: str, line: EventDict) -> EventDict:
    return {key: _sanitized(value) for key, value in line.items()}


def _sanitized(value: Any) -> Any:
    """The value, shortened, without characters that could forge a log line or control a terminal."""
    if isinstance(value, str):
        text = value if len(value) <= MAX_CHARACTERS else f"{value[:MAX_CHARACTERS]}… ({len(value)} characters)"
        return text if text.isprintable() else "".join(map(_escaped, text))
    if isinstance(value, Sequence):
        more = [f"… ({len(value)} in all)"] if len(value) > MAX_MEMBERS else []
        return [*map(_sanitized, value[:MAX_MEMBERS]), *more]
    return value if value is None or isinstance(value, bool | int | float) else _sanitized(str(value))


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
