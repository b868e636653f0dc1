"""What an app asks of a message, and what an operator decides, seen by a consumer and in the archive."""

from __future__ import annotations

import pytest

from tests.support.broker.topology import Declared, Topology
from tests.support.database.queue import Queue, until
from tests.support.relays.processes import RelayProcess, Relays

KEYS = ("anna", "berta")


@pytest.fixture
async def relay(relays: Relays, queue: Queue, amqp_url: str) -> RelayProcess:
    """A relay that tries again soon and gives up early."""
    await configure(queue, backoff_base="0.05", backoff_max="0.2")
    return await relays.start(database=queue.url, broker=amqp_url)


async def configure(queue: Queue, **settings: str) -> None:
    """Change the database's policy."""
    for name, value in settings.items():
        await queue.sql("SELECT queue_message_config_set(%s, %s)", name, value)


async def ids_in(topology: Topology, queue: str, count: int | None = None) -> list[str | None]:
    """Ids of the messages that came, in their order."""
    return [message.message_id for message in await topology.drain(queue, count)]


def to(made: Declared, **columns: object) -> dict[str, object]:
    """Columns of a message that reaches the queue."""
    return {"exchange": made.exchange, "routing_key": made.routing_key, **columns}


@pytest.mark.ids("A27", "C7", "C14", "D6")
async def test_keys_stay_in_order_while_their_queue_is_full(relay: RelayProcess, queue: Queue, topology: Topology) -> None:
    """The broker refuses what does not fit; once there is room each key's messages come in the order of their inserts, once."""
    full = await topology.declare(arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    await configure(queue, max_attempts="1000")
    sent: dict[str, list[str]] = {key: [] for key in KEYS}
    for _ in range(20):
        for key in KEYS:
            sent[key] += await queue.insert(**to(full, ordering_key=key))

    async def refused() -> bool:
        return bool(await queue.value("SELECT count(*) FROM queue_message WHERE last_error LIKE 'nacked%'"))

    await until(refused)

    came: list[str | None] = []

    async def all_came() -> bool:
        came.extend(await ids_in(topology, full.queue))
        return len(came) >= 40

    await until(all_came, 40)
    await queue.settled()
    for ids in sent.values():
        assert ids == [id_ for id_ in came if id_ in ids]
    assert 40 == len(came)
    assert await queue.value("SELECT max(attempts) FROM queue_message_archive") > 1


@pytest.mark.ids("D7")
async def test_a_delayed_message_is_sent_when_it_is_due(relay: RelayProcess, queue: Queue, topology: Topology, inbox: Declared) -> None:
    """Not before, and not much later; its neighbours do not wait."""
    [delayed] = await queue.sql(
        "INSERT INTO queue_message (exchange, routing_key, available_at) VALUES (%s, %s, now() + interval '2 s') RETURNING id::text",
        inbox.exchange, inbox.routing_key,
    )  # fmt: skip
    others = await queue.insert(3, **to(inbox))

    assert [*others, *delayed] == await ids_in(topology, inbox.queue, 4)
    await queue.settled()
    late = "SELECT extract(epoch FROM published_at - available_at)::float8 FROM queue_message_archive WHERE available_at IS NOT NULL"
    assert 0 <= await queue.value(late) < 2


@pytest.mark.ids("A9", "D5")
async def test_a_message_that_came_too_late_is_not_sent(
    relay: RelayProcess, relays: Relays, queue: Queue, topology: Topology, inbox: Declared
) -> None:
    """Its exchange was paused past its `expires_at`: rejected as expired; one with time left is sent after the resume."""
    await relays.command("pause", inbox.exchange, database=queue.url)
    await until(lambda: holds(queue, inbox.exchange))
    insert = "INSERT INTO queue_message (exchange, routing_key, expires_at) VALUES (%s, %s, now() + %s::interval) RETURNING id::text"
    [[late]] = await queue.sql(insert, inbox.exchange, inbox.routing_key, "0.1 s")
    [[early]] = await queue.sql(insert, inbox.exchange, inbox.routing_key, "1 hour")
    await until(lambda: has_passed(queue, late))
    await relays.command("resume", inbox.exchange, database=queue.url)
    await queue.settled()

    assert [early] == await ids_in(topology, inbox.queue)
    row = await queue.archived(late)
    assert ("rejected", "expired") == (row["result"], row["error_code"])


async def holds(queue: Queue, exchange: str) -> bool:
    """The relay has heard of the pause."""
    return bool(await queue.value("SELECT count(*) FROM queue_message_relay WHERE state -> 'held' ? %s", exchange))


async def has_passed(queue: Queue, id_: str) -> bool:
    """The message's time is over."""
    return bool(await queue.value("SELECT expires_at < now() FROM queue_message WHERE id = %s", id_))


@pytest.mark.ids("C15", "D6")
async def test_an_unroutable_message_ends_by_the_policy_of_its_exchange(
    relay: RelayProcess, queue: Queue, topology: Topology, unique: str
) -> None:
    """Tried again and failed, rejected at once, or accepted as a success that says why; never called delivered."""
    names = [await topology.declare_exchange(f"{unique}.{word}") for word in ("retry", "reject", "accept")]
    await configure(queue, max_attempts="2", unroutable=f"retry,{names[1]}=reject,{names[2]}=accept")
    await until(lambda: heard(queue, relay))
    ids = [id_ for name in names for id_ in await queue.insert(exchange=name, routing_key="nowhere")]
    await queue.settled()

    rows = [await queue.archived(id_) for id_ in ids]
    ends = [(row["result"], row["error_code"], row["attempts"]) for row in rows]
    assert [("failed", "unroutable", 2), ("rejected", "unroutable", 1), ("success", "unroutable", 1)] == ends
    assert all("No queue takes routing key 'nowhere'" in row["error_detail"] for row in rows)


async def heard(queue: Queue, relay: RelayProcess) -> bool:
    """The relay has reported itself, and so read the policy, twice since the last change of a setting."""
    reported = "(SELECT heartbeat_at FROM queue_message_relay WHERE id = %s)"
    return bool(await queue.value(f"SELECT {reported} > max(changed_at) + interval '2.3 s' FROM queue_message_setting", relay.id))


@pytest.mark.ids("D10")
async def test_a_paused_exchange_waits_and_others_go_on(
    relay: RelayProcess, relays: Relays, queue: Queue, topology: Topology, inbox: Declared, unique: str
) -> None:
    """Nothing of it is sent until it is resumed; then everything, in order."""
    other = await topology.declare(f"{unique}.other", f"{unique}.others")
    await relays.command("pause", inbox.exchange, database=queue.url)
    await until(lambda: holds(queue, inbox.exchange))
    paused = await queue.insert(50, **to(inbox))
    free = await queue.insert(50, **to(other))
    assert free == await ids_in(topology, other.queue, 50)
    assert 0 == await topology.waiting(inbox.queue)

    await relays.command("resume", inbox.exchange, database=queue.url)
    assert paused == await ids_in(topology, inbox.queue, 50)


@pytest.mark.ids("A29")
async def test_successes_need_not_be_archived(relay: RelayProcess, queue: Queue, topology: Topology, inbox: Declared) -> None:
    """With archive = failures the archive holds what is not a success."""
    await configure(queue, archive="failures", unroutable="reject")
    await until(lambda: heard(queue, relay))
    sent = await queue.insert(20, **to(inbox))
    [dead] = await queue.insert(**to(inbox, routing_key="nowhere"))
    await queue.settled()

    assert sent == await ids_in(topology, inbox.queue)
    assert {dead: "rejected"} == await queue.results()


@pytest.mark.ids("A5", "A12", "A28", "B5", "B9")
async def test_a_lock_set_by_hand_is_respected_and_swept(queue: Queue, topology: Topology, inbox: Declared, relay: RelayProcess) -> None:
    """A program that follows the convention locks a message with one UPDATE: no relay touches it until that lock expires."""
    async with queue.connection.transaction():
        [locked] = await queue.insert(**to(inbox))
        lock = "UPDATE queue_message SET lock_expires_at = now() + interval '1.5 s' WHERE id = %s RETURNING lock_expires_at"
        until_then = await queue.value(lock, locked)
    [free] = await queue.insert(**to(inbox))
    assert [free] == await ids_in(topology, inbox.queue, 1)

    async def has_expired() -> bool:
        return bool(await queue.value("SELECT now() > %s", until_then))

    await until(has_expired)
    assert [(1, 0)] == await queue.sql("SELECT released, archived FROM queue_message_sweep_minute()")
    assert [locked] == await ids_in(topology, inbox.queue, 1)
    await queue.settled()
    assert await queue.value("SELECT published_at > %s FROM queue_message_archive WHERE id = %s", until_then, locked)
