"""The relay's statements other than claim and settle: its own row, sweeps, the archive, the database's policy."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from relay.engine.policy import Controls, Policy
from relay.errors import StoreError
from relay.maintenance.folds import Folded, NextFold
from relay.maintenance.renumbering import Renumbered
from relay.message import Batch
from relay.ports import NOWHERE, Places
from relay.postgres.schema_check import check_version, is_of, other_way
from relay.postgres.store import Store

FORGOTTEN = 3600.0
"""Seconds after which a silent relay is removed from the list of relays; its locks were swept long before."""

FAILING = 100
"""Most schedules, or keys, whose failures are reported one by one."""

WALKED = 10_000
"""Messages that one transaction searches for messages of another cluster. If all must be renumbered, this takes about half a second."""


async def _ignore(_: list[tuple[Any, ...]]) -> None:
    """Ignore contracts, which is the default."""


class PostgresMaintenance:
    """The database statements that `relay.maintenance` needs."""

    def __init__(
        self,
        *,
        store: Store,
        needs: int,
        adopt: Callable[[Policy, Mapping[str, str]], None],
        direction: str = "outbox",
        contracts: Callable[[list[tuple[Any, ...]]], Awaitable[None]] = _ignore,
    ) -> None:
        self._store = store
        self._direction = direction
        self._contracts = contracts
        self._contracts_there = self._contracts_read = ""
        self._needs = needs
        self._adopt = adopt

    async def check_schema(self) -> None:
        """Check that the schema is not older than this relay. A newer schema only adds to the objects that an older relay uses.

        Raises:
            StoreError: the schema is too old: run `relay migrate`.
        """
        [(version,)] = await self._store.run("read_version")
        check_version(version, self._needs)

    async def renumber(self) -> Renumbered:
        """See `relay.maintenance.renumbering.ForeignStore`."""
        [row] = await self._store.run("renumber", most=WALKED)
        return Renumbered(*row)

    async def renew(self, batch: Batch, positions: list[tuple[int, int]]) -> int:
        """Extend locks; return how many this relay still holds."""
        return await self._store.renew(batch, positions)

    async def heartbeat(self, state: Mapping[str, object], places: Places = NOWHERE) -> None:
        """Report this relay's state and places, and that it is alive. If its row was removed, register again."""
        if not await self._store.heartbeat(json.dumps(state), places):
            await self._store.register()

    async def sweep_minute(self) -> tuple[int, int]:
        """Run the sweep that pg_cron also runs, and remove relays that have been silent for long from the list."""
        await self._store.run("forget_relays", forgotten=FORGOTTEN, now=None)
        [row] = await self._store.run("sweep_minute", now=None)
        return row[0], row[1]

    async def ensure_partitions(self) -> int:
        """Create the archive's partitions for the next days; return how many were created. This does not depend on retention."""
        [(created,)] = await self._store.run("ensure_partitions")
        return int(created)

    async def retain(self) -> tuple[int, int]:
        """Drop one archived day and delete some dead messages past their retention; return how many days and messages were removed."""
        [(dropped, deleted)] = await self._store.run("retain")
        return dropped, deleted

    async def renotify(self) -> None:
        """In the mode `always`, notify relays again of waiting messages."""
        await self._store.run("renotify")

    async def read_gauges(self) -> Mapping[str, float | None]:
        """The state of the queue: one row of `queue_message_status`, and how far this machine's clock differs from the database's."""
        asked = time.time()
        [(status,)] = await self._store.run("read_gauges")
        skew = ahead(asked, status["clock"], time.time())
        return cast("Mapping[str, float | None]", {**status, "clock_skew_seconds": skew})

    async def refresh_policy(self) -> Controls:
        """Read and adopt the database's policy; return what operators have paused, limited or scheduled.

        Raises:
            WrongDirectionError: the schema has the other direction, so this process must not move its messages.
            StoreError: the policy could not be read, or has a value that this relay does not know.
        """
        rows = await self._store.run("read_policy")
        settings = {name: value for kind, name, value in rows if kind == "setting"}
        try:
            policy = Policy.of(settings)
        except ValueError as error:
            raise StoreError(f"The database's policy is not known to this relay ({error}): install a newer outbox-relay.") from error
        if not is_of(self._direction, settings):
            raise other_way(self._direction)
        self._adopt(policy, settings)
        self._contracts_there = "".join(value for kind, _, value in rows if kind == "contracts")
        return Controls(
            paused=[name for kind, name, _ in rows if kind == "paused"],
            limits={name: float(figure) for kind, name, figure in rows if kind == "limited"},
            relays=sum(int(number) for kind, _, number in rows if kind == "relays"),
            tick_in=next((float(seconds) for kind, _, seconds in rows if kind == "tick"), None),
        )

    async def run_schedules(self) -> tuple[int, float | None]:
        """Insert the messages of due ticks; return how many, and the seconds until the next tick (None if no tick is to come)."""
        [(inserted, tick_in)] = await self._store.run("run_schedules")
        return inserted, tick_in

    async def failing_schedules(self) -> Mapping[str, str]:
        """Why schedules fail, by name; at most as many as a log should report."""
        return dict(await self._store.run("list_failing_schedules", most=FAILING))

    async def fold_in(self, since: float) -> NextFold:
        """See `relay.maintenance.folds.FoldStore`."""
        [row] = await self._store.run("read_fold", since=since)
        return NextFold(*row)

    async def fold_keys(self, since: float) -> Folded:
        """See `relay.maintenance.folds.FoldStore`."""
        [row] = await self._store.run("fold_keys", since=since)
        return Folded(*row)

    async def failing_keys(self) -> Mapping[str, str]:
        """Why messages under keys could not be sent, by key; at most as many keys as a log should report."""
        return dict(await self._store.run("list_failing_keys", most=FAILING))

    async def refresh_contracts(self) -> None:
        """Read the message contracts if the last policy shows that they have changed; a relay starts without contracts.

        Raises:
            StoreError: the contracts could not be read.
        """
        if (there := self._contracts_there) != self._contracts_read:
            await self._contracts(await self._store.run("read_contracts"))
            self._contracts_read = there


def ahead(asked: float, clock: float, answered: float) -> float:
    """The least seconds by which this machine's clock is ahead of the database's; negative if it is behind.

    This machine's clock read `asked` before, and `answered` after, the database's clock read `clock`. The result is 0 if both clocks may
    be right: a slow answer does not mean that a clock is wrong.
    """
    return max(asked - clock, 0.0) + min(answered - clock, 0.0)
