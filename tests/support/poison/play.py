"""What happens in one poison world: rows go in next to good ones, a relay sends them, and each must end as `poison_rows` says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from psycopg import sql

from tests.support.database.lost import assert_nothing_is_lost
from tests.support.database.queue import Queue, unchecked, until
from tests.support.poison.arrivals import Arrivals
from tests.support.poison.insert import insert, smuggle
from tests.support.poison.lab import DEFAULT, DIRECT, EXCHANGES, KINDS, OPEN, WORLDS, World
from tests.support.poison.rows import ATTEMPTS, BUNDLE, ORDERING, PLAIN, Result, Row
from tests.support.poison.seen import altered
from tests.support.poison.subscribers import Heard
from tests.support.relays.processes import RelayProcess

PROMPT = 60.0
"""Seconds in which a good row arrives, on any machine."""
AT_LAST = 180.0
"""Seconds in which all others end."""
CHECK_VIOLATION = "23514"
ATTEMPT = """
    CREATE FUNCTION pg_temp.attempt(statement text) RETURNS text LANGUAGE plpgsql AS $body$
    BEGIN
        EXECUTE statement;
        RETURN '';
    EXCEPTION WHEN OTHERS THEN
        RETURN SQLSTATE;
    END $body$
"""
"""Runs a statement and returns the SQLSTATE with which it was refused: many in one round trip."""
HELD = "SELECT count(*) FROM queue_message WHERE exchange <> %s AND ordering_key IS NULL"
"""What is not paused, and cannot stand behind something that is."""
TRIED = "SELECT count(*) FROM queue_message_archive WHERE exchange = %s AND handled_by <> 'fold'"
"""Messages of a paused exchange that a relay has handled nonetheless."""
KEYED = "SELECT count(*) FROM queue_message_keyed_row"
"""What waits until it is folded."""
TRIES = "SELECT id::text, attempts FROM queue_message_archive WHERE result = 'success' AND attempts > 1"
"""What was delivered and has lost an attempt."""
PARTS = """
    SELECT split_part(error_detail, ' ', 3), id::text FROM queue_message_archive WHERE error_code = 'bundled'
