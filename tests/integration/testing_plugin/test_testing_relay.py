"""The relay in an application's tests: the real one, with a broker in memory, and time that advances at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from relay.client import Message, Options, enqueue, enqueue_many
from relay.testing.fake_broker.topology import TopologyError
from relay.testing.outbox import Outbox
from relay.testing.relays import RunningRelay
from relay.testing.statements import statement

HOUR = timedelta(hours=1)


@pytest.fixture
def outbox(database_url: str) -> Iterator[Outbox]:
    """As an application has it from the plugin."""
    with Outbox(database_url) as made:
        yield made


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """The application's."""
    with psycopg.connect(database_url, autocommit=True) as made:
        yield made


@pytest.fixture
def broker(outbox: Outbox) -> Iterator[RunningRelay]:
    """A relay, and an exchange with a queue that takes everything of it."""
    with outbox.relay() as made:
        made.declare_exchange("shop")
        made.bind("orders", "shop", "order.#")
        yield made


def _put(connection: psycopg.Connection[Any], key: str = "order.paid", **other: Any) -> str:
    return str(enqueue(connection, Message(exchange="shop", routing_key=key, **other)))


def _result(outbox: Outbox, message: str) -> tuple[str, str | None, int] | None:
    found = outbox.archive(message)
    return (found.result, found.error_code, found.attempts) if found else None


def _stuck(broker: RunningRelay, seen: Callable[[str], object]) -> None:
    """The relay is not through, and that is so for the reason that the test means, however slow the machine is."""
    for _ in range(200):
        with pytest.raises(AssertionError) as told:
            broker.drained(0.1)
        if seen(str(told.value)):
            return
    pytest.fail(f"It is not seen: {told.value}")


