"""A relay that notes where it is each time some of its CPU is used up: `python -m tests.bench.speed.sampled FILE run`.

SIGUSR1 has it write to the file how often it was in each stage so far.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import relay
from relay.cli.main import main as relay_main

SECONDS = 0.001
"""Of CPU from one look to the next; the kernel makes at least one of its ticks of it."""
CLAIM, WRITE, CONFIRM, DECIDE, SETTLE = "claim", "encode and write", "read confirms", "decide and tell", "settle"
CHORES, LOOP = "chores", "event loop"
STAGES = (CLAIM, WRITE, CONFIRM, DECIDE, SETTLE, CHORES, LOOP)
_PACKAGE = f"{Path(relay.__file__).parent}/"
_FUNCTIONS = {
    "acked": CONFIRM, "nacked": CONFIRM, "returned": CONFIRM, "replied": CONFIRM, "data_received": CONFIRM, "portions": CONFIRM,
    "write": WRITE, "step": WRITE, "submit": WRITE, "pump": WRITE, "publish": WRITE, "encode": WRITE,
    "claim": CLAIM, "_next_batch": CLAIM,
    "archive": SETTLE, "release": SETTLE, "settle": SETTLE,
    "_publish_and_settle": DECIDE, "_on_settled": DECIDE,
}  # fmt: skip
"""The innermost function of the relay with such a name tells the stage; what it calls belongs to it."""
_FILES = {
    "maintenance/lock_renewer.py": CHORES, "maintenance/maintenance.py": CHORES, "maintenance/periodic_tasks.py": CHORES,
    "observability/health.py": CHORES, "postgres/wakeup.py": CHORES, "engine/settle_events.py": DECIDE, "observability/metrics.py": DECIDE,
}  # fmt: skip
"""The same by file; it goes before the name."""


def _main() -> None:
    file, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2:]
    found = Counter[str]()

    def note(_: int, frame: FrameType | None) -> None:
        found[_stage_of(frame)] += 1

    def tell(*_: Any) -> None:
        whole = file.with_suffix(".new")
        whole.write_text(json.dumps(found))
        whole.rename(file)

    signal.signal(signal.SIGPROF, note)
    signal.signal(signal.SIGUSR1, tell)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)
    relay_main()


def _stage_of(frame: FrameType | None) -> str:
    for file, function in _ours(frame):
        if stage := _FILES.get(file) or _FUNCTIONS.get(function):
            return stage
    return LOOP


def _ours(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """File and function of the relay's frames, innermost first: an awaiting frame follows the one it awaits."""
    while frame:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            yield frame.f_code.co_filename.removeprefix(_PACKAGE), frame.f_code.co_name
        frame = frame.f_back


if __name__ == "__main__":
    _main()
