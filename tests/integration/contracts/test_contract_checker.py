"""The process in which large contents are checked, as the relay starts, asks and ends it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from relay.contracts.large_checks import CheckFailure, CheckResult, LargeChecks, _send
from tests.support.database.queue import until

pytestmark = pytest.mark.ids("A37")
KEPT = CheckResult([None], None)
HOSTILE = b"[%s]" % b",".join(b"%d" % (10**60 + n) for n in range(8000))
"""By `uniqueItems` each is compared with each."""


@pytest.fixture
async def checker() -> AsyncIterator[LargeChecks]:
    """One that is closed in the end."""
    made = LargeChecks()
    yield made
    await made.aclose()


def process_of(checker: LargeChecks) -> asyncio.subprocess.Process:
    """The one that it has now."""
    assert checker._process is not None
    return checker._process


def processes() -> list[int]:
    """Children of this process that check contents, including those that no code has noticed yet."""
    children = [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return [pid for pid in children if b"relay.contracts.check_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Is set where a process is there, and its checker does not know yet."""
    there, start = asyncio.Event(), asyncio.create_subprocess_exec

    async def slowly(*command: str, **how: Any) -> asyncio.subprocess.Process:
        process = await start(*command, **how)
        there.set()
        for _ in range(9):
            await asyncio.sleep(0)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
    return there


def processor_seconds(pid: int) -> float:
    """What a process has had."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def environment_of(pid: int) -> list[bytes]:
    """Variables with which a process was started."""
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.parametrize("noticed", [True, False])
async def test_a_process_that_was_killed_between_two_contents_blames_neither(checker: LargeChecks, noticed: bool) -> None:
    """Another one is asked, whether or not the relay has seen the end of the first."""
    assert KEPT == await checker.judge("orders", b"{}", ["true"])
    first = process_of(checker)
    os.kill(first.pid, signal.SIGKILL)
    if noticed:
        await first.wait()

    assert KEPT == await checker.judge("orders", b"{}", ["true"])


@pytest.mark.parametrize("reused", [True, False])
async def test_a_process_that_is_killed_as_it_checks_ends_that_check_once_it_was_made_for_it(checker: LargeChecks, reused: bool) -> None:
    """So a content that has its process killed is asked about once, or twice where the first process had served another one."""
    if reused:
        assert KEPT == await checker.judge("orders", b"{}", ["true"])
    killed = list[int]()

    def is_killed() -> bool:
        process = checker._process
        if process is not None and process.pid not in killed:
            killed.append(process.pid)
            process.kill()
        return len(killed) == 1 + reused

    async with asyncio.timeout(60):
        judged, _ = await asyncio.gather(checker.judge("orders", HOSTILE, ['{"uniqueItems": true}']), until(is_killed, 60))
    assert CheckResult([], CheckFailure.LOST) == judged


async def test_a_process_that_is_killed_once_it_has_answered_is_asked_for_nothing_more(checker: LargeChecks) -> None:
    """What it has found counts."""
    assert KEPT == await checker.judge("orders", b"{}", ["true"])
    process = process_of(checker)
    began = processor_seconds(process.pid)
    checking = asyncio.create_task(checker.judge("orders", HOSTILE, ["true", '{"uniqueItems": true}']))
    await until(lambda: processor_seconds(process.pid) > began + 0.5)
    process.kill()

    async with asyncio.timeout(60):
        assert CheckResult([None], CheckFailure.LOST) == await checking


async def test_a_content_that_takes_too_long_by_the_clock_is_asked_about_once(
    checker: LargeChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the process had served another one."""
    monkeypatch.setattr("relay.contracts.large_checks._WALL_CLOCK_FACTOR", 0.2)
    assert KEPT == await checker.judge("orders", b"{}", ["true"])
    process_of(checker).send_signal(signal.SIGSTOP)

    async with asyncio.timeout(60):
        assert CheckResult([], CheckFailure.LOST) == await checker.judge("orders", b"{}", ["true"])


async def test_no_content_is_blamed_for_the_memory_that_others_left(checker: LargeChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas that were compiled stay: what then finds too little memory in the process is checked in another one."""
    monkeypatch.setattr("relay.contracts.large_checks.of_check", lambda size: (size and 48) << 20)
    large = [{"properties": {f"a{n}_{m}": {"type": "integer", "minimum": m} for m in range(4000)}} for n in range(12)]
    pids = list[int]()
    for schema in large:
        assert KEPT == await checker.judge("orders", b"{}", [json.dumps(schema)])
        pids.append(process_of(checker).pid)
    assert 1 < len({*pids}) < len(large)


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_pipe_that_is_closed_is_told_under_each_loop(loops: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The process has ended and the relay knows: what is written to it raises OSError, and no error of a loop's own."""
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(_write_to_one_that_ended())


async def _write_to_one_that_ended() -> None:
    process = await asyncio.create_subprocess_exec("true", stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    await process.wait()
    process.stdin.close()
    with pytest.raises(OSError):  # noqa: PT011 - whichever it is
        await _send(process, b"{}")


@pytest.mark.parametrize("before", ["nothing", "a check waits", "the process starts", "a content is checked"])
async def test_a_checker_that_was_closed_starts_no_process(starting: asyncio.Event, before: str) -> None:
    """At whatever moment; what waits for its check hears that there is none."""
    checker, loop = LargeChecks(), asyncio.get_running_loop()
    waiting = [loop.create_task(checker.judge(name, HOSTILE, ['{"uniqueItems": true}'])) for name in ("orders", "audit", "orders")]
    if before == "a check waits":
        await asyncio.sleep(0)
    if before in ("the process starts", "a content is checked"):
        await starting.wait()
    if before == "a content is checked":
        await until(lambda: checker._process is not None and processor_seconds(checker._process.pid) > 0.5)
    async with asyncio.timeout(2):
        await checker.aclose()
        assert [] == processes()
        assert [CheckResult([], CheckFailure.LOST)] * 3 == await asyncio.gather(*waiting)
        assert CheckResult([], CheckFailure.LOST) == await checker.judge("orders", b"{}", ["true"])
        assert [] == processes()


async def test_a_check_that_is_cut_off_as_its_process_starts_leaves_none_behind(starting: asyncio.Event) -> None:
    """The relay would not know of it."""
    checker = LargeChecks()
    checking = asyncio.create_task(checker.judge("orders", b"{}", ["true"]))
    await starting.wait()
    checking.cancel()
    await asyncio.wait([checking])
    await checker.aclose()
    assert [] == processes()


async def test_the_process_starts_as_the_relay_did_and_knows_no_secret(checker: LargeChecks, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds Python's libraries, and its environment contains no password."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/python/lib")
    monkeypatch.setenv("RELAY_DATABASE_URL", "postgresql://relay:hunter22@db/app")
    assert KEPT == await checker.judge("orders", b"{}", ["true"])

    environment = environment_of(process_of(checker).pid)
    assert b"LD_LIBRARY_PATH=/opt/python/lib" in environment
    assert not [variable for variable in environment if variable.startswith((b"RELAY_", b"AMQP", b"PG"))]
