"""Ties PostgreSQL to its lake by an epoch. Each commit gives both the same new epoch, so a copy or an old backup of either is detected.

Before a commit PostgreSQL records the new epoch as pending. The commit carries it together with the offset. The next check makes it
PostgreSQL's current epoch. If a job is killed in between, the next check completes its work.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from deltalake import DeltaTable

from relay.errors import ConflictError, LakeError, PipelineError
from relay.pipeline.lake.delta_lake import Lake
from relay.pipeline.source.columns import TABLE
from relay.pipeline.source.database import Database

OFFSET = "outbox-relay/export"
"""Application id of the exports' offsets: the transaction below which everything is in the lake."""
EPOCH = "outbox-relay/epoch"
"""Application id of the epochs."""
_BITS = 63
_LOOKS = 10
_TELL = "correct RELAY_LAKE_URL or RELAY_PIPELINE_DATABASE_URL"
_ADOPT = "`relay pipeline export --adopt` lets the lake follow this server"
_ANEW = "`relay pipeline export --new-lake` begins another one"
_SENTENCES = {
    "gone": f"PostgreSQL exports to the lake {{known}}, and there is none in {{url}}: put it back, or {_TELL}; {_ANEW}.",
    "other": f"PostgreSQL exports to the lake {{known}}, and in {{url}} is the lake {{found}}: {_TELL}; {_ADOPT}.",
    "older": f"The lake in {{url}} is an older copy than PostgreSQL last saw: put the newer one back; {_ADOPT}.",
    "strange": (
        "The lake in {url} has commits that this server knows nothing of. One of two servers is a copy, or was restored from a backup, or"
        f" two copies of the lake are in use: stop one of them, and {_TELL}; {_ADOPT}."
    ),
    "there": f"There is a lake in {{url}} already: name another RELAY_LAKE_URL for a new one; {_ADOPT}.",
}


@dataclass(frozen=True)
class LakeEpoch:
    """What PostgreSQL knows of its lake, from `queue_message_export_position`; everything below the transaction `offset` is exported."""

    lake: str | None = None
    epoch: int | None = None
    pending: tuple[int, ...] = ()
    offset: int = 0
    version: int = 0

    @property
    def used(self) -> bool:
        """Whether anything was exported."""
        return self.epoch is not None or self.offset > 0


def read(database: Database) -> LakeEpoch:
    """What PostgreSQL knows of its lake (the link); raises the same errors as `Database.fetch`."""
    return next((LakeEpoch(lake, epoch, tuple(pending), *rest) for lake, epoch, pending, *rest in database.fetch("read_link")), LakeEpoch())


def both(lake: Lake, database: Database) -> tuple[DeltaTable | None, LakeEpoch]:
    """The lake's table (None if there is no table) and PostgreSQL's link, both read at one moment.

    Raises:
        ConflictError: another export commits batch after batch.
        LakeError, UnreachableError, PipelineError: as for `Lake.open` and `Database.fetch`.
    """
    before = read(database)
    for _ in range(_LOOKS):
        handle, after = _opened(lake, database), read(database)
        if (before.lake, before.epoch, before.pending) == (after.lake, after.epoch, after.pending):
            return handle, after
        before = after
    raise ConflictError("Another export is at work: the next run continues from there.")


def _opened(lake: Lake, database: Database) -> DeltaTable | None:
    try:
        return lake.open(TABLE)
    except LakeError as error:
        raise distrust(database, error) from error


def offset_of(handle: DeltaTable) -> int:
    """The transaction below which everything is in the lake; 0 before the first commit."""
    return handle.transaction_version(OFFSET) or 0


def epoch_of(handle: DeltaTable) -> int | None:
    """The epoch of the lake's last commit; None before the first commit with an epoch."""
    return handle.transaction_version(EPOCH)


def contradiction(link: LakeEpoch, handle: DeltaTable | None) -> str | None:
    """Why a lake is not the one that PostgreSQL knows; None if it may be that one.

    `handle` is None if the lake has no table.
    """
    if handle is None:
        return "gone" if link.used else None
    lake, epoch = str(handle.metadata().id), epoch_of(handle)
    if link.used and link.lake not in {None, lake}:
        return "other"
    if epoch is None and link.epoch is None:  # neither side has recorded an epoch
        return "older" if offset_of(handle) < link.offset else None
    if epoch is not None and epoch in {link.epoch, *link.pending}:
        return None
    return "older" if link.epoch is not None and handle.version() < link.version else "strange"


def refusal(why: str, link: LakeEpoch, url: str, handle: DeltaTable | None) -> PipelineError:
    """The error about a contradiction."""
    found = "none" if handle is None else handle.metadata().id
    return PipelineError(_SENTENCES[why].format(known=link.lake or "of an earlier export", found=found, url=url))


def settle(database: Database, handle: DeltaTable, link: LakeEpoch) -> LakeEpoch:
    """If the lake's last commit has a pending epoch, make it PostgreSQL's current epoch; return the link.

    Raises the same errors as `Database.fetch`.
    """
    if (epoch := epoch_of(handle)) not in link.pending:
        return link
    offset = offset_of(handle)
    database.fetch("commit_export", {**_named(handle), "exported": str(offset)})
    return replace(link, epoch=epoch, pending=(), offset=offset, version=handle.version())


def distrust(database: Database, error: PipelineError) -> PipelineError:
    """Record in PostgreSQL what is wrong with the lake, so that nothing is dropped; return the error."""
    with suppress(PipelineError):  # on a standby, or with a read-only login, nothing can be recorded; the error itself matters more
        database.fetch("note_unseen", {"problem": str(error)})
    return error


def begin(database: Database, handle: DeltaTable, epoch: int | None) -> int:
    """A new epoch for the next commit through this handle; `epoch` is the one that PostgreSQL should still have.

    Raises:
        ConflictError: PostgreSQL already has another epoch, because another export was faster.
    """
    following = secrets.randbits(_BITS)
    values = {"lake": str(handle.metadata().id), "epoch": epoch, "next": following}
    [[begun]] = database.fetch("begin_export", values)
    if not begun:
        raise ConflictError("Another export was faster: nothing of this batch is in the lake; the next run continues from there.")
    return following


def follow(database: Database, handle: DeltaTable) -> None:
    """Make PostgreSQL export to this lake from now on; nothing in the lake counts as verified or seen yet."""
    database.fetch("follow_lake", {"lake": str(handle.metadata().id)})


def seen(database: Database, handle: DeltaTable, began: datetime, rows: Mapping[str, int], damage: Mapping[str, str]) -> bool:
    """Record in PostgreSQL what a check of this version of the lake found, by partition; `began` is the server's time before the check.

    PostgreSQL records nothing, and the function returns False, if an export has committed meanwhile or a newer check has ended earlier.
    """
    names = sorted({*rows, *damage})
    found = {"partitions": names, "rows": [rows.get(name, 0) for name in names], "damage": [damage.get(name) for name in names]}
    [[known]] = database.fetch("note_seen", {**_named(handle), "began": began, **found})
    return bool(known)


def _named(handle: DeltaTable) -> dict[str, object]:
    return {"lake": str(handle.metadata().id), "epoch": epoch_of(handle), "version": handle.version()}
