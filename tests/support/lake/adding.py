"""What the tests of `export --again` share: the days, what a verification says, and a connection that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime

import pytest
from deltalake import DeltaTable

from relay.errors import PipelineError
from relay.pipeline.export import again
from relay.pipeline.lake import epoch
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database
from relay.pipeline.verify import job as verify

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
DAY, NEXT = date(2024, 5, 1), date(2024, 5, 2)
AddAgain = Callable[..., again.Added]


def verified(lake: Lake, database: Database) -> set[str]:
    """What a verification says of partitions that are not verified, in words."""
    found = verify.run(lake=lake, database=database, say=lambda _: None).partitions
    return {one.state for one in found} - {"verified", "unchanged"}


@contextmanager
def faults(monkeypatch: pytest.MonkeyPatch, lake: Lake, where: str) -> Iterator[None]:
    """The connection fails before a commit, or after it."""
    version, settle = lake.opened(TABLE).version(), epoch.settle

    def begin(*_: object) -> int:
        raise PipelineError("not today")

    def settled(database: Database, handle: DeltaTable, known: epoch.LakeEpoch) -> epoch.LakeEpoch:
        if handle.version() > version:
            raise PipelineError("not today")
        return settle(database, handle, known)

    with monkeypatch.context() as patched:
        patched.setattr(epoch, "begin", begin) if where == "before" else patched.setattr(epoch, "settle", settled)
        yield
