"""Turns of the watch over dead messages: exchanges in turn, room for each, and each message once under any order of commits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from relay.cli.dead_watch import cursor, turns
from relay.cli.dead_watch import loop as watch
from relay.cli.dead_watch.actions import Dead, Handled, Outcome, RetryLater
from relay.cli.dead_watch.loop import DeadWatch
from relay.cli.dead_watch.plan import WatchPlan
from relay.cli.dead_watch.replay_rules import parse_rule
from relay.cli.dead_watch.turns import ExchangeTurns, WaitingTry
from relay.postgres.operator_session import OperatorSession

BEGAN = datetime(2031, 1, 1, tzinfo=UTC)


def _new(exchange: str, number: int, *, due: float = 0.0) -> WaitingTry:
    return WaitingTry(exchange, (number, number, number), (), due, {"exchange": exchange})


def _waiting(exchange: str, number: int, *, due: float) -> WaitingTry:
    return WaitingTry(exchange, (number, number, number), (), due, tries=1)


def _order(made: ExchangeTurns, now: float = 1.0) -> Iterator[str]:
    while (exchange := made.next(now)) is not None:
        assert made.take(exchange, now) is not None
        yield exchange


def test_exchanges_take_turns() -> None:
    """A long line of one exchange does not stand before another's message."""
    made = ExchangeTurns()
    for number in range(4):
        made.put(_new("flood", number))
    made.put(_new("orders", 4))
    made.put(_new("audit", 5))

    told = list(_order(made))

    assert {"orders", "audit"} < set(told[:3])
    assert ["flood"] * 3 == told[3:]


def test_the_newest_of_many_exchanges_has_the_second_turn_at_the_latest() -> None:
    """And the oldest has the first: neither waits for all the others."""
    made = ExchangeTurns()
    for number in range(100):
        made.put(_new(f"flood{number}", number))
    made.put(_new("orders", 100))

    assert ["flood0", "orders"] == list(_order(made))[:2]


def test_an_exchange_that_comes_while_another_has_a_long_turn_is_next() -> None:
    """A turn counts from its end."""
    made = ExchangeTurns()
    for number in range(3):
        made.put(_new("flood", number))
    order = _order(made)
    next(order)
    made.put(_new("orders", 3))

    assert "orders" == next(order)


def test_what_waits_is_taken_at_its_time_and_holds_nobody_up() -> None:
    """The earliest first, of one exchange too."""
    made = ExchangeTurns()
    made.put(_waiting("orders", 1, due=5.0))
    made.put(_new("orders", 2))

    assert ["orders"] == list(_order(made, 1.0))
    assert (1, 4.0) == (made.waiting, made.until_due(1.0))
    assert ["orders"] == list(_order(made, 5.0))
    assert (0, False) == (made.waiting, made.has_unreported)


def test_what_is_read_and_what_waits_takes_no_room_of_another_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its share, and at least one place."""
    monkeypatch.setattr(turns, "MAX_UNREPORTED", 4)
    monkeypatch.setattr(turns, "MAX_WAITING", 4)
    made = ExchangeTurns()
    for number in range(2):
        made.put(_new("unread", number))
        made.put(_waiting("failed", number + 2, due=9.0))

    assert [False, False, True] == [made.admits(each) for each in ("unread", "failed", "orders")]


def test_an_exchange_is_read_on_where_it_was_left() -> None:
    """It is read on when nothing of it is left to be reported. Until then, the messages from there on are still open."""
    made = ExchangeTurns()
    made.put(_new("flood", 1))
    made.leave("flood", (2, 2, 2))

    assert (True, True, False) == (made.is_open("flood", (1, 1, 1)), made.is_open("flood", (2, 2, 2)), made.is_open("orders", (2, 2, 2)))
    assert (None, "flood") == (made.unread("flood"), next(_order(made)))
    assert ("flood", (2, 2, 1)) == (made.next(1.0), made.unread("flood"))
    made.read_all("flood")
    assert (None, False) == (made.next(1.0), made.is_open("flood", (2, 2, 2)))


def test_an_exchange_whose_share_waits_is_read_on_when_a_message_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then nothing is asked of the database for it."""
    monkeypatch.setattr(turns, "MAX_WAITING", 1)
    made = ExchangeTurns()
    made.put(_waiting("flood", 1, due=5.0))
    made.leave("flood", (2, 2, 2))

    assert (None, 4.0, False) == (made.next(1.0), made.until_due(1.0), made.has_unreported)
    assert ["flood"] == [made.next(5.0)]
    assert made.take("flood", 5.0)
    assert (2, 2, 1) == made.unread("flood")


