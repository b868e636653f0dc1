"""The numbered files of `sql/`."""

from __future__ import annotations

from relay.postgres.schema.sql_files import migrations


def test_migrations_are_numbered_without_gaps_and_each_once() -> None:
    """A gap would be filled later, beneath what databases have; of two with one number only one would run."""
    versions = [migration.version for migration in migrations()]

    assert [*range(1, len(versions) + 1)] == versions
