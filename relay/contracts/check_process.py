"""The child process that checks large contents: a check that takes too long or too much memory ends it, and no other message waits.

A request is a line of JSON and a content. The response is a line of JSON for each schema: null, or the violation.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final

from relay.contracts.schema import compiled, parsed
from relay.contracts.violation import Violation

NO_MEMORY: Final = 77
"""Exit code when a check exceeds its memory limit."""
_DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_compiled = lru_cache(maxsize=64)(compiled)
"""Keeps the schemas used last; if memory becomes short, a new process replaces this one."""
_NICENESS: Final = 10
"""The relay has priority on the processor."""


def main() -> None:
    """Answer requests until the relay closes the pipe or ends; its process id is the argument."""
    _lower_priority()
    _exit_with_parent(int(sys.argv[1]))
    try:
        while line := sys.stdin.buffer.readline():
            _answer(json.loads(line), sys.stdin.buffer, sys.stdout.buffer)
    except MemoryError:
        os._exit(NO_MEMORY)
    except BrokenPipeError:
        os._exit(1)


def violations(content: bytes, schemas: Sequence[str]) -> Iterator[Violation | None]:
    """How a content breaks each of these schemas."""
    value = parsed(content)
    for text in schemas:
        if type(value) is Violation:
            yield value
            continue
        schema = _compiled(text)
        yield None if schema.valid(value) else schema.explain(value)


def _answer(request: dict[str, object], source: BinaryIO, answers: BinaryIO) -> None:
    size, seconds, memory, schemas = (request[name] for name in ("size", "seconds", "memory", "schemas"))
    assert isinstance(size, int)
    assert isinstance(seconds, int)
    assert isinstance(memory, int)
    assert isinstance(schemas, list)
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]  # an administrator's limit, which may not be raised
    resource.setrlimit(resource.RLIMIT_DATA, (memory if hard == resource.RLIM_INFINITY else min(memory, hard), hard))
    content = source.read(size)
    # SIGPROF ends this process at any point: the library does not check for signals.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    for violation in violations(content, schemas):
        answers.write(json.dumps(violation).encode() + b"\n")
        answers.flush()
    signal.setitimer(signal.ITIMER_PROF, 0)


def _lower_priority() -> None:
    """Run at a lower priority than the relay, and be the first process that the kernel kills when memory is short."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _exit_with_parent(relay: int) -> None:
    """Exit with the relay, even during a check: at that time this process does not read the pipe that a killed relay closes."""
    with suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != relay:  # the relay has ended already
        os._exit(1)


if __name__ == "__main__":
    main()