"""
"""Of each bundle its id, and that of its only part."""
WHERE = "SELECT state, attempts, error_code, error_detail FROM queue_message_state WHERE id = %s"


def neighbour(row: Row) -> Row:
    """A good row for the same queue, through the same exchange if that takes any, under the same key if it keeps its id there."""
    exchange = row.exchange if row.exchange in EXCHANGES and row.exchange != WORLDS[row.world].forbidden else DIRECT
    keyed = "" if row.keyed == BUNDLE else row.keyed
    return row._replace(exchange=exchange, write="", key=OPEN, keyed=keyed, options=PLAIN, columns=PLAIN, headers={}, code="")


@dataclass
class Play:
    """One world, its relay, and what was sent through it."""

    name: str
    queue: Queue
    arrivals: Arrivals
    relay: RelayProcess = field(init=False)
    sent: dict[str, Row] = field(default_factory=dict)
    smuggled: set[str] = field(default_factory=set)
    """Ids of those that the database would have refused."""
    _inserting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def world(self) -> World:
        """What limits it."""
        return WORLDS[self.name]

    @property
    def connections(self) -> int:
        """How often the relay has connected."""
        return len(self.relay.of("broker_up"))

    async def put(self, rows: Sequence[Row]) -> None:
        """Insert rows, each accepted one next to a good one; smuggle in those that are refused; wait for the good ones."""
        good = {str(uuid4()): neighbour(row) for row in rows if not row.refusals()}
        async with self._inserting:
            await self._insert_all({str(uuid4()): row for row in rows}, good)
        await self._await({(row.queue, id_) for id_, row in good.items() if row.results() == {("success", None)} and not self._waits(row)})

    async def _insert_all(self, given: Mapping[str, Row], good: Mapping[str, Row]) -> None:
        states = await self._insert({**given, **good})
        wrong = [f"{row}: {states[id_]}" for id_, row in given.items() if bool(states[id_]) != bool(row.refusals())]
        assert not wrong, wrong[:10]
        refused = [row for id_, row in given.items() if states[id_] == CHECK_VIOLATION and row.columns.outcome != "refused"]
        async with unchecked(self.queue):
            states = await self._insert({str(uuid4()): row for row in refused}, smuggle)
        assert {""} >= {*states.values()}, {*states.values()}
        self.smuggled |= states.keys()

    async def _insert(self, rows: Mapping[str, Row], how: Callable[[Row, str], sql.Composed] = insert) -> dict[str, str]:
        """SQLSTATE by id, empty for what was taken."""
        statements = [how(row, id_).as_string(self.queue.connection) for id_, row in rows.items()]
        taken = await self.queue.sql("SELECT pg_temp.attempt(statement) FROM unnest(%s::text[]) AS statement", statements)
        states = {id_: state for id_, (state,) in zip(rows, taken, strict=True)}
        self.sent |= {id_: row for id_, row in rows.items() if not states[id_]}
        return states

    async def _await(self, owed: set[tuple[str, str]]) -> None:
        """Expect ids at the ends of kinds soon; what has not come is shown with where it is, and whether it was late or lost."""
        missing = sorted(await self.arrivals.wait_for(owed, PROMPT))[:10]
        shown = [f"{kind}: {self.sent[id_]}, {await self.queue.sql(WHERE, id_)}" for kind, id_ in missing]
        late = f"{len(missing) - len(await self.arrivals.wait_for(missing, AT_LAST))} of them came later" if missing else ""
        assert not missing, f"{self.name}: of {len(owed)} are missing after {PROMPT:g} s: {shown}, {late}, {self.relay.lines[-3:]}"

    def _waits(self, row: Row) -> bool:
        """Whether it is paused, or may stand behind something that is."""
        return bool(self.world.paused) and (row.target["exchange"] == self.world.paused or row.under == ORDERING)

    async def end(self) -> None:
        """Wait for the end of all rows, then for one more at each queue, and for what is still on its way."""
        await asyncio.to_thread(assert_nothing_is_lost, self.queue.url, watched=True)
        await until(self._is_folded, AT_LAST)
        if self.world.paused:
            await until(self._is_held, AT_LAST)
            assert 0 == await self.queue.value(TRIED, self.world.paused)
            await self.queue.sql("SELECT queue_message_resume(%s)", self.world.paused)
        await self.queue.settled(seconds=AT_LAST)
        last = {str(uuid4()): Row(self.name, DIRECT, "", OPEN, kind, "", PLAIN, PLAIN, {}, "") for kind in KINDS}
        await self._insert(last)
        await self._await({(row.queue, id_) for id_, row in last.items()})
        await self.queue.settled(seconds=AT_LAST)
        self.arrivals.rename(dict(await self.queue.sql(PARTS)))
        archive = await self.archive()
        await self._await({(kind, id_) for (kind, id_), (least, _) in self.owed(archive).items() if least})
        await self.arrivals.subscribers.wait_for({heard: least for heard, (least, _) in self.owed_to_subscribers(archive).items()}, PROMPT)

    async def _is_folded(self) -> bool:
        return bool(0 == await self.queue.value(KEYED))

    async def _is_held(self) -> bool:
        return bool(0 == await self.queue.value(HELD, self.world.paused))

    async def archive(self) -> dict[str, Result]:
        """Result and code by id; of a part of a bundle, those of the bundle."""
        rows = await self.queue.sql("SELECT id::text, result, error_code FROM queue_message_archive")
        ended = {id_: (result, code) for id_, result, code in rows}
        return ended | {part: ended.pop(bundle) for bundle, part in await self.queue.sql(PARTS)}

    def owed(self, archive: Mapping[str, Result]) -> dict[tuple[str, str], tuple[int, int]]:
        """How many copies must, and may, have come to the end of each kind."""
        found = {}
        for id_, row in self.sent.items():
            for kind in row.reaches():
                found[kind, id_] = self._copies(row, kind, archive[id_])
        return found

    def owed_to_subscribers(self, archive: Mapping[str, Result]) -> dict[Heard, tuple[int, int]]:
        """How many copies must, and may, have come to each subscription: of what any queue was found for through an exchange."""
        found: dict[Heard, tuple[int, int]] = {}
        for id_, row in self.sent.items():
            if row.exchange != DEFAULT and row.reaches():
                heard = row.target["routing_key"], row.payload
                copies = found.get(heard, (0, 0)), self._copies(row, "", archive[id_])
                found[heard] = sum(least for least, _ in copies), sum(most for _, most in copies)
        return found

    def _copies(self, row: Row, kind: str, ended: Result) -> tuple[int, int]:
        """A channel that is closed repeats what was in flight, in each attempt, and so does a connection that is lost."""
        least, most = _copies(row, kind, ended)
        return least, most and most * (1 + row.may_be_repeated) + self.connections - 1

    async def mistakes(self) -> Iterator[str]:
        """What did not end as it must."""
        archive = await self.archive()
        assert archive.keys() == self.sent.keys()
        tried = await self.queue.sql(TRIES)
        found = (*self._ended(archive), *self._repeated(archive), *self._changed(), *self._robbed(tried))
        heard = self.arrivals.subscribers.mistakes(self.owed_to_subscribers(archive))
        return (f"{self.name}: {each}" for each in (*found, *heard))

    def _ended(self, archive: Mapping[str, Result]) -> Iterator[str]:
        for id_, row in self.sent.items():
            results = row.smuggled_results() if id_ in self.smuggled else row.results()
            if archive[id_] not in results:
                yield f"{archive[id_]}, not {results}: {row}"

    def _robbed(self, tried: Sequence[tuple[str, int]]) -> Iterator[str]:
        for id_, attempts in tried:
            if id_ in self.sent and not self.sent[id_].may_be_repeated:
                yield f"delivered in attempt {attempts}: {self.sent[id_]}"

    def _repeated(self, archive: Mapping[str, Result]) -> Iterator[str]:
        counted, owed = self.arrivals.counted(), self.owed(archive)
        for place in {*owed, *(place for place in counted if place[1] in self.sent)}:
            least, most = owed.get(place, (0, 0))
            if not least <= counted[place] <= most:
                yield f"{counted[place]} copies at {place[0]}, not {least} to {most}, {archive[place[1]]}: {self.sent[place[1]]}"

    def _changed(self) -> Iterator[str]:
        for id_, row in self.sent.items():
            for kind in row.reaches():
                for delivery in self.arrivals.of(kind, id_):
                    if found := altered(row, kind, delivery):
                        yield f"{found} at {kind}: {row}"


def _copies(row: Row, kind: str, ended: Result) -> tuple[int, int]:
    refuses = KINDS[row.queue].refuses
    if ended == ("success", None):
        stays = kind in KINDS and (KINDS[kind].dead_letters or kind == "stream")
        return int(stays or not row.vanishes), ATTEMPTS if refuses else 1
    if ended == ("failed", "nacked"):
        return int(kind != "rejecting" and not row.vanishes), ATTEMPTS
    return 0, 0
