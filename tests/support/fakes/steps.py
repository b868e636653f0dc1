"""Counts steps of the interpreter: what a call costs, whatever the machine is doing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType, ModuleType
from typing import Any


def steps(call: Callable[[], object], *modules: ModuleType) -> int:
    """Steps of the interpreter that a call takes in the code of these modules."""
    files, count = {module.__file__ for module in modules}, 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        code: CodeType = frame.f_code
        if code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
