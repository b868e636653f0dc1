"""The values of a report: `data` collects them, `plots` draws them, `page` writes them. No contents of messages, no credentials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Literal

from relay.pipeline.lake.assessment import LakeRecord
from relay.pipeline.metrics.lake_state import TableSize

Verdict = Literal["verified", "differs", "unverified", "open"]
"""The result of comparing a partition: equal, not equal, or not compared yet. Open days still receive messages and are compared later."""

DEAD = ("rejected", "failed", "lock_expired")
"""Results of messages that were not sent and need attention."""


@dataclass(frozen=True, slots=True)
class ReportSpan:
    """The time that a report covers, in UTC: `since` is included and `until` excluded, and each is the start of a step."""

    since: datetime
    until: datetime
    step: timedelta

    @property
    def before(self) -> ReportSpan:
        """The span of the same length that ends where this one begins."""
        return ReportSpan(self.since - (self.until - self.since), self.since, self.step)

    @property
    def seconds(self) -> float:
        """Length of the whole span."""
        return (self.until - self.since).total_seconds()


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a histogram, in ms; each differs from the exact value by at most the width of one bucket."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Settled messages by result; `attempts` counts all their attempts, `within_target` the successes within the target latency."""

    published: int = 0
    discarded: int = 0
    rejected: int = 0
    failed: int = 0
    lock_expired: int = 0
    attempts: int = 0
    within_target: int = 0

    @property
    def dead(self) -> int:
        """Messages that ended without being sent and need attention."""
        return self.rejected + self.failed + self.lock_expired

    @property
    def settled(self) -> int:
        """All settled messages."""
        return self.published + self.discarded + self.dead

    @property
    def tries_each(self) -> float:
        """Average number of attempts per message."""
        return self.attempts / self.settled if self.settled else 0.0

    @property
    def on_time(self) -> float | None:
        """Share of the published messages that were confirmed within the target; None if no message was published."""
        return self.within_target / self.published if self.published else None


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts with the latencies of the successes; a latency that was not measured is None.

    `wait` ends with the claim, `publish` with the write to the broker, `confirm` with the broker's confirm. Each latency begins where the
    previous one ends.
    """

    counts: Counts
    wait: Latency | None = None
    publish: Latency | None = None
    confirm: Latency | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of the span; steps in which nothing was settled are left out."""

    start: datetime
    figures: Figures


@dataclass(frozen=True, slots=True)
class ExchangeFigures:
    """One exchange over the span; `hours` counts its settled messages by hour of the day, in UTC."""

    name: str
    figures: Figures
    hours: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead messages of one exchange and code; `steps` counts them by the start of each step that has any."""

    exchange: str
    code: str | None
    messages: int
    steps: Mapping[datetime, int]


@dataclass(frozen=True, slots=True)
class RoutingKey:
    """A routing key of an exchange, with its dead messages; `*other*` represents all keys that the metrics of a day do not name."""

    exchange: str
    key: str
    settled: int
    dead: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """What the metrics counted within a span; everything is empty if nothing was counted."""

    total: Figures = Figures(Counts())
    targets_ms: tuple[int, ...] = ()
    """The targets with which the metrics were computed; more than one if the target was changed within the span."""
    moments: tuple[Moment, ...] = ()
    exchanges: tuple[ExchangeFigures, ...] = ()
    hours: Mapping[datetime, int] = field(default_factory=dict)
    """Settled messages by hour; hours without any are left out."""
    dead: tuple[DeadGroup, ...] = ()
    """Groups with the most messages come first."""
    keys: tuple[RoutingKey, ...] = ()
    """Keys with the most dead messages come first."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Dead messages of one result and code, with the latest of them as an example."""

    result: str
    code: str | None
    messages: int
    id: str
    exchange: str
    routing_key: str
    detail: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class SlowKey:
    """A key whose successes took longest from due until confirmed; `kind` says whether it is a routing key or an ordering key."""

    kind: Literal["routing", "ordering"]
    key: str
    messages: int
    mean_ms: float
    longest_ms: float


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A dead message that is not acknowledged."""

    id: str
    exchange: str
    routing_key: str
    ordering_key: str | None
    result: str
    code: str | None
    detail: str | None
    attempts: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """Dead messages in PostgreSQL that are not acknowledged, from any time: their number, and the newest of them."""

    total: int
    oldest: datetime | None
    newest: tuple[DeadMessage, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of the archive in PostgreSQL, and the result of comparing it with the lake; `day` is None for the dead messages."""

    name: str
    day: date | None
    verdict: Verdict
    rows: int | None
    verified_at: datetime | None
    difference: str | None = None


@dataclass(frozen=True, slots=True)
class Quality:
    """How far the numbers can be trusted: what was compared, and with what result."""

    archive_rows: int
    """Rows of the lake's archive in the span."""
    first: date | None
    """First day of the whole lake, in UTC; None for an empty lake."""
    last: date | None
    lake: LakeRecord
    """What PostgreSQL knows about the lake, and the export's lag."""
    partitions: tuple[Partition, ...]

    def of(self, verdict: Verdict) -> Sequence[Partition]:
        """The partitions of one verdict."""
        return [partition for partition in self.partitions if partition.verdict == verdict]


@dataclass(frozen=True, slots=True)
class DaySize:
    """The size of one day in PostgreSQL's archive (rows are an estimate) and in the lake's; None where the day is missing.

    `day` is None for dead messages. PostgreSQL has one partition for them; in the lake they are in the days' files.
    """

    day: date | None
    rows: int | None
    bytes: int | None
    lake_files: int | None
    lake_rows: int | None
    lake_bytes: int | None


@dataclass(frozen=True, slots=True)
class Inventory:
    """The current size of archive and lake, and when each job last changed something; None if a job never did."""

    days: tuple[DaySize, ...]
    tables: tuple[TableSize, ...]
    """The lake's tables, by name."""
    exported_at: datetime | None
    computed_at: datetime | None
    compacted_at: datetime | None
    compared_at: datetime | None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the page says."""

    made_at: datetime
    lake: str
    """The lake's URL, without credentials."""
    span: ReportSpan
    numbers: Numbers
    before: Numbers
    """The numbers of the span of the same length that ends where this one begins."""
    failures: tuple[Failure, ...]
    slow_keys: tuple[SlowKey, ...]
    unacknowledged: Unacknowledged
    quality: Quality
    inventory: Inventory

    @property
    def empty_lake(self) -> bool:
        """Whether nothing was ever exported."""
        return self.quality.last is None
