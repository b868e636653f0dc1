"""How far the export has got, as PostgreSQL is told for its lag."""

from __future__ import annotations

from relay.pipeline.database import Database


def note(database: Database, end: int) -> bool:
    """Tell PostgreSQL that everything below transaction `end` is in the lake; False where it is a standby, which cannot be told.

    Raises:
        UnreachableError: it does not answer.
        PipelineError: it refused, as where the login lacks the permission.
    """
    return bool(database.fetch("note_progress", {"exported": str(end)}))
