"""Schemas as earlier versions left them, made with today's program."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from relay.postgres.schema.migrate import migrate
from relay.postgres.schema.sql_files import migrations


def migrate_until(url: str, version: int, monkeypatch: pytest.MonkeyPatch, *, seed: Mapping[str, str] | None = None) -> None:
    """Bring a schema to a version, without the steps after the commit, which take the newest functions."""
    known = [migration for migration in migrations() if migration.version <= version]
    with monkeypatch.context() as patch:
        patch.setattr("relay.postgres.schema.migrate.migrations", lambda: known)
        patch.setattr("relay.postgres.schema.migrate._finish", lambda *_: None)
        migrate(url, seed=seed)
