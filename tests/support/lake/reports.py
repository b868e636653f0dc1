"""Made-up reports: a busy week with every kind of trouble, texts that try to break a page, and lakes with little or nothing in them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from relay.pipeline.lake.assessment import LakeRecord
from relay.pipeline.metrics.lake_state import TABLES, TableSize
from relay.pipeline.report.model import (
    Counts,
    DaySize,
    DeadGroup,
    DeadMessage,
    ExchangeFigures,
    Failure,
    Figures,
    Inventory,
    Latency,
    Moment,
    Numbers,
    Partition,
    Quality,
    Report,
    ReportSpan,
    RoutingKey,
    SlowKey,
    Unacknowledged,
)

NOW = datetime(2026, 3, 9, 8, 30, tzinfo=UTC)
SPAN = ReportSpan(datetime(2026, 3, 2, 9, tzinfo=UTC), datetime(2026, 3, 9, 9, tzinfo=UTC), timedelta(hours=1))
HOSTILE = (
    "<script>alert(1)</script>",
    "</title></style></svg><img src=x onerror=alert(1)>",
    "\"' onmouseover=alert(1) x='",
    "{{ 7 * 7 }}{% raw %}",
    "abc \u202edcba\u2066 غير مرئي שלום",
    "\x00\x1b[31m\x07\r\n\t\x7f\x85\u2028",
    "👩‍👩‍👧‍👦🚀 Größe 你好世界",
    "k" * 10_240,
    "é\u0301" + "\u0336" * 200 + "z",
    "\ud800 lone",
    "$\\frac{1}{0}$ $x_",
    "label-0- label-1-",
    "",
)
"""What applications may write as a key or a name, and what a broker may say."""
_ID = "0197f3a2-7c41-7b3e-9a5d-4f0c2b8e{:04x}"
_NAMES = ("orders", "payments", "shipping.events", "audit", "customer-notifications-v2")


def busy() -> Report:
    """A week with daily rhythm, an outage, dead messages, and a partition that differs."""
    moments = tuple(_moment(step) for step in range(168) if not 80 <= step < 84)
    counts = _sum(moments)
    exchanges = tuple(_exchange(place, name, counts) for place, name in enumerate(_NAMES))
    total = Figures(counts, Latency(4.2, 61.0, 840.0), Latency(1.1, 3.9, 12.0), Latency(2.7, 14.0, 95.0))
    numbers = Numbers(total, (5_000,), moments, exchanges, _hours(moments), _groups(), _keys())
    return Report(
        NOW, "s3://company-lake/outbox/production", SPAN, numbers, _before(numbers), _failures(), _slow(), _dead(),
        _quality(counts.settled), _inventory(),
    )  # fmt: skip


def hostile() -> Report:
    """The same with every text of an application's made to break the page."""
    report = busy()
    figures = report.numbers.exchanges[0].figures
    numbers = replace(
        report.numbers,
        exchanges=tuple(ExchangeFigures(name, figures, tuple(range(24))) for name in HOSTILE * 3),
        dead=tuple(DeadGroup(name, name, 7, {SPAN.since: 7}) for name in HOSTILE),
        keys=tuple(RoutingKey(name, name, 10, 7) for name in HOSTILE),
    )
    return replace(
        report,
        lake="/srv/<b>lake</b>",
        numbers=numbers,
        failures=tuple(Failure("failed", text, 1, _ID.format(9), text, text, text, NOW) for text in HOSTILE),
        slow_keys=tuple(SlowKey(kind, text, 3, 4e3, 2e8) for text in HOSTILE for kind in ("routing", "ordering")),
        unacknowledged=Unacknowledged(
            90_000, NOW, tuple(DeadMessage(_ID.format(9), text, text, text, "rejected", text, text, 2**31 - 1, NOW) for text in HOSTILE)
        ),
    )


