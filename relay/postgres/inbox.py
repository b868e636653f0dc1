"""The receiver's statements: write each delivery once, archive a delivery as rejected, count the messages in the inbox."""

from __future__ import annotations

from collections.abc import Sequence

from relay.engine.policy import Policy
from relay.errors import StoreError
from relay.inbox.delivery import Delivery, Problem
from relay.net.secret_url import Conninfo
from relay.postgres.schema_check import check_version, is_of, other_way
from relay.postgres.session import Session
from relay.queries.statements import Statements

ANSWER = 30.0
"""Seconds that a statement may take: a batch is small, and a server that hangs must be noticed."""

PATIENCE, BRIEF = "1s", "100ms"
"""How long a write waits for another session's lock: PATIENCE for several deliveries, BRIEF for a single one, which is retried later."""


class Inbox:
    """Writes into the inbox of one schema; see `relay.inbox.ports.InboxStore`."""

    def __init__(self, *, conninfo: Conninfo, schema: str, name: str, prepare: bool = True) -> None:
        self._name = name
        self._statements = Statements(schema)
        self._session = Session(conninfo, application_name=f"outbox-relay/{name} receive", prepare=prepare, answer=lambda: ANSWER)
        self._looks = Session(conninfo, application_name=f"outbox-relay/{name} room", prepare=prepare, answer=lambda: ANSWER)
        self._is_inbox = False
        self.max_body_bytes = Policy().max_body_bytes

    async def check(self, needs: int) -> None:
        """Check that the schema holds an inbox, and read its policy.

        Raises:
            StoreError: the schema is too old or holds no inbox: run `relay migrate`, or name another schema.
        """
        [(version,)] = await self._looks.fetch(self._statements["read_version"], {})
        check_version(version, needs)
        await self._read_policy()
        self._check_direction()

    async def _read_policy(self) -> None:
        settings = dict(await self._looks.fetch(self._statements["read_settings"], {}))
        self._is_inbox = is_of("inbox", settings)
        self.max_body_bytes = int(settings.get("max_body_bytes", self.max_body_bytes))

    def _check_direction(self) -> None:
        if not self._is_inbox:
            raise other_way("inbox")

    async def write(self, deliveries: Sequence[Delivery]) -> int:
        """Insert a message for each delivery that was not received from its queue before; return how many were inserted."""
        values = {
            "queues": [each.queue for each in deliveries],
            "message_ids": [each.message_id for each in deliveries],
            "exchanges": [each.exchange for each in deliveries],
            "routing_keys": [each.routing_key for each in deliveries],
            "contents": [each.content for each in deliveries],
            "bodies": [None if each.content is not None else each.payload for each in deliveries],
            "options": [each.options for each in deliveries],
            "patience": PATIENCE if len(deliveries) > 1 else BRIEF,
        }
        self._check_direction()
        # Names of several queues must stay exact, so only a single queue's name may be escaped. A failed write is divided until it has one.
        one = len({each.queue for each in deliveries}) == 1
        [(new, _)] = await self._session.fetch(self._statements["receive"], values, escaped=("queues",) if one else ())
        return int(new)

    async def reject(self, delivery: Delivery, problem: Problem) -> bool:
        """Archive a delivery as rejected; return False if it was received from its queue before."""
        names = {
            "queue": delivery.queue, "message_id": delivery.message_id, "exchange": delivery.exchange,
            "routing_key": delivery.routing_key, "code": problem.code, "sentence": problem.sentence, "handled_by": self._name,
            "patience": BRIEF,
        }  # fmt: skip
        self._check_direction()
        [(new,)] = await self._session.fetch(self._statements["reject_delivery"], {**names, "payload": delivery.payload}, escaped=names)
        return bool(new)

    async def takes_others(self) -> bool:
        """See `relay.inbox.ports.InboxStore`; uses a new connection if the last statement was not answered."""
        try:
            await self._session.fetch(self._statements["try_message"], {})
        except StoreError as error:
            # If an application's trigger refuses the trial message, the database has answered.
            return error.row_is_guilty or error.refused
        return True

    async def waiting(self, most: int) -> int:
        """Messages in the inbox, counted up to one above `most`; also reads the current policy."""
        await self._read_policy()
        [(count,)] = await self._looks.fetch(self._statements["count_inbox"], {"most": most + 1})
        return int(count)

    async def aclose(self) -> None:
        """Close both connections."""
        await self._session.aclose()
        await self._looks.aclose()
