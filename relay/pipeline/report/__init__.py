"""The report: history as one HTML page that needs nothing else. No JVM."""

from __future__ import annotations

from relay.pipeline.report.job import Rendered, run

__all__ = ["Rendered", "run"]
