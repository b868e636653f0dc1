"""Learns of inserted messages. NOTIFY is a hint; the poll is the guarantee.

A NOTIFY in each commit deprives writers of group commit, so by default writers notify only while a relay sleeps. The gate shows writers
whether a relay sleeps: it is an advisory lock that an idle relay holds in exclusive mode, and that writers try to take in shared mode. A
relay takes the gate, polls the queue once more, and only then sleeps. A writer that inserts without a NOTIFY holds the gate until its
commit. The relay can take the gate only after that commit, so its last poll finds the message.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import psycopg

from relay import events
from relay.aio import pause
from relay.net.secret_url import Conninfo
from relay.postgres.errors import reason
from relay.postgres.notification_listener import FLOOD, FloodError, ListenVerificationError, NotificationListener
from relay.postgres.timeouts import HEARING
from relay.queries.statements import Statements

PROOF = 10.0
"""Seconds between two checks that LISTEN works."""
AGAIN = 1.0
"""Seconds before a retry of a gate that another relay holds, and between two reads of the mode."""
PATIENCE = 0.1
"""Seconds that the engine waits for the gate; a gate that is taken later gives the engine a hint instead."""
LONGEST_PAUSE = 30.0
"""Seconds between two tries to connect."""
_POOLED = (
    "LISTEN is not heard, as behind a PgBouncer in transaction mode: set RELAY_LISTEN_URL to PostgreSQL itself, or run "
    "relay config set notify off. Until then the relay polls."
)
_FLOODED = (
    f"LISTEN is left for a while, since more than {FLOOD:,} notifications came within a second: see in pg_stat_activity who notifies. "
    "Until it is back the relay polls."
)


class LoadDetector:
    """Distinguishes sustained work from single messages and bursts; no I/O.

    Work is sustained once two quarters of a second in a row have a hundred messages each. It stays sustained until a quarter has fewer than
    fifty. Below that rate a NOTIFY in each commit harms no writer, and a claim at each NOTIFY saves polls of an empty queue.
    """

    QUARTER = 0.25
    ENOUGH = 100
    IN_A_ROW = 2

    def __init__(self) -> None:
        self._quarter = 0
        self._found = 0
        self._full = 0

    def found(self, messages: int, now: float) -> None:
        """Count messages that a claim found."""
        self._advance(now)
        self._found += messages

    def sustained(self, now: float) -> bool:
        """Whether work is sustained now."""
        self._advance(now)
        return self._full >= self.IN_A_ROW

    def _advance(self, now: float) -> None:
        quarter = int(now / self.QUARTER)
        if quarter == self._quarter:
            return
        enough = self.ENOUGH if self._full < self.IN_A_ROW else self.ENOUGH / 2
        follows = quarter == self._quarter + 1 and self._found >= enough
        self._full = self._full + 1 if follows else 0
        self._quarter, self._found = quarter, 0


class Listener:
    """The port `Wakeup` on LISTEN. It reconnects by itself, and its errors never reach the engine.

    Args:
        conninfo: PostgreSQL itself, or a pooler that lends a session until the client disconnects.
        schema: schema of the queue.
        name: the relay's name, for `application_name`.
        mode: returns idle, always or off; called each second.
        on_hint: called when the queue must be polled at once.
        emit: sink of ListenUp and ListenDown.
        clock: monotonic seconds.
        proof_every: seconds between two checks that LISTEN works.

    """

    def __init__(
        self,
        *,
        conninfo: Conninfo,
        schema: str,
        name: str,
        mode: Callable[[], str],
        on_hint: Callable[[], None],
        emit: events.Sink,
        clock: Callable[[], float] = time.monotonic,
        proof_every: float = PROOF,
    ) -> None:
        self._conninfo = conninfo
        self._application_name = f"outbox-relay/{name} listen"
        self._statements = Statements(schema)
        self._mode = mode
        self._on_hint = on_hint
        self._emit = emit
        self._clock = clock
        self._proof_every = proof_every
        self._work = LoadDetector()
        self._task: asyncio.Task[None] | None = None
        self._listener: NotificationListener | None = None
        """The open connection, once a test notification has arrived."""
        self._wanted = False
        """Whether the engine is idle, so that the gate is wanted."""
        self._holding = False
        self._try_at = 0.0
        self._answer: asyncio.Future[bool] | None = None
        self._down = False

    @property
    def state(self) -> str:
        """`off`, `down`, `up`, or, with the gate, `up, holds the gate`."""
        if self._mode() == "off":
            return "off"
        return "down" if self._listener is None else "up, holds the gate" if self._holding else "up"

    async def start(self) -> None:
        """Begin to connect, and return at once. A second call changes nothing."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="listener")

    async def aclose(self) -> None:
        """Release the gate and the connection; may be called at any time, and repeatedly."""
        task, self._task = self._task, None
        while task is not None and not task.done():
            # The driver may wait long for an unreachable server; a second cancellation makes it drop the connection.
            task.cancel()
            await asyncio.wait({task}, timeout=AGAIN)

    async def idle(self) -> bool:
        """See `relay.ports.Wakeup`: True if the gate was just taken; a gate that is taken later gives the engine a hint instead."""
        self._wanted = True
        if self._listener is None or not self._due():
            return False
        self._answer = asyncio.get_running_loop().create_future()
        self._listener.wake()
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._answer
        except TimeoutError:
            return False

    def busy(self, messages: int) -> None:
        """See `relay.ports.Wakeup`: under sustained work the gate is released in the background."""
        now = self._clock()
        self._work.found(messages, now)
        if self._wanted and self._work.sustained(now):
            self._wanted = False
            if self._listener is not None:
                self._listener.wake()

    def _due(self) -> bool:
        """Whether the relay should try to take the gate now."""
        now = self._clock()
        return self._wanted and not self._holding and self._mode() == "idle" and now >= self._try_at and not self._work.sustained(now)

    async def _run(self) -> None:
        failures = 0
        while True:
            if self._mode() == "off":
                await asyncio.sleep(AGAIN)
                continue
            began = self._clock()
            try:
                sentence = await self._listen()
            except Exception as error:  # noqa: BLE001 - whatever it was, a relay must not stop listening for good, and must report it
                sentence = f"LISTEN is lost and the relay polls until it is back ({type(error).__name__}): report this as a bug."
            failures = 1 if self._clock() - began > LONGEST_PAUSE else failures + 1
            if sentence:
                self._tell_down(sentence)
                await asyncio.sleep(pause(failures, longest=LONGEST_PAUSE))

    async def _listen(self) -> str:
        """Listen on one connection until it ends; return why it ended, or an empty text if the mode became off."""
        listener = NotificationListener(
            conninfo=self._conninfo, application_name=self._application_name, statements=self._statements, on_hint=self._on_hint
        )
        try:
            await listener.open()
            self._up(listener)
            await self._serve(listener)
        except ListenVerificationError:
            return _POOLED
        except FloodError:
            return _FLOODED
        except (psycopg.Error, OSError, UnicodeError) as error:
            return f"LISTEN is lost and the relay polls until it is back: {_reason(error)}."
        finally:
            self._listener, self._holding = None, False
            await listener.aclose()
        return ""

    async def _serve(self, listener: NotificationListener) -> None:
        prove_at = self._clock() + self._proof_every
        while self._mode() != "off":
            now = self._clock()
            if now >= prove_at:
                await listener.prove()
                prove_at = now + self._proof_every
            await self._mind_gate(listener)
            await listener.wait(min(prove_at - self._clock(), self._until_try()))

    async def _mind_gate(self, listener: NotificationListener) -> None:
        if self._holding and not (self._wanted and self._mode() == "idle"):
            await listener.run("release_gate")
            self._holding = False
        elif self._due():
            self._try_at = self._clock() + AGAIN
            self._holding = bool(await listener.run("take_gate"))
            self._tell_taken()

    def _tell_taken(self) -> None:
        """Answer the engine if it waits for the gate; otherwise send a hint."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(self._holding)
        elif self._holding:
            self._on_hint()

    def _until_try(self) -> float:
        if not self._wanted or self._holding:
            return AGAIN
        return max(min(self._try_at - self._clock(), AGAIN), LoadDetector.QUARTER)

    def _up(self, listener: NotificationListener) -> None:
        """Note that notifications arrive again, and send a hint: earlier inserts may have notified no relay."""
        self._listener, self._try_at, self._down = listener, 0.0, False
        self._emit(events.ListenUp())
        self._on_hint()

    def _tell_down(self, sentence: str) -> None:
        if not self._down:
            self._down = True
            self._emit(events.ListenDown(sentence))


def _reason(error: Exception) -> str:
    """The server's own words, or the first line of the driver's error."""
    if isinstance(error, TimeoutError):
        return f"PostgreSQL did not answer within {HEARING:g} seconds"
    if isinstance(error, UnicodeError):
        return "its URL names a host that no resolver can be asked for, correct RELAY_LISTEN_URL or RELAY_DATABASE_URL"
    return reason(error) if isinstance(error, psycopg.Error) else str(error).rstrip(".") or type(error).__name__
