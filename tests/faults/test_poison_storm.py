"""Bad messages next to each other, by the dozen and by the thousand: each ends as the catalogue says, and no good one suffers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from relay import devservers
from tests.faults.poisoner import Poisoner
from tests.support.database.queue import until
from tests.support.faults.scene import Scene
from tests.support.network.proxy import Proxy
from tests.support.poison.catalogue import POISON, Poison
from tests.support.poison.poisoning import BARRED, MAY_WRITE, Sent
from tests.support.relays.scrape import HTTP, counted, metric
from tests.support.servers.shared import Say

SCARCE = {"heavy", "default_limit"}
"""Needs of entries of 16 MiB and more, which go through once, with the whole catalogue."""
ONCE = {"seq at 2^63-1", "the highest id", "default exchange outside the allow-list"}
"""Entries that stand in the queue once at a time, or that would forbid another one."""
ENTRIES = [entry for entry in POISON if not SCARCE & {*entry.needs} and entry.name not in ONCE]
BAD = [entry for entry in ENTRIES if entry.outcome != "delivered"]
SETTINGS = {"RELAY_ALLOWED_EXCHANGES": "[!f]*,amq.default", **HTTP}
"""All exchanges, the default one too, but those that begin like `forbidden`."""
EXTRA = 2
"""Connections to the broker beyond the first."""
RATE = """
    SELECT count(*) / extract(epoch FROM max(archived_at) - min(claimed_at))::float8 FROM queue_message_archive
    WHERE exchange = %s AND archived_at > %s
"""


@pytest.fixture
def barred(own_broker: devservers.RabbitMQ) -> Iterator[None]:
    """The relay may not write to some exchanges."""
    own_broker.ctl("set_permissions", "-p", "/", "guest", ".*", MAY_WRITE, ".*")
    yield
    own_broker.ctl("set_permissions", "-p", "/", "guest", ".*", ".*", ".*")


async def put_good(scene: Scene, count: int = 1) -> list[str]:
    """Insert good messages to the inbox."""
    return await scene.queue.insert(count, exchange=scene.inbox.exchange, routing_key=scene.inbox.routing_key)


async def allow_two_attempts(scene: Scene) -> None:
    """Let what fails fail soon."""
    for name, value in (("max_attempts", "2"), ("backoff_base", "0.1")):
        await scene.queue.sql("SELECT queue_message_config_set(%s, %s)", name, value)


@pytest.mark.fault(13, repeats=20)
@pytest.mark.timeout(600)
@pytest.mark.ids("A9", "A10", "C9", "C15", "D6")
@pytest.mark.parametrize("share", [pytest.param(0.01, marks=pytest.mark.long_only), 0.5])
async def test_a_storm_of_bad_messages_harms_no_good_one(scene: Scene, barred: None, unique: str, share: float, *, long_form: bool) -> None:
    """Of all traffic so much is bad: each is refused or ends with its code, the good ones arrive once, on the connection that there was."""
    await allow_two_attempts(scene)
    async with Poisoner.at_work(scene, unique) as poisoner, Proxy.before(scene.broker.url) as proxy:
        for entry in BAD:
            await poisoner.prepare(entry)
        relay = await scene.start(broker=proxy.url(scene.broker.url), **SETTINGS)
        for _ in range(200 if long_form else 20):
            await put_mixed(scene, poisoner, share)
        await scene.queue.settled(seconds=240)
        bad = [one for one in poisoner.sent if one.ids]
        report = await scene.report()
        assert [] == report.mismatches()
        assert (len(bad), 0) == (report.dead, report.duplicates)
        await poisoner.expect_all()
        assert proxy.connections <= 1 + EXTRA
    assert len(bad) == await counted(relay, len(bad), "relay_dead_total")
    assert {id_ for one in bad for id_ in one.ids} >= {line["id"] for line in relay.of("message_dead")} > set()
    assert re.search(rf" {len(bad)} dead messages? (is|are) not acknowledged", await scene.status())


async def put_mixed(scene: Scene, poisoner: Poisoner, share: float, size: int = 100) -> None:
    """One transaction of good messages and, as chance has it, bad ones."""
    good: list[str] = []
    bad: list[Sent] = []
    async with scene.queue.connection.transaction():
        for _ in range(size):
            if scene.chance.random() < share:
                bad.append(await poisoner.put(scene.chance.choice(BAD)))
            else:
                good += await put_good(scene)
    scene.producer.vouch(good)
    for one in bad:
        scene.producer.vouch(one.ids, one.entry.outcome)


@pytest.mark.fault(13, repeats=5)  # a figure, and the slower the more there are
@pytest.mark.long_only
@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.ids("C15")
async def test_one_bad_message_in_a_hundred_does_not_slow_the_others(scene: Scene, barred: None, unique: str, say: Say) -> None:
    """Good messages go out at 70 % of the clean rate at least, all in one run."""
    await allow_two_attempts(scene)
    async with Poisoner.at_work(scene, unique) as poisoner:
        entering = [entry for entry in BAD if entry.outcome != "refused"]
        for entry in entering:
            await poisoner.prepare(entry)
        rates = [await drained(scene, poisoner, bad, 200) for bad in ([], entering, [], entering, [])]
    clean, poisoned = (rates[0] + rates[2] + rates[4]) / 3, (rates[1] + rates[3]) / 2
    scene.note("ratio", round(poisoned / clean, 2))
    say(f"good messages: {clean:,.0f}/s clean, {poisoned:,.0f}/s with 1 % bad ones: {poisoned / clean:.2f}")
    assert poisoned >= 0.7 * clean


async def drained(scene: Scene, poisoner: Poisoner, bad: Sequence[Poison], chunks: int) -> float:
    """Let a relay work through chunks of a hundred good messages and perhaps a bad one; return the good ones' rate."""
    begun = await scene.queue.value("SELECT now()")
    for _ in range(chunks):
        await put_good(scene, 100)
        if bad:
            await poisoner.put(scene.chance.choice(bad))
    relay = await scene.start(**SETTINGS)
    await scene.queue.settled(seconds=120)
    assert 0 == await relay.stop()
    return float(await scene.queue.value(RATE, scene.inbox.exchange, begun))