def test_a_committed_message_reaches_its_queue(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """With the headers and properties that the relay gives it, and is archived; what was rolled back is nowhere."""
    with connection.transaction(force_rollback=True):
        _put(connection, content={"invoice": 6})
    message = _put(connection, content={"invoice": 7}, options=Options(headers={"tenant": "a"}))
    broker.drained()

    [delivered] = broker.queue("orders")
    assert ({"invoice": 7}, {"tenant": "a", "x-relay-id": message}) == (delivered.content, delivered.headers)
    assert (message, "order.paid", 2) == (delivered.message_id, delivered.routing_key, delivered.delivery_mode)
    assert ("success", None, 1) == _result(outbox, message)
    assert [] == outbox.waiting()
    assert outbox.archive("00000000-0000-0000-0000-000000000000") is None


async def test_in_a_test_with_a_loop_of_its_own(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """The same, awaited."""
    async with outbox.relay() as broker:
        broker.declare_queue("direct")
        message = str(enqueue(connection, Message(exchange="", routing_key="direct")))
        await broker.drained()
        assert [message] == [one.message_id for one in broker.queue("direct")]
        broker.down()
        enqueue(connection, Message(exchange="", routing_key="direct"))
        with pytest.raises(AssertionError, match=r"^After 0\.3 seconds messages are still due or in flight: 1\. "):
            await broker.drained(0.3)


def test_time_goes_on_at_once(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """A message for later is not due before, and is after; one that expires meanwhile is rejected."""
    now = datetime.now(UTC)
    later = _put(connection, available_at=now + 2 * HOUR)
    late = _put(connection, available_at=now + 2 * HOUR, expires_at=now + 3 * HOUR)
    broker.drained()
    outbox.clock.advance(HOUR)
    broker.drained()
    assert [] == broker.queue("orders")

    broker.down()
    outbox.clock.advance(2.5 * HOUR)
    broker.up()
    broker.drained()
    assert [later] == [one.message_id for one in broker.queue("orders")]
    assert [("success", None), ("rejected", "expired")] == [result[:2] for one in (later, late) if (result := _result(outbox, one))]


def test_time_goes_on_to_the_next_moment(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """Whatever waits for it; with nothing there is a sentence."""
    _put(connection, available_at=datetime(2041, 1, 1, tzinfo=UTC))
    assert outbox.clock.advance_to_next() > timedelta(days=365)
    broker.drained()
    assert 1 == len(broker.queue("orders"))
    with pytest.raises(AssertionError, match=r"^Nothing waits for a time"):
        outbox.clock.advance_to_next()
    with pytest.raises(ValueError, match=r"^Time does not go back"):
        outbox.clock.advance(-HOUR)


def test_what_is_unroutable_waits_and_goes_when_somebody_binds(
    outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay
) -> None:
    """A failed attempt shows on the waiting message. The retry comes with the clock, and after the last one the message is dead."""
    message = _put(connection, "refund.paid")
    dead = _put(connection, "nobody")
    broker.drained()
    outbox.waiting().assert_has(routing_key="refund.paid", attempts=1, state="delayed")
    assert "unroutable" in str(outbox.waiting()[0].last_error)

    broker.bind("orders", "shop", "refund.*")
    for _ in range(11):
        outbox.clock.advance_to_next()
        broker.drained()
    outbox.clock.advance(HOUR)
    broker.drained()
    assert [message] == [one.message_id for one in broker.queue("orders")]
    assert (("success", None, 2), ("failed", "unroutable", 12)) == (_result(outbox, message), _result(outbox, dead))


def test_a_missing_exchange_is_found_once_it_is_declared(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """Without waiting for the second in which the relay does not ask for it again."""
    message = str(enqueue(connection, Message(exchange="late", routing_key="k")))
    broker.drained()
    assert "exchange_missing" in str(outbox.waiting()[0].last_error)
    broker.declare_exchange("late", "fanout")
    broker.bind("late", "late")
    outbox.clock.advance_to_next()
    broker.drained()
    assert ("success", None, 2) == _result(outbox, message)


def test_nacks_are_attempts_and_an_outage_is_none(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """As many as were asked for; a broker that is down, blocked or drops connections spends nothing."""
    broker.refuse("shop", times=1)
    first = _put(connection)
    broker.drained()
    outbox.clock.advance_to_next()
    broker.drained()
    broker.down()
    second = _put(connection)
    with pytest.raises(
        AssertionError, match=r"^After 0\.3 seconds .* in flight: 1\..*\nCommitted and waiting: 1 message\n  shop order\.paid"
    ):
        broker.drained(0.3)
    broker.up()
    broker.drained()
    broker.block()
    third = _put(connection)
    _stuck(broker, lambda said: "BrokerBlocked" in said)
    broker.unblock()
    broker.drained()
    assert [("success", None, 2), ("success", None, 1), ("success", None, 1)] == [_result(outbox, one) for one in (first, second, third)]


def test_a_forbidden_exchange_and_a_full_queue_refuse(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """Each by its own code."""
    broker.declare_queue("small", max_length=1)
    broker.declare_exchange("tiny", "fanout")
    broker.bind("small", "tiny")
    broker.forbid("shop")
    _put(connection)
    enqueue_many(connection, [Message(exchange="tiny"), Message(exchange="tiny")])
    broker.drained()
    assert ["access_refused", "nacked"] == sorted(str(one.last_error).split(":")[0] for one in outbox.waiting())
    broker.forbid("shop", forbidden=False)
    outbox.clock.advance(HOUR)
    broker.drained()
    assert 1 == len(broker.queue("orders"))


def test_what_a_killed_relay_held_goes_out_again(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """Its lock stays until it expires by the clock; the next relay sends the message, which may then be there twice."""
    broker.silence("shop")
    message = _put(connection)
    _stuck(broker, lambda _: broker.queue("orders"))
    broker.kill_relay()
    outbox.waiting().assert_has(state="locked")
    with pytest.raises(AssertionError, match="The relay was killed"):
        broker.drained()

    with outbox.relay() as second:
        second.declare_exchange("shop")
        second.bind("orders", "shop")
        with pytest.raises(AssertionError, match="seconds messages are still due or in flight: 1"):
            second.drained(0.3)
        outbox.clock.advance(HOUR)
        second.drained()
        assert [message] == [one.message_id for one in second.queue("orders")]
    assert [message] == [one.message_id for one in broker.queue("orders")]


def test_time_leaves_alone_what_a_running_relay_holds(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """It renews its locks as time passes: its message is not sent a second time."""
    broker.silence("shop")
    message = _put(connection)
    _stuck(broker, lambda _: broker.queue("orders"))
    outbox.clock.advance(HOUR)
    with pytest.raises(AssertionError):
        broker.drained(0.3)
    broker.answer("shop")
    broker.drained()
    assert [message] == [one.message_id for one in broker.queue("orders")]
    assert ("success", None, 1) == _result(outbox, message)


def test_messages_of_a_key_keep_their_order(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """And one whose head waits is not due."""
    broker.refuse("shop", times=1)
    put = [_put(connection, ordering_key="customer-7") for _ in range(3)]
    broker.drained()
    assert [] == broker.queue("orders")
    outbox.clock.advance_to_next()
    broker.drained()
    assert put == [one.message_id for one in broker.queue("orders")]


def test_schedules_tick_and_bundles_collect(outbox: Outbox, connection: psycopg.Connection[Any], broker: RunningRelay) -> None:
    """With the clock, as relays and pg_cron have them do; a dedup key is forgotten in time."""
    connection.execute("SELECT queue_message_schedule_add('nightly', '30 2 * * *', 'shop', 'order.nightly')")
    keyed = "INSERT INTO queue_message_keyed (exchange, routing_key, content, bundle_key) VALUES ('shop', 'order.list', %s, 'digest')"
    connection.execute(keyed, ("1",))
    connection.execute(keyed, ("2",))
    known = "INSERT INTO queue_message_keyed (exchange, routing_key, dedup_key) VALUES ('shop', 'order.once', 'invoice-7')"
    assert [1, 0] == [connection.execute(known).rowcount for _ in range(2)]
    broker.drained()
    assert {"order.once"} == {one.routing_key for one in broker.purge("orders")} - {"order.list"}

    outbox.clock.advance(timedelta(days=1, seconds=1))
    broker.drained()
    assert 1 == connection.execute(known).rowcount
    assert {"order.nightly"} == {one.routing_key for one in broker.queue("orders")} - {"order.list", "order.once"}
    assert [2] == [
        count for (count,) in connection.execute("SELECT count(*) FROM queue_message_archive WHERE result = 'discarded'").fetchall()
    ]


def test_what_is_released_while_the_test_looks_is_due(database_url: str, connection: psycopg.Connection[Any]) -> None:
    """A transaction's `now()` is older than its snapshot: a message released between them is visible, and only seems to wait."""
    _put(connection)
    with psycopg.connect(database_url) as looking:
        looking.execute("SELECT now()")
        connection.execute("UPDATE queue_message SET available_at = now()")
        assert [(1,)] == looking.execute(statement("count_due", "public")).fetchall()


def test_paused_messages_are_not_due(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """`drained` does not wait for messages that an operator holds."""
    connection.execute("SELECT queue_message_pause('held')")
    enqueue(connection, Message(exchange="held"))
    with outbox.relay() as broker:
        broker.drained()
    outbox.waiting().assert_has(exchange="held")


def test_a_relay_that_cannot_start_says_why_and_leaves_nothing(outbox: Outbox, connection: psycopg.Connection[Any]) -> None:
    """It says so in a sentence of its own, and leaves no thread running."""
    connection.execute("SELECT set_config('lock_timeout', '5s', false)")
    connection.execute("UPDATE queue_message_setting SET value = 'inbox' WHERE name = 'direction'")
    with pytest.raises(AssertionError, match=r"^The relay did not start.*inbox"), outbox.relay(start_seconds=1):
        pass
    assert not [one for one in threading.enumerate() if one.name == "relay.testing"]


def test_mistakes_in_a_test_are_named(broker: RunningRelay) -> None:
    """A queue or an exchange that was not declared, or another one of that name."""
    with pytest.raises(TopologyError, match=r"^There is no queue 'order' \(declared: orders\)"):
        broker.queue("order")
    with pytest.raises(TopologyError, match=r"^There is no exchange 'shops' to bind to"):
        broker.bind("orders", "shops")
    with pytest.raises(TopologyError, match=r"^The exchange 'shop' is there as topic"):
        broker.declare_exchange("shop", "fanout")
    with pytest.raises(TopologyError, match=r"^The queue 'orders' is there with max_length=None"):
        broker.declare_queue("orders", max_length=5)
