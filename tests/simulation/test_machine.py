"""The same world, driven by hypothesis: it looks for the shortest way to break a promise."""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.simulation.broker import NOWHERE
from tests.simulation.ending import finish
from tests.simulation.schedule import POLICIES
from tests.simulation.troubles import HOUR
from tests.simulation.world import BAD, EXCHANGES, FATES, GOOD, GROUPS, KEYS, STATES, World

WHICH = st.integers(0, 3)
SECONDS = st.floats(0.001, 3.0, allow_nan=False)
HOW = st.sampled_from(["drain", "crash", "freeze", "drop"])


class Worlds(RuleBasedStateMachine):
    """Writers, operators and faults around relays."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()

    @initialize(seed=st.integers(0, 2**32), parks=st.booleans(), strict=st.booleans())
    def prepare(self, seed: int, parks: bool, strict: bool) -> None:
        """Two relays; delays and fates come from the seed."""
        self.world = self._stack.enter_context(World(seed).running())
        self.world.database.settings["on_dead_key"] = "park" if parks else "continue"
        self.world.database.settings["on_lock_expired"] = "archive" if strict else "retry"
        self.world.broker.become(BAD, "missing")
        self.world.start()
        self.world.start()

    @rule(
        exchange=st.sampled_from(EXCHANGES),
        key=st.none() | st.sampled_from(KEYS),
        wait=st.just(0.0) | SECONDS,
        expires=st.just(0.0) | SECONDS,
        key_of=st.sampled_from(["new", "new", "new", NOWHERE]),
        refused=st.sampled_from([False, False, False, True]),
    )
    def insert(self, exchange: str, key: str | None, wait: float, expires: float, key_of: str, refused: bool) -> None:
        """A message: plain, ordered, delayed, expiring, unroutable, or one that the archive does not take."""
        self.world.insert(exchange, key, wait=wait, expires=expires, key_of=key_of, refused=refused)

    @precondition(lambda self: len(self.world.writers) < 3)
    @rule()
    def begin(self) -> None:
        """A writer begins, and others end before it."""
        self.world.begin()

    @rule(which=WHICH, well=st.booleans())
    def end(self, which: int, well: bool) -> None:
        """A writer ends."""
        (self.world.commit if well else self.world.roll_back)(which)

    @rule(which=WHICH)
    def take_back(self, which: int) -> None:
        """A writer rolls back to a savepoint."""
        self.world.roll_back_to_savepoint(which)

    @rule(most=st.integers(1, 3), seconds=SECONDS | st.floats(3.0, 20.0, allow_nan=False), locked=st.booleans())
    def hold(self, most: int, seconds: float, locked: bool) -> None:
        """Somebody locks messages and changes nothing, for long at times, and such as relays have."""
        self.world.hold(most, seconds, locked=locked)

    @rule(most=st.integers(0, 3))
    def refuse(self, most: int) -> None:
        """A trigger refuses the UPDATE of messages that wait, or is gone."""
        self.world.refuse(most) if most else self.world.refuse_none()

    @rule(messages=st.integers(1, 9), higher=st.booleans())
    def restore(self, messages: int, higher: bool) -> None:
        """Messages of another cluster come back."""
        self.world.restore(messages, higher=higher)

    @rule()
    def renumber(self) -> None:
        """They get positions of this cluster."""
        self.world.renumber()

    @rule(seconds=st.sampled_from([0.0, 30.0, -30.0, HOUR, -HOUR]))
    def set_clock(self, seconds: float) -> None:
        """The server's clock is set."""
        self.world.set_clock(seconds)

    @rule()
    def lose_partition(self) -> None:
        """The archive cannot take anything."""
        self.world.lose_partition()

    @rule(what=st.sampled_from(POLICIES))
    def decide(self, what: tuple[str, str]) -> None:
        """An operator changes the policy."""
        self.world.decide(*what)

    @rule(which=WHICH, seconds=st.floats(0.1, 40.0, allow_nan=False))
    def jump(self, which: int, seconds: float) -> None:
        """A relay's clock goes ahead."""
        self.world.jump(which, seconds)

    @rule(slow=st.sampled_from([0.0, 0.2, 3.0]))
    def slow_down(self, slow: float) -> None:
        """Confirms come late."""
        self.world.broker.slow = slow

    @rule(away=st.booleans())
    def restart_broker(self, away: bool) -> None:
        """The broker goes or comes back."""
        self.world.restart_broker(away)

    @rule(seconds=SECONDS)
    def restart_database(self, seconds: float) -> None:
        """PostgreSQL goes and comes back."""
        self.world.restart_database(seconds)

    @rule()
    def sweep(self) -> None:
        """The sweep of pg_cron."""
        self.world.sweep()

    @rule(seconds=st.floats(0.001, 20.0, allow_nan=False))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.world.step(seconds)

    @rule()
    def start(self) -> None:
        """One more relay."""
        self.world.start()

    @rule(which=WHICH, how=HOW)
    def hit(self, which: int, how: str) -> None:
        """Something happens to a relay."""
        getattr(self.world, how)(which)

    @rule(which=WHICH, lag=st.booleans())
    def thaw(self, which: int, lag: bool) -> None:
        """A frozen relay continues."""
        self.world.thaw(which, lag)

    @rule(which=WHICH, group=st.sampled_from(sorted(GROUPS)), kind=st.sampled_from(FATES), seconds=SECONDS)
    def lose(self, which: int, group: str, kind: str, seconds: float) -> None:
        """A statement goes wrong."""
        self.world.lose_statement(which, group, kind, seconds)

    @rule(which=WHICH, seconds=SECONDS)
    def lose_database(self, which: int, seconds: float) -> None:
        """A relay cannot reach the database."""
        self.world.lose_database(which, seconds)

    @rule(exchange=st.sampled_from(GOOD), state=st.sampled_from(STATES))
    def become(self, exchange: str, state: str) -> None:
        """An exchange changes."""
        self.world.broker.become(exchange, state)

    @rule(blocked=st.booleans())
    def block(self, blocked: bool) -> None:
        """A resource alarm begins or ends."""
        self.world.broker.block(blocked)

    @rule(exchange=st.sampled_from(EXCHANGES), paused=st.booleans())
    def pause(self, exchange: str, paused: bool) -> None:
        """An operator holds an exchange or lets it go."""
        self.world.pause(exchange, paused)

    @rule(key=st.sampled_from(KEYS), what=st.sampled_from(["park", "resume", "skip"]))
    def operate(self, key: str, what: str) -> None:
        """An operator acts on a key."""
        if what == "skip":
            self.world.skip(key)
        else:
            self.world.park(key, what == "park")

    @invariant()
    def promises_hold(self) -> None:
        """A moment passes, and everything is checked."""
        self.world.step(0.02)

    def teardown(self) -> None:
        """When the faults stop everything goes out in time."""
        try:
            if hasattr(self, "world"):
                finish(self.world)
        finally:
            self._stack.close()


Worlds.TestCase.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
TestWorlds = Worlds.TestCase