def quiet() -> Report:
    """A lake with messages, and none of them in this time."""
    report = busy()
    quality = replace(report.quality, archive_rows=0, partitions=())
    return replace(
        report, numbers=Numbers(), before=Numbers(), failures=(), slow_keys=(),
        unacknowledged=Unacknowledged(0, None, ()), quality=quality,
    )  # fmt: skip


def empty() -> Report:
    """A lake that nothing was exported to."""
    report = quiet()
    nothing = Quality(0, None, None, lake(exported=False, registered=False, seen=False, lag_seconds=None), ())
    return replace(report, quality=nothing, inventory=Inventory((), (), None, None, None, None))


def tiny() -> Report:
    """One message that was discarded: nothing published, nothing measured."""
    counts = Counts(discarded=1, attempts=0)
    moment = Moment(SPAN.since, Figures(counts))
    exchange = ExchangeFigures("orders", Figures(counts), (0,) * 9 + (1,) + (0,) * 14)
    quality = replace(busy().quality, archive_rows=1)
    return replace(quiet(), numbers=Numbers(Figures(counts), (1000,), (moment,), (exchange,), {SPAN.since: 1}), quality=quality)


def _before(numbers: Numbers) -> Numbers:
    """The week before: a tenth less, without the last exchange, and one key that was not in trouble."""
    total = replace(numbers.total, counts=_less(numbers.total.counts), wait=Latency(4.2, 48.0, 900.0))
    exchanges = tuple(replace(one, figures=replace(one.figures, counts=_less(one.figures.counts))) for one in numbers.exchanges[:-1])
    return replace(numbers, total=total, exchanges=exchanges, dead=numbers.dead[1:], keys=numbers.keys[1:])


