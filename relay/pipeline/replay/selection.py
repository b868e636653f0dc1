"""Selects messages of the lake's archive by a filter on its columns; the filter determines the job's name. No I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc

from relay.errors import PipelineError
from relay.message import ERASED
from relay.pipeline.source.columns import INSTANT

_GLOBS = ("exchange", "routing_key")
_EXACT = ("ordering_key", "result", "error_code")
TAKEN_OUT = ("cancelled", "superseded", "bundled")
"""Codes of messages that were cancelled, superseded by another message or sent in a bundle.

The SQL function queue_message_find (sql/0008_replay.sql) has the same rule.
"""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Messages that meet all given conditions; None matches any value.

    Messages with a code of TAKEN_OUT are left out, unless a result, a code or ids are given.

    Erased messages are left out too, unless ids are given.

    Args:
        since: archived at this time or later.
        until: archived before this time.
        exchange: the exchange's name; a star matches any characters, every other character matches only itself.
        routing_key: the routing key, matched as `exchange` is.
        ordering_key: exactly this key.
        result: this result.
        error_code: this code.
        ids: one of these ids.

    Raises:
        PipelineError: a time has no time zone.
    """

    since: datetime | None = None
    until: datetime | None = None
    exchange: str | None = None
    routing_key: str | None = None
    ordering_key: str | None = None
    result: str | None = None
    error_code: str | None = None
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(time is not None and time.tzinfo is None for time in (self.since, self.until)):
            raise PipelineError("A time of the filter has no time zone: give it one, such as Z.")

    @property
    def is_everything(self) -> bool:
        """Whether no condition is given."""
        return not any(value is not None and value != () for value in asdict(self).values())

    def expression(self) -> pc.Expression:
        """The filter for Arrow's data sets."""
        tests = [pc.match_like(pc.field(name), _like(glob)) for name in _GLOBS if (glob := getattr(self, name)) is not None]
        tests += [pc.field(name) == value for name in _EXACT if (value := getattr(self, name)) is not None]
        if self.since is not None:
            tests.append(pc.field("archived_at") >= pa.scalar(self.since, INSTANT))
        if self.until is not None:
            tests.append(pc.field("archived_at") < pa.scalar(self.until, INSTANT))
        if self.ids:
            tests.append(pc.field("id").isin([each.lower() for each in self.ids]))
        else:
            # If ids are given, erased messages are selected too, so that the job can report why they are not sent.
            tests.append(pc.field("options").is_null() | (pc.field("options") != ERASED))
        if self.result is None and self.error_code is None and not self.ids:
            tests.append(~pc.field("error_code").isin(TAKEN_OUT))
        return reduce(and_, tests, pc.scalar(True))  # noqa: FBT003 - a value

    def days(self, days: Iterable[date]) -> list[date]:
        """The days of the lake that may have such messages."""
        first = self.since.astimezone(UTC).date() if self.since is not None else date.min
        last = self.until.astimezone(UTC).date() if self.until is not None else date.max
        return [day for day in days if first <= day <= last]

    def job(self, *, same_id: bool) -> str:
        """The default name of the replay job for this filter; the same filter always gives the same name."""
        given = {name: value for name, value in asdict(self).items() if value is not None and value != ()}
        given.update({name: time.astimezone(UTC).isoformat() for name, time in given.items() if isinstance(time, datetime)})
        given["ids"] = sorted({each.lower() for each in self.ids})
        text = json.dumps({**given, "same_id": same_id}, sort_keys=True)
        return f"lake-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _like(glob: str) -> str:
    """The glob as a LIKE pattern, by the same rule as the SQL function queue_message_find."""
    for special in ("\\", "%", "_"):
        glob = glob.replace(special, "\\" + special)
    return glob.replace("*", "%")
