"""Tools for every scene: the database, the relays, the messages that a consumer received, and a class for findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection

from relay.demo.polling import until
from relay.demo.scenes.audience import Audience
from relay.demo.sidecars import Sidecars
from relay.demo.statements import statement

_LOOK: Final = 0.05


class Check(NamedTuple):
    """A number that a scene has found, and the expected number."""

    words: str
    found: int
    must_be: int


class Ending(NamedTuple):
    """The result of a message."""

    result: str
    code: str | None
    detail: str | None


class Stage:
    """The environment of the scenes.

    Args:
        database_url: the database with the outbox.
        sidecars: run the commands of `relay`.
        audience: the messages that consumers received.
        say: prints a line.
    """

    def __init__(self, database_url: str, sidecars: Sidecars, audience: Audience, say: Callable[[str], None]) -> None:
        self._database_url = database_url
        self.say = say
        self.sidecars = sidecars
        self.audience = audience

    async def connect(self) -> AsyncConnection:
        """Return a connection that, like an application's, begins a transaction with its first statement."""
        return await AsyncConnection.connect(self._database_url, application_name="example desk")

    async def commit(self, *statements: tuple[str, Mapping[str, object]]) -> list[tuple[Any, ...] | None]:
        """Run statements in one transaction; return the first row of each, None for a statement without rows."""
        async with await self.connect() as connection:
            cursors = [await connection.execute(statement(name), values) for name, values in statements]
            return [await cursor.fetchone() if cursor.description else None for cursor in cursors]

    async def count(self, name: str, **values: object) -> int:
        """The number that a statement returns."""
        [row] = await self.commit((name, values))
        return int(row[0]) if row else 0

    async def ending(self, id_: str) -> Ending:
        """Wait until a message is archived; return its result."""
        found: list[tuple[Any, ...] | None] = [None]

        async def archived() -> bool:
            found[:] = await self.commit(("scene_result", {"id": id_}))
            return found[0] is not None

        await until(archived, every=_LOOK)
        return Ending(*found[0] or ())
