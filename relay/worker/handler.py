"""What an application writes: a function that handles a message, or several; and where a name says that it stands."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from relay.errors import SettingsError
from relay.message import Batch, Claim
from relay.worker.message import Message
from relay.worker.outcomes import TransientAttemptError
from relay.worker.response import is_request

Handler = Callable[..., Any]
"""`async def handle(message)`; a plain function runs in a thread. With batches it takes a list of messages, in a transaction also the
connection."""


_THREADS = ThreadPoolExecutor(max_workers=1000, thread_name_prefix="handler")
"""As many as handlers that may run at once; threads are made as they are needed."""


class RequestsApartError(TransientAttemptError):
    """There is a request in a list of messages; each of the list goes by itself."""


def find(name: str, *, transaction: bool = False) -> Handler:
    """The handler that `module:function` names; the module is looked for in the current folder too.

    Raises:
        SettingsError: there is none; one sentence.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise SettingsError(f"{name!r} names no handler: write it as module:function.")
    handler = getattr(_imported(module), attribute, None)
    if not callable(handler):
        raise SettingsError(f"The module {module!r} has no function {attribute!r}.")
    if why := _unfit(handler, transaction=transaction):
        raise SettingsError(f"{name!r} {why}.")
    return handler  # type: ignore[no-any-return]


def _imported(module: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingsError(f"The module {module!r} cannot be imported ({error}): correct the name, or run where it stands.") from error
    except Exception as error:  # whatever the module's own code raises
        raise SettingsError(f"The module {module!r} fails as it is imported ({type(error).__name__}: {error}): correct it.") from error


def _unfit(handler: Handler, *, transaction: bool) -> str | None:
    """Why it cannot handle messages, as the end of a sentence."""
    if inspect.isclass(handler):
        return "is a class, of which each message would only make an instance: name a function, or an instance with __call__"
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        return "is a generator, which does nothing when it is called: write a function without yield"
    if transaction and not is_async(handler):
        return "must be async def to work in a transaction: it gets an async connection"
    given = ("message", "connection") if transaction else ("message",)
    try:
        inspect.signature(handler).bind(*given)
    except ValueError:
        # Some that are written in C do not say what they take.
        return None
    except TypeError:
        return f"cannot be called with {' and '.join(given)}, which is what it gets"
    return None


def home(handler: Handler) -> str:
    """The package that a handler stands in."""
    return str(getattr(handler, "__module__", "")).partition(".")[0]


def is_async(handler: Handler) -> bool:
    """Whether calling it gives a coroutine: it is a function that does, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - as it says


async def call(handler: Handler, *arguments: Any) -> object:
    """Call it: a coroutine function on the loop, a plain one in a thread, so that it holds up neither locks nor others."""
    result = handler(*arguments) if is_async(handler) else await _threaded(partial(handler, *arguments))
    # Also of a plain function around a coroutine function, such as a decorator makes.
    return await result if inspect.isawaitable(result) else result


async def _threaded(work: Callable[[], object]) -> object:
    """Run it in a thread, which nobody can cancel: this returns when it does, whoever has given up waiting."""
    running = asyncio.get_running_loop().run_in_executor(_THREADS, work)
    cancelled = False
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return running.result()


Answering = Callable[[Batch, Claim, object], Coroutine[Any, Any, None]]
"""Writes what a handler returned for a message, if that is an answer; the message is settled with it."""


def each(handler: Handler, answer: Answering) -> Callable[[Batch, Sequence[Claim]], Coroutine[Any, Any, None]]:
    """Hands over one message."""

    async def run(batch: Batch, claims: Sequence[Claim]) -> None:
        await answer(batch, claims[0], await call(handler, Message(claims[0])))

    return run


def together(handler: Handler, answer: Answering) -> Callable[[Batch, Sequence[Claim]], Coroutine[Any, Any, None]]:
    """Hands over a list of messages; a request by itself, for each has an answer of its own."""

    async def run(batch: Batch, claims: Sequence[Claim]) -> None:
        if len(claims) > 1 and any(map(is_request, claims)):
            raise RequestsApartError
        returned = await call(handler, [Message(claim) for claim in claims])
        if len(claims) == 1:
            await answer(batch, claims[0], returned[0] if isinstance(returned, list) and len(returned) == 1 else returned)

    return run
