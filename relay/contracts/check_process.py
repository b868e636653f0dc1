"""The child process that checks large contents. A check that takes too much time or memory ends only this process, not the relay.

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
"""The option PR_SET_PDEATHSIG of prctl(2)."""
_compiled = lru_cache(maxsize=64)(compiled)
"""Caches the schemas that were used last. If memory becomes short, a new process replaces this process."""
_NICENESS: Final = 10
"""The niceness of this process, so that the relay has priority on the processor."""


def main() -> None:
    """Answer requests until the relay closes the pipe or ends; the argument is the relay's process id."""
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
    """For each of these schemas, the content's violation or None."""
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
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]  # an administrator's limit, which this process may not raise
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
    """Exit with the relay, even during a check.

    During a check this process does not read the pipe, and would not notice that a killed relay has closed it.
    """
    with suppress(OSError, AttributeError):  # only Linux has prctl
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != relay:  # the relay has already ended
        os._exit(1)


if __name__ == "__main__":
    main()