def test_more_exchanges_than_there_is_room_for_stay_in_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay there until one message has been reported."""
    monkeypatch.setattr(turns, "MAX_EXCHANGES", 1)
    made = ExchangeTurns()
    made.put(_new("flood", 1))
    assert (False, False) == (made.admits("orders"), made.leave("orders", (2, 2, 2)))

    assert ["flood"] == list(_order(made))
    assert made.admits("orders")


def _dead(number: int, exchange: str, *, code: str = "x") -> dict[str, Any]:
    return {
        "id": number, "exchange": exchange, "archived_xid": str(1 + number // 3), "xid": str(number), "seq": number, "routing_key": "",
        "result": "failed", "error_code": code, "archived_at": BEGAN + timedelta(seconds=number // 3),
    }  # fmt: skip


class _Database:
    """Dead messages that become visible in any order, as a watch reads them."""

    def __init__(self, chance: random.Random, size: int) -> None:
        self.rows_to_come: list[dict[str, Any]] = [
            _dead(number, chance.choice("aaabcdef"), code=chance.choice("xxy")) for number in range(1, size + 1)
        ]
        self.replayed: list[int] = []
        self._chance = chance
        self._visible: list[dict[str, Any]] = []
        self._seconds = 0

    def commit(self) -> None:
        """Make a few visible, also of a later transaction before an earlier one."""
        xids = sorted({each["archived_xid"] for each in self.rows_to_come}, key=int)[:6]
        for xid in self._chance.sample(xids, min(len(xids), self._chance.randrange(5))):
            self._visible += [each for each in self.rows_to_come if each["archived_xid"] == xid]
            self.rows_to_come = [each for each in self.rows_to_come if each["archived_xid"] != xid]
        self._visible.sort(key=cursor.place_of)

    def now(self) -> datetime:
        """Time goes by with each look at it."""
        self._seconds += 1
        return BEGAN + timedelta(seconds=self._seconds)

    def row(self, name: str, **asked: Any) -> dict[str, str]:
        """The oldest transaction that still runs; or replays a message."""
        if name == "replay_dead":
            self.replayed.append(asked["id"])
            return {"id": "new"}
        assert name == "read_floor"
        return {"floor": min((each["archived_xid"] for each in self.rows_to_come), key=int, default="1000000")}

    def rows(self, name: str, **asked: Any) -> list[dict[str, Any]]:
        """What `watch_dead.sql` finds."""
        assert name == "watch_dead"
        after = int(asked["archived_xid"]), int(asked["xid"]), asked["seq"]
        wanted = asked["exchange"]
        return [each for each in self._visible if cursor.place_of(each) > after and wanted in {None, each["exchange"]}][: asked["most"]]


class _Flaky:
    """Fails now and then, but a message three times at most."""

    acts = True
    name = "flaky"

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._failed: Counter[int] = Counter()
        self.handled: Counter[int] = Counter()

    def handle(self, dead: Dead) -> Outcome:
        """See `Handler`."""
        if self._failed[dead["id"]] < 3 and self._chance.random() < 0.4:
            self._failed[dead["id"]] += 1
            return RetryLater("")
        self.handled[dead["id"]] += 1
        return Handled()

    def cut(self) -> None:
        """See `Handler`."""

    def close(self) -> None:
        """See `Handler`."""


@pytest.mark.parametrize("seed", range(20))
def test_each_message_is_handled_once_whatever_commits_when(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """With hardly any room: what was left, what commits late and what failed all come, and none of them twice."""
    for name in ("MAX_UNREPORTED", "MAX_WAITING", "MAX_EXCHANGES"):
        monkeypatch.setattr(turns, name, 1 + seed % 5)
    monkeypatch.setattr(cursor, "PAGE", 1 + seed % 3)
    monkeypatch.setattr(watch, "pause", lambda _: 0.0)
    chance = random.Random(seed)
    database, flaky = _Database(chance, 150), _Flaky(chance)
    work = DeadWatch(WatchPlan(handlers=[flaky]), stopped=lambda: False)
    while database.rows_to_come or work.is_busy or work.failing:
        database.commit()
        work.round(cast("OperatorSession", database))
    work.round(cast("OperatorSession", database))

    assert dict.fromkeys(range(1, 151), 1) == flaky.handled


def test_replays_take_turns() -> None:
    """A long line of due replays of one exchange does not stand before another's."""
    database = _Database(random.Random(0), 0)
    database.rows_to_come = [_dead(number, "flood") for number in range(5)] + [_dead(5, "orders")]
    while database.rows_to_come:
        database.commit()
    DeadWatch(WatchPlan(handlers=[], rules=[parse_rule("code=x,after=0s")]), stopped=lambda: False).round(cast("OperatorSession", database))

    assert [0, 5, 1, 2, 3, 4] == database.replayed


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_each_message_is_replayed_once_whatever_commits_when(monkeypatch: pytest.MonkeyPatch, seed: int, handled: bool) -> None:
    """With hardly any room: what was left, what commits late, what is not due yet and what handlers were not done with."""
    for name in ("MAX_UNREPORTED", "MAX_WAITING", "MAX_EXCHANGES"):
        monkeypatch.setattr(turns, name, 1 + seed % 5)
    monkeypatch.setattr(cursor, "PAGE", 1 + seed % 3)
    monkeypatch.setattr(watch, "pause", lambda _: 0.0)
    chance = random.Random(seed)
    database, flaky = _Database(chance, 150), _Flaky(chance)
    wanted = [each["id"] for each in database.rows_to_come if each["error_code"] == "x"]
    plan = WatchPlan(handlers=[flaky] if handled else [], rules=[parse_rule("code=x,after=5s")])
    work = DeadWatch(plan, stopped=lambda: False)
    while database.rows_to_come or work.until_due(600.0) < 600.0:
        database.commit()
        work.round(cast("OperatorSession", database))

    assert wanted == sorted(database.replayed)
    assert not handled or dict.fromkeys(range(1, 151), 1) == flaky.handled