def _less(counts: Counts) -> Counts:
    return Counts(**{field: getattr(counts, field) * 9 // 10 for field in Counts.__dataclass_fields__})


def _hours(moments: tuple[Moment, ...]) -> dict[datetime, int]:
    return {moment.start: moment.figures.counts.settled for moment in moments}


def _groups() -> tuple[DeadGroup, ...]:
    found = [("orders", "max_attempts", 37), ("payments", "no_exchange", 9), ("shipping.events", "unroutable", 5), ("audit", None, 3)]
    found += [(name, f"code_{place}", 2) for place, name in enumerate(_NAMES)]
    return tuple(
        DeadGroup(exchange, code, each * 6, {SPAN.since + (84 + step) * SPAN.step: each for step in range(6)})
        for exchange, code, each in found
    )


def _keys() -> tuple[RoutingKey, ...]:
    return (
        RoutingKey("orders", "order.created.eu", 90_000, 210),
        RoutingKey("orders", "*other*", 40_000, 12),
        RoutingKey("payments", "payment.captured", 54, 54),
    )


def _inventory() -> Inventory:
    days = [DaySize(None, 274, 901_120, None, None, None)]
    days += [DaySize(date(2026, 3, 9) - timedelta(days=ago), 96_000, 48_000_000, 1 + ago % 3, 96_000, 7_200_000 + ago) for ago in range(30)]
    days += [DaySize(date(2026, 2, 7) - timedelta(days=ago), None, None, 1, 91_000, 7_000_000) for ago in range(20)]
    tables = tuple(
        TableSize(name, 65, 65 + place, 6_200_000 // (place * 900 + 1), 460_000_000 // (place * 90 + 1))
        for place, name in enumerate(TABLES)
    )
    return Inventory(tuple(days), tables, NOW - timedelta(minutes=13), NOW - timedelta(minutes=12), None, NOW - timedelta(hours=2))


def _moment(step: int) -> Moment:
    wave = 1.2 + math.sin((step - 3) / 24 * math.tau)
    published = int(4_000 * wave + 300 * math.sin(step * 1.7)) + 400
    trouble = 84 <= step < 90
    failed, rejected = (37 if trouble else int(step % 19 == 0)), int(step % 11 == 0) * 3
    slow = 30.0 if trouble else 1 + 0.4 * math.sin(step)
    counts = Counts(
        published, int(step % 7 == 0), rejected, failed, int(step % 53 == 0), published + failed * 12 + rejected,
        published - (published // 9 if trouble else step % 4),
    )  # fmt: skip
    wait, publish, confirm = (Latency(base * slow, base * slow * 9, base * slow * 40) for base in (3.1, 0.8, 2.2))
    return Moment(SPAN.since + step * SPAN.step, Figures(counts, wait, publish, confirm))


def _sum(moments: tuple[Moment, ...]) -> Counts:
    names = Counts.__dataclass_fields__
    return Counts(**{name: sum(getattr(moment.figures.counts, name) for moment in moments) for name in names})


def _exchange(place: int, name: str, counts: Counts) -> ExchangeFigures:
    part = Counts(**{field: getattr(counts, field) * (5 - place) // 15 for field in Counts.__dataclass_fields__})
    hours = tuple(int(max(0, 1 + math.sin((hour - 6 - place * 3) / 24 * math.tau)) ** 3 * 900 * (5 - place)) for hour in range(24))
    return ExchangeFigures(name, Figures(part, Latency(4.0, 60.0, 800.0), Latency(1.0, 4.0, 12.0), Latency(2.5, 14.0 + place, 95.0)), hours)


def _failures() -> tuple[Failure, ...]:
    said = (
        ("failed", "max_attempts", 222, "orders", "order.created.eu", "12 tries, the last: 504 no answer from the broker within 30 s"),
        ("rejected", "no_exchange", 41, "paymnets", "payment.captured", "404 NOT_FOUND - no exchange 'paymnets' in vhost '/'"),
        ("rejected", "unroutable", 7, "shipping.events", "parcel.lost", "312 NO_ROUTE"),
        ("lock_expired", None, 4, "audit", "login", None),
    )
    return tuple(
        Failure(result, code, messages, _ID.format(place), exchange, key, detail, NOW - timedelta(hours=5 * place + 1))
        for place, (result, code, messages, exchange, key, detail) in enumerate(said)
    )


def _slow() -> tuple[SlowKey, ...]:
    routing = [SlowKey("routing", f"order.created.{place}", 1200 - place, 90.0 * (9 - place), 4e5 / (place + 1)) for place in range(8)]
    return (
        *routing,
        *(SlowKey("ordering", f"customer-{place * 7919}", 12 + place, 3e4 / (place + 1), 6e5 / (place + 1)) for place in range(8)),
    )


def _dead() -> Unacknowledged:
    newest = tuple(
        DeadMessage(
            _ID.format(64 + place), "orders", "order.created.eu", None, "failed", "max_attempts",
            "12 tries, the last: 504 no answer from the broker within 30 s", 12, NOW - timedelta(minutes=17 * place),
        )
        for place in range(6)
    )  # fmt: skip
    return Unacknowledged(43, NOW - timedelta(days=6), newest)


def _quality(rows: int) -> Quality:
    days = [date(2026, 3, 1) + timedelta(days=place) for place in range(9)]
    verdicts = ["verified"] * 6 + ["differs", "unverified", "open"]
    partitions = tuple(
        Partition(
            f"queue_message_archive_{day:%Y%m%d}", day, verdict, None if verdict in {"unverified", "open"} else 96_000 + day.day,  # type: ignore[arg-type]
            NOW - timedelta(hours=2) if verdict == "verified" else None,
            "2 rows are missing in the lake: (812, 40), (812, 41)." if verdict == "differs" else None,
        )
        for day, verdict in zip(days, verdicts, strict=True)
    )  # fmt: skip
    dead = Partition("queue_message_dead", None, "verified", 274, NOW - timedelta(hours=2))
    return Quality(rows, date(2026, 1, 4), date(2026, 3, 9), lake(lag_seconds=42.0, differing=1), (*partitions, dead))


def lake(**values: Any) -> LakeRecord:
    """A lake of a registered export that was just seen."""
    usual = {"registered": True, "exported": True, "seen": True, "seen_seconds": 60.0, "problem": None, "lag_seconds": 0.0, "differing": 0}
    return LakeRecord(**{**usual, **values})
