"""That nothing which could move stays where it is, measured in simulated seconds since it could."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

from relay.claims.scrub import ROUND, WHOLE
from relay.claims.suspects import ALONE_PATIENCE
from relay.maintenance.maintenance import HEARTBEAT_SECONDS, LANE_SECONDS, MINUTE
from relay.maintenance.periodic_tasks import JITTER_SHARE
from relay.postgres.store import LEASE
from tests.simulation.database import LAST, Database, Lane, Row
from tests.simulation.flow import Flow
from tests.simulation.ledger import BrokenError
from tests.simulation.relay import POLL, SCAN, SimulatedRelay
from tests.simulation.sweeps import is_over

WAY = 1.0
"""Seconds for the statements between a find and its claim, and for batches that are in front."""
FOUND = ROUND + POLL + WAY
"""Seconds in which whatever can be claimed is claimed, in a short queue: a round of the scrub and a poll. For what came to stand before
others a round begins every `WHOLE` seconds."""
PAGE_TIME = 0.04
"""Seconds that each page of the queue adds. A round takes only a part of that time, and may begin again in the middle."""
FREED = 5.0 + WAY
"""Seconds after its lock is over in which a message is free again: the five that are promised for a machine that has time, and what other
statements on the control connection take."""
HEARD = HEARTBEAT_SECONDS * (1 + JITTER_SHARE) + 0.5
"""Seconds in which every relay knows of what operators decide."""
NOTED = MINUTE * (1 + JITTER_SHARE)
"""Seconds in which a sweep sees that the server's clock was set back."""
TAKEN = 2 * LANE_SECONDS * (1 + JITTER_SHARE) + WAY
"""Seconds after the end of its lease in which a lane has another owner: what one relay has too many it gives up first."""
RENUMBERED = NOTED + HEARTBEAT_SECONDS + WAY
"""Seconds in which a living relay gives positions to what came from another cluster."""
RECOVERED = 12.0
"""Seconds that a relay needs after a trouble, its broker's too."""


class Stay(NamedTuple):
    """Why a message should move, what would be another reason, and the seconds that it may take."""

    why: str
    stamp: Hashable
    seconds: float


class Liveness:
    """Looks at every message in every step.

    Args:
        database: the queue.
        relays: those that run or stand still.
        rough_at: when a broker or the archive last was not as it should be.
        claims: how many messages were ever claimed, by exchange.

    """

    def __init__(
        self,
        database: Database,
        relays: Callable[[], Iterable[SimulatedRelay]],
        rough_at: Callable[[], float],
        claims: Mapping[str, int],
    ) -> None:
        self._database = database
        self._relays = relays
        self._rough_at = rough_at
        self._since: dict[str, tuple[Stay, float]] = {}
        self._flow = Flow(database, claims)
        self._limited: dict[str, float] = {}
        """Limited exchanges of which something can be claimed, by the seconds in which it is found."""
        self.longest = 0.0
        """Seconds that a message has stayed at the most although it could be claimed."""

    def check(self) -> None:
        """Look at what could have moved since the last steps.

        Raises:
            BrokenError: it has stayed for too long.
        """
        now, before, self._since = self._database.moment(), self._since, {}
        well, self._limited = {relay.id: relay for relay in self._relays() if self._is_well(relay, now)}, {}
        for row, stay in self._stays(well, now) if well else ():
            last, since = before.get(row.id, (stay, now))
            since = since if (last.why, last.stamp) == (stay.why, stay.stamp) else now
            self._since[row.id] = (stay, since)
            self.longest = max(self.longest, now - since if stay.why == "could be claimed" else 0.0)
            if now - since > stay.seconds:
                raise BrokenError(f"{row} stays where it is, {now - since:.1f} s after it {stay.why}.")
        self._flow.check(self._limited, max(len([*self._relays()]), len(self._database.alive(self._lock_time))))

    @property
    def _lock_time(self) -> float:
        return float(self._database.settings["lock_seconds"])

    def _is_well(self, relay: SimulatedRelay, now: float) -> bool:
        return not relay.process.stopped and relay.stopping_at is None and relay.upset_at < now - RECOVERED and relay.id > 0

    def _stays(self, well: dict[int, SimulatedRelay], now: float) -> Iterator[tuple[Row, Stay]]:
        database = self._database
        calm = self._rough_at() < now - RECOVERED
        suspects = sum(row.locked_by is not None for row in database.rows.values())
        walk = PAGE_TIME * len(database.rows) / SCAN
        for row in database.rows.values():
            if row.tx is not None:
                continue
            if row.at[0] >= database.xmax:
                yield from self._foreign(row, well)
            elif row.lock_expires_at is not None:
                yield from self._locked(row, walk)
            elif calm and self._could_go(row, now):
                # Suspects go one after the other.
                seconds = FOUND + WHOLE * row.low + walk + ALONE_PATIENCE * suspects
                yield from self._claimable(row, well, seconds)

    def _foreign(self, row: Row, well: Iterable[int]) -> Iterator[tuple[Row, Stay]]:
        """It waits for the relay that has been well for the longest time, and behind what somebody has locked."""
        database = self._database
        if not any(one.tx for one in database.between((database.xmax, 0), LAST)):
            yield row, Stay("came from another cluster", min(well), RENUMBERED)

    def _claimable(self, row: Row, well: Mapping[int, SimulatedRelay], seconds: float) -> Iterator[tuple[Row, Stay]]:
        """A claim, or the lane without which no relay may claim it; what is limited is looked at together."""
        lane = None if row.lane is None else self._database.lanes[row.lane]
        owner = None if lane is None else lane.owner
        if lane is not None and owner not in well:
            yield from self._left(row, lane, well)
        elif row.exchange in self._database.limited:
            self._limited[row.exchange] = max(seconds, self._limited.get(row.exchange, 0.0))
        else:
            yield row, Stay("could be claimed", (row.at, row.attempts, row.available_at, owner), seconds)

    def _left(self, row: Row, lane: Lane, well: Mapping[int, SimulatedRelay]) -> Iterator[tuple[Row, Stay]]:
        """Its lane's lease is over. One that lives and is not well may keep its share of such lanes free."""
        alive = set(self._database.alive(LEASE))
        if lane.owner not in alive and alive <= well.keys() and not (lane.tx or lane.sharers):
            yield row, Stay("needed another owner of its lane", (row.lane, lane.owner, lane.epoch), TAKEN)

    def _locked(self, row: Row, walk: float) -> Iterator[tuple[Row, Stay]]:
        """A lock that is over, or that no holder will ever take off. A holder does not renew a lock of which it has never heard."""
        holders = {relay.id: relay.client.unheard for relay in self._relays()}
        if is_over(self._database, row):
            yield row, Stay("could be freed", row.lock_token, FREED + walk)
        elif row.lock_token in holders.get(row.locked_by or 0, (row.lock_token,)):
            yield row, Stay("was left locked", (row.lock_token, row.locked_at), NOTED + 2 * self._lock_time + FREED + walk)

    def _could_go(self, row: Row, now: float) -> bool:
        """Due, held by no operator, and of a key its head, while nothing of the key is in flight."""
        database = self._database
        if row.kept or not row.is_due(database.now()) or row.exchange in database.paused:
            return False
        if database.decided_at.get(row.exchange, 0.0) > now - HEARD:
            return False
        if row.key is None or row.lane is None:
            return True
        keyed = [database.rows[at] for at in database.by_key[row.key]]
        return keyed[0] is row and row.key not in database.parked and not any(one.lock_expires_at or one.tx for one in keyed)
