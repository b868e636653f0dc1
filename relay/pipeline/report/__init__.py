"""The report: history as one self-contained HTML page. Without Java, one process reads the archive."""

from __future__ import annotations

from relay.pipeline.report.job import Rendered, run

__all__ = ["Rendered", "run"]
