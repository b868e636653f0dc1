"""Loads the application's handler from `module:function` and calls it with one message or a batch."""

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
"""`async def handle(message)`; a plain function runs in a thread. With batches the argument is a list of messages; with a transaction the
connection is a second argument."""


_THREADS = ThreadPoolExecutor(max_workers=1000, thread_name_prefix="handler")
"""Threads for plain handlers, started as needed; `max_workers` is the largest concurrency."""


class RequestsApartError(TransientAttemptError):
    """A batch contains a request, so each of its messages is handled alone."""


def find(name: str, *, transaction: bool = False) -> Handler:
    """The handler named by `module:function`; the current folder is searched too.

    Raises:
        SettingsError: no usable handler has this name.
    """
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise SettingsError(f"{name!r} names no handler: write it as module:function.")
    handler = getattr(_import_module(module), attribute, None)
    if not callable(handler):
        raise SettingsError(f"The module {module!r} has no function {attribute!r}.")
    if why := _why_unusable(handler, transaction=transaction):
        raise SettingsError(f"{name!r} {why}.")
    return handler  # type: ignore[no-any-return]


def _import_module(module: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingsError(f"The module {module!r} cannot be imported ({error}): correct the name, or run in its folder.") from error
    except Exception as error:  # any error of the module's own code
        raise SettingsError(f"The module {module!r} fails as it is imported ({type(error).__name__}: {error}): correct it.") from error


def _why_unusable(handler: Handler, *, transaction: bool) -> str | None:
    """Why this handler cannot handle messages, as the end of a sentence."""
    if inspect.isclass(handler):
        return "is a class, so each message would only make an instance of it: name a function, or an instance with __call__"
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        return "is a generator, which does nothing when it is called: write a function without yield"
    if transaction and not is_async(handler):
        return "must be async def to work in a transaction: it gets an async connection"
    given = ("message", "connection") if transaction else ("message",)
    try:
        inspect.signature(handler).bind(*given)
    except ValueError:
        # Some callables written in C have no signature.
        return None
    except TypeError:
        return f"cannot be called with {' and '.join(given)}, which is what it gets"
    return None


def package_of(handler: Handler) -> str:
    """The handler's top-level package."""
    return str(getattr(handler, "__module__", "")).partition(".")[0]


def is_async(handler: Handler) -> bool:
    """Whether the handler is a coroutine function, or an object whose `__call__` is a coroutine function."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004 - as it says


async def call(handler: Handler, *arguments: Any) -> object:
    """Call a coroutine function on the event loop, and a plain function in a thread, where it delays no renewal and no other handler."""
    result = handler(*arguments) if is_async(handler) else await _run_in_thread(partial(handler, *arguments))
    # A plain function may return a coroutine, for example if a decorator made the function.
    return await result if inspect.isawaitable(result) else result


async def _run_in_thread(work: Callable[[], object]) -> object:
    """Run the work in a thread. A thread cannot be cancelled, so a cancelled caller still waits for its end."""
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


WriteAnswer = Callable[[Batch, Claim, object], Coroutine[Any, Any, None]]
"""Writes a handler's result, if the result is an answer, and settles the message in the same transaction."""


def one_by_one(handler: Handler, write_answer: WriteAnswer) -> Callable[[Batch, Sequence[Claim]], Coroutine[Any, Any, None]]:
    """Return a function that calls the handler with one message."""

    async def run(batch: Batch, claims: Sequence[Claim]) -> None:
        await write_answer(batch, claims[0], await call(handler, Message(claims[0])))

    return run


def in_batches(handler: Handler, write_answer: WriteAnswer) -> Callable[[Batch, Sequence[Claim]], Coroutine[Any, Any, None]]:
    """Return a function that calls the handler with a list of messages. A request is handled alone, because it needs its own answer."""

    async def run(batch: Batch, claims: Sequence[Claim]) -> None:
        if len(claims) > 1 and any(map(is_request, claims)):
            raise RequestsApartError
        returned = await call(handler, [Message(claim) for claim in claims])
        if len(claims) == 1:
            await write_answer(batch, claims[0], returned[0] if isinstance(returned, list) and len(returned) == 1 else returned)

    return run