@pytest.mark.fault(13, repeats=20)
@pytest.mark.ids("A10", "C9", "C15", "D6")
async def test_good_messages_around_three_bad_exchanges_arrive_once(scene: Scene, barred: None, unique: str) -> None:
    """One exchange is missing, one may not be written to, one is deleted in flight: of 500 messages to others each arrives, none twice."""
    await allow_two_attempts(scene)
    other = await scene.topology.declare(f"{unique}.other", f"{unique}.others")
    doomed = await scene.topology.declare(f"{unique}.doomed", f"{unique}.spare")
    shut = await scene.topology.declare_exchange(f"{unique}.{BARRED}")
    async with Proxy.before(scene.broker.url) as proxy:
        relay = await scene.start(broker=proxy.url(scene.broker.url), **HTTP)
        good: list[str] = []
        for number in range(10):
            for made in (scene.inbox, other):
                good += await scene.queue.insert(25, exchange=made.exchange, routing_key=made.routing_key)
                for exchange in (f"{unique}.missing", shut, doomed.exchange):
                    await scene.queue.insert(3, exchange=exchange, routing_key=doomed.routing_key)
            if number == 4:
                await until(lambda: scene.topology.has(doomed.queue))
                await scene.topology.delete_exchange(doomed.exchange)
        await scene.queue.settled()
        assert proxy.connections <= 1 + EXTRA

    came = [message.headers["x-relay-id"] for made in (scene.inbox, other) for message in await scene.topology.drain(made.queue)]
    assert dict.fromkeys(good, 1) == Counter(came)
    archive = await scene.queue.sql(
        "SELECT exchange, result, coalesce(error_code, ''), count(*)::int FROM queue_message_archive GROUP BY 1, 2, 3"
    )
    found = {(exchange.removeprefix(f"{unique}."), result, code): count for exchange, result, code, count in archive}
    assert (60, 60) == (found["missing", "failed", "exchange_missing"], found[BARRED, "failed", "access_refused"])
    assert 60 == found["doomed", "success", ""] + found["doomed", "failed", "exchange_missing"]
    assert {f"{unique}.missing", shut, doomed.exchange} >= {line["exchange"] for line in relay.of("exchange_quarantined")} > set()
    assert 0 < await metric(relay, "relay_failures_total", step="channel")
