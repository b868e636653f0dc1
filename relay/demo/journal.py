"""One file of a ledger, while it is written."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Journal:
    """Writes JSON objects, one a line; each is with the operating system before `note` returns, so it outlives this process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def note(self, **line: Any) -> None:
        """Write one line."""
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._file.close()
