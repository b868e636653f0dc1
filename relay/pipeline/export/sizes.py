"""How much one commit, one statement and one file of an export have."""

from __future__ import annotations

from dataclasses import dataclass

from relay.pipeline.export.distribute import CopiedRange
from relay.pipeline.lake.parquet_writer import FULL
from relay.pipeline.source.ranges import STEP

FIRST_ROWS = 2_000_000
"""Rows of the first commit, when nothing is known of their size."""
BOUNDS = 100_000, 20_000_000
"""Rows of a later commit: fewer cost too much for each, and of more a killed export loses too much."""


@dataclass(frozen=True)
class Sizes:
    """What an export aims at.

    Args:
        batch_rows: rows of one commit, by default as many as fill a file in each task; a larger transaction is one commit all the same.
        cut_rows: rows that one statement reads, which holds a snapshot for some seconds.
        full: from how many bytes on a file is finished.
    """

    batch_rows: int | None = None
    cut_rows: int = 500_000
    full: int = FULL

    @property
    def first_rows(self) -> int:
        """Rows of the first commit, a multiple of STEP."""
        return _steps(self.batch_rows or FIRST_ROWS)

    def next_rows(self, last: CopiedRange, tasks: int) -> int:
        """Rows of the next commit, a multiple of STEP: `tasks` full files of them, if they are as large as the rows of the last commit."""
        if self.batch_rows or not last.rows:
            return self.first_rows
        least, most = BOUNDS
        return _steps(min(max(self.full * tasks * last.rows // max(last.bytes, 1), least), most))


def _steps(rows: int) -> int:
    return max(STEP, rows // STEP * STEP)
