"""The job `report`: collects the data, renders the page, and replaces the file in one step."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from relay.errors import PipelineError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.lake.target_table import refuse_foreign
from relay.pipeline.report import data
from relay.pipeline.report.page import render
from relay.pipeline.source.database import Database
from relay.pipeline.spark.items import Start


@dataclass(frozen=True)
class Rendered:
    """A page that was written, and its main figures; `messages` is the number of settled messages that the metrics count in the span."""

    path: str
    bytes: int
    since: datetime
    until: datetime
    messages: int
    dead: int
    unacknowledged: int
    differing: int


def run(
    *,
    lake: Lake,
    database: Database,
    say: Callable[[str], None],
    path: str | Path,
    spark: Start | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    now: datetime | None = None,
) -> Rendered:
    """Write the report on a span (by default the last seven days) as one HTML file; an existing file is replaced.

    `spark` returns the session whose tasks read a large archive, and starts it if needed. If None, this process reads the archive.

    Raises:
        DamagedError: a file of the archive is missing or damaged.
        LakeError: this process cannot read the lake.
        UnreachableError: PostgreSQL or the object store does not answer.
        PipelineError: the span is empty, PostgreSQL refused a statement, Spark could not run the scan, the file cannot be written, or the
            lake is another archive's.
    """
    clock = now or datetime.now(UTC)
    refuse_foreign(lake, database)
    report = data.collect(lake, database, data.span_of(since, until, now=clock), now=clock, say=say, spark=spark)
    say("drawing")
    page = render(report).encode()
    _write(Path(path), page)
    counts = report.numbers.total.counts
    return Rendered(
        str(Path(path).absolute()), len(page), report.span.since, report.span.until, counts.settled, counts.dead,
        report.unacknowledged.total, len(report.quality.of("differs")),
    )  # fmt: skip


def _write(path: Path, page: bytes) -> None:
    """Replace the file in one step, so that no reader sees an incomplete file."""
    part: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            part = Path(file.name)
            file.write(page)
        part.chmod(0o666 & ~_umask())
        part.replace(path)
    except OSError as error:
        if part is not None:
            part.unlink(missing_ok=True)
        raise PipelineError(
            f"The report cannot be written to {path} ({error.strerror}): name a file in a folder that can be written to."
        ) from error


def _umask() -> int:
    """The permissions that this process removes from new files; the umask can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
