"""The process beside a relay in which large contents are checked: what one of them may take ends with this process, and no message waits.

A request is a line of JSON and a content; for each schema the answer is a line of JSON: null, or how the content breaks it.
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
"""Exit code where a content asks for more memory than it may take."""
_DIE_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_compiled = lru_cache(maxsize=64)(compiled)
"""Schemas of the last contents; a process with too little memory for them is followed by another one."""
_NICENESS: Final = 10
"""The relay goes first where both want a processor."""


def main() -> None:
    """Answer requests until the relay, whose process id is the argument, closes the pipe or is gone."""
    _settle_in()
    _end_with(int(sys.argv[1]))
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
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]  # that of the machine's owner, which may not be raised
    resource.setrlimit(resource.RLIMIT_DATA, (memory if hard == resource.RLIM_INFINITY else min(memory, hard), hard))
    content = source.read(size)
    # Ends this process by SIGPROF, wherever it is by then: the library looks at no signal.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    for violation in violations(content, schemas):
        answers.write(json.dumps(violation).encode() + b"\n")
        answers.flush()
    signal.setitimer(signal.ITIMER_PROF, 0)


def _settle_in() -> None:
    """Step back behind the relay, and be the first to go where memory is short."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _end_with(relay: int) -> None:
    """End when the relay does, also while a content is checked: a relay that is killed closes a pipe that nobody reads by then."""
    with suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != relay:  # it went before that
        os._exit(1)


if __name__ == "__main__":
    main()
