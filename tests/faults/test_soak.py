"""A minute of the soak; `make soak` plays hours of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from relay import devservers
from tests.soak.run import Plan, soak
from tests.support.faults.runner import LEDGER
from tests.support.servers.shared import Say

SECONDS = 60


@pytest.mark.fault(30, repeats=3)
@pytest.mark.long_only
@pytest.mark.timeout(600)
# aio-pika leaves the close of a connection that was cut while it opened; the soak's own consumer meets that under load.
@pytest.mark.filterwarnings("ignore:coroutine 'Connection.close' was never awaited:RuntimeWarning")
@pytest.mark.slow
@pytest.mark.ids("A17", "B9", "C1", "C5", "C7", "C9", "C17")
async def test_a_minute_of_random_faults_adds_up(
    own_postgres: devservers.Postgres,
    own_broker: devservers.RabbitMQ,
    chance: random.Random,
    say: Say,
    record_property: Callable[[str, object], None],
    tmp_path: Path,
) -> None:
    """Load of every kind, a fault each quarter of a minute: the ledger adds up. Slopes are for runs of ten minutes and more."""
    own_postgres.thaw()
    await asyncio.to_thread(own_postgres.start)
    plan = Plan(seconds=SECONDS, seed=chance.getrandbits(32), rate=100, period=SECONDS / 4, every=5)
    lines = await soak(plan, postgres=own_postgres, broker=own_broker, out=tmp_path / "soak.jsonl", say=say, stop=asyncio.Event())

    [begin], [joined] = ([line for line in lines if line["kind"] == kind] for kind in ("begin", "ledger"))
    record_property("versions", begin["versions"])
    record_property(LEDGER, joined["report"])
    assert [] == lines[-1]["mismatches"]
    assert joined["report"]["faults"] >= 1
    assert joined["report"]["delivered"] > 0
