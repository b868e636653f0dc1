"""Reads the files of this demo's ledger, and the lake in the way in which any other program would."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from relay.demo.ledger import LedgerError

ARCHIVED: Final = "archived.jsonl"
"""Every row that was ever archived, recorded before any row was dropped."""
LEFT: Final = "left.jsonl"
"""Every row that PostgreSQL has at the end."""
RECEIVED: Final = "received.jsonl"
REPLAYED: Final = "replayed.jsonl"
STATS: Final = "stats.jsonl"
OUTCOME: Final = "outcome.json"
"""The results of the commands."""
LAKE: Final = "lake"

COLUMNS: Final = (
    "xid", "seq", "id", "exchange", "routing_key", "content", "body", "options", "ordering_key", "available_at", "expires_at", "created_at",
    "attempts", "replay_of", "result", "error_code", "error_detail", "handled_by", "claimed_at", "published_at", "confirmed_at",
    "archived_at", "archived_xid",
)  # fmt: skip
GRAINS: Final = ("window", "hour", "day")
RESULTS: Final = ("success", "discarded", "rejected", "failed", "lock_expired")

Identity = tuple[int, int]
Counts = dict[tuple[str, str, str], int]
"""Messages by day, exchange and result."""


class Row(NamedTuple):
    """One row of the archive, in PostgreSQL or in the lake."""

    identity: Identity
    id: str
    exchange: str
    result: str
    replay_of: str | None
    archived_at: int
    """Microseconds since 1970."""
    digest: str

    @property
    def day(self) -> date:
        """The UTC day."""
        return datetime.fromtimestamp(self.archived_at // 1_000_000, UTC).date()

    @property
    def is_daily(self) -> bool:
        """Whether the row is in a day's partition, which retention drops as a whole."""
        return self.result in {"success", "discarded"}


class Delivery(NamedTuple):
    """One delivery, as the consumer recorded it."""

    id: str
    replay_of: str | None
    digest: str


class Ledger(NamedTuple):
    """Everything that the summary needs."""

    archived: list[Row]
    left: list[Row]
    lake: list[Row]
    deliveries: list[Delivery]
    replayed: dict[Identity, str]
    """Archived row → id of the new message."""
    stats: dict[str, Counts]
    """Counts by grain: PostgreSQL's under `window` and so on, the lake's under `lake window` and so on."""
    outcome: dict[str, Any]


def digest(row: Mapping[str, Any]) -> str:
    """One digest over all columns of a row; times are in microseconds."""
    values = [row[name].hex() if isinstance(row[name], bytes) else row[name] for name in COLUMNS]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def identity(row: Mapping[str, Any]) -> Identity:
    """The identity of a row; the id is not enough, because it may occur twice."""
    return int(row["xid"]), int(row["seq"])


def read(folder: Path) -> Ledger:
    """Read a ledger with its lake.

    Raises:
        LedgerError: a file or table is missing or damaged; the message names it.
    """
    try:
        return Ledger(
            archived=[_row(line) for line in _lines(folder / ARCHIVED)],
            left=[_row(line) for line in _lines(folder / LEFT)],
            lake=list(lake_rows(folder / LAKE)),
            deliveries=[Delivery(line["id"], line["replay_of"], line["digest"]) for line in _lines(folder / RECEIVED)],
            replayed={identity(line): line["id"] for line in _lines(folder / REPLAYED)},
            stats=_stats(folder),
            outcome=json.loads((folder / OUTCOME).read_text(encoding="utf-8")),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            f"{folder} is not a whole ledger ({error}); name a folder that `relay pipeline demo --folder FOLDER` has written."
        ) from error


def lake_rows(lake: Path) -> Iterator[Row]:
    """The rows of the lake's archive, read with deltalake and Arrow alone; no rows if there is no table."""
    for line in _table(lake, "archive", COLUMNS):
        yield _row({**line, "digest": digest(line)})


def _table(lake: Path, name: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    import pyarrow as pa  # noqa: PLC0415 - takes a second, which --help does not need
    from deltalake import DeltaTable  # noqa: PLC0415 - as above
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 - as above

    if not DeltaTable.is_deltatable(str(lake / name)):
        return []
    try:
        found = DeltaTable(str(lake / name)).to_pyarrow_dataset().to_table(columns=list(columns))
    except DeltaError as error:
        raise ValueError(f"{lake / name}: {error}") from error
    for place, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            found = found.set_column(place, field.name, found.column(place).cast(pa.int64()))
    return found.to_pylist()  # type: ignore[no-any-return]


def _stats(folder: Path) -> dict[str, Counts]:
    found: dict[str, Counts] = {name: {} for grain in GRAINS for name in (grain, f"lake {grain}")}
    for line in _lines(folder / STATS):
        _add(found[line["grain"]], line["day"], line)
    names = ("published", *RESULTS[1:])
    for grain in GRAINS:
        for line in _table(folder / LAKE, f"stats_{grain}", ("start", "exchange", *names)):
            day = datetime.fromtimestamp(line["start"] // 1_000_000, UTC).date().isoformat()
            _add(found[f"lake {grain}"], day, {**line, "success": line["published"]})
    return found


def _add(counts: Counts, day: str, line: Mapping[str, Any]) -> None:
    for result in RESULTS:
        if number := line[result]:
            key = (day, line["exchange"], result)
            counts[key] = counts.get(key, 0) + number


def _row(line: Mapping[str, Any]) -> Row:
    return Row(
        identity(line), line["id"], line["exchange"], line["result"], line["replay_of"], int(line["archived_at"]), line["digest"]
    )  # fmt: skip


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for text in file:
            yield json.loads(text)
