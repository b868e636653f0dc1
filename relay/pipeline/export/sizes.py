"""The sizes of an export's commits, statements and files."""

from __future__ import annotations

from dataclasses import dataclass

from relay.pipeline.export.distribute import CopiedRange
from relay.pipeline.lake.parquet_writer import FULL
from relay.pipeline.source.ranges import STEP

FIRST_ROWS = 2_000_000
"""The number of rows of the first commit, when the size of a row is not known yet."""
BOUNDS = 100_000, 20_000_000
"""The least and the greatest number of rows of a later commit.

With fewer rows, the cost of a commit per row is too high. With more rows, a killed export loses too much work.
"""


@dataclass(frozen=True)
class Sizes:
    """The sizes that an export aims at.

    Args:
        batch_rows: rows of one commit, by default as many as fill one file per task. A transaction is never split, even if it has more
            rows.
        cut_rows: rows that one statement reads. A statement of this size holds a snapshot for some seconds.
        full: a file is finished as soon as it has this many bytes.
    """

    batch_rows: int | None = None
    cut_rows: int = 500_000
    full: int = FULL

    @property
    def first_rows(self) -> int:
        """Rows of the first commit, a multiple of STEP."""
        return _steps(self.batch_rows or FIRST_ROWS)

    def next_rows(self, last: CopiedRange, tasks: int) -> int:
        """Rows of the next commit, a multiple of STEP: enough to fill `tasks` files, if they are as large as the last commit's."""
        if self.batch_rows or not last.rows:
            return self.first_rows
        least, most = BOUNDS
        return _steps(min(max(self.full * tasks * last.rows // max(last.bytes, 1), least), most))


def _steps(rows: int) -> int:
    return max(STEP, rows // STEP * STEP)
