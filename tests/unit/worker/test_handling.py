"""What becomes of claims in the hands of a handler: one result each, whatever it does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.message import Batch, Claim, Verdict
from relay.worker.dispatcher import Dispatcher
from relay.worker.outcomes import Reject, Retry, verdict

FAR = 1e12


def batch(count: int, deadline: float = FAR) -> Batch:
    """Claims, numbered."""
    claims = [Claim(1, seq, str(seq), "e", "k", b"{}", False, None, None, None, 1, None) for seq in range(count)]
    return Batch("token", claims, 0.0, 0.0, deadline, "fresh")


def handling(run: Any, *, group: int = 1, concurrency: int = 4, seconds: float | None = None, **more: Any) -> Dispatcher:
    """Over a handler of the test's."""
    told = {"left_locked": lambda: None, "stuck": lambda: None, **more}
    return Dispatcher(run=run, group=group, concurrency=concurrency, seconds=seconds, **told)


async def results(handled: Dispatcher, given: Batch) -> dict[int, str]:
    """Every result, by number; each claim has exactly one."""
    found: dict[int, str] = {}
    async for portion in handled.publish(given):
        for claim, result in zip(portion.claims, portion.results, strict=True):
            assert claim.seq not in found
            found[claim.seq] = f"{result.verdict.value} {result.code}".strip()
    return found


@given(st.lists(st.sampled_from(["return", "fail", "reject"]), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 4))
def test_every_claim_has_one_result_of_its_own(ends: list[str], group: int, concurrency: int) -> None:
    """In whatever groups they are handed over, a bad one spoils no neighbour."""

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        for claim in claims:
            await asyncio.sleep(0)
            if ends[claim.seq] == "fail":
                raise ValueError
            if ends[claim.seq] == "reject":
                raise Reject("no")

    words = {"return": "confirmed", "fail": "refused handler_failed", "reject": "invalid handler_rejected"}
    found = asyncio.run(results(handling(run, group=group, concurrency=concurrency), batch(len(ends))))
    assert {place: words[end] for place, end in enumerate(ends)} == found


async def test_no_more_handlers_run_than_may() -> None:
    """And as many as may."""
    running, most = 0, 0

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        nonlocal running, most
        running += len(claims)
        most = max(most, running)
        await asyncio.sleep(0)
        running -= len(claims)

    await results(handling(run, concurrency=3), batch(20))
    assert 3 == most


async def test_after_a_hold_nothing_begins_and_what_runs_may_end() -> None:
    """What waits for its turn goes back."""
    go, began = asyncio.Event(), asyncio.Event()

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        assert claims
        began.set()
        await go.wait()

    handled = handling(run, concurrency=1)
    found = asyncio.create_task(results(handled, batch(3)))
    await began.wait()
    handled.stop_writing()
    go.set()
    assert {0: "confirmed", 1: "unwritten stopped", 2: "unwritten stopped"} == await found


async def test_after_a_cut_what_runs_is_unknown() -> None:
    """Its lock stays, since its effects are unknown."""
    began = asyncio.Event()

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        assert claims
        began.set()
        await asyncio.get_running_loop().create_future()

    handled = handling(run, concurrency=1)
    found = asyncio.create_task(results(handled, batch(2)))
    await began.wait()
    handled.cut()
    assert {0: "unknown stopped", 1: "unwritten stopped"} == await found
    await handled.aclose()
    assert not handled.hangs


async def test_nothing_begins_under_a_lock_that_is_about_to_expire() -> None:
    """Somebody else could have it before the handler ends its first line."""

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        raise AssertionError(claims)

    assert {0: "unwritten deadline"} == await results(handling(run), batch(1, deadline=0.0))


async def test_a_lock_that_is_about_to_expire_keeps_no_neighbour_of_its_group_from_its_handler() -> None:
    """Another session held that one row when the locks were renewed: each of the group goes by itself."""
    groups: list[int] = []

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        groups.append(len(claims))

    work = batch(3)
    work.behind[work.claims[1].position] = 0.0
    found = await results(handling(run, group=3), work)

    assert {0: "confirmed", 1: "unwritten deadline", 2: "confirmed"} == found
    assert [1, 1] == groups


async def test_handlers_that_heed_no_end_are_told_of_when_all_places_are_taken() -> None:
    """Each keeps its place, and its message is left to its lock."""
    go, left, stuck = asyncio.Event(), list[bool](), list[bool]()

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        assert claims
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    handled = handling(run, concurrency=2, seconds=0.01, left_locked=lambda: left.append(True), stuck=lambda: stuck.append(True))
    found, hangs = await results(handled, batch(2)), handled.hangs
    go.set()
    assert {0: "overdue time_limit", 1: "overdue time_limit"} == found
    assert ([True] * 2, [True], True) == (left, stuck, hangs)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, (Verdict.CONFIRMED, "", "")),
        (Reject("why", code="order_unknown"), (Verdict.INVALID, "order_unknown", "why")),
        (Reject("why", code="no code; DROP"), (Verdict.INVALID, "handler_rejected", "why")),
        (Retry("a\nb\x1b[31m"), (Verdict.REFUSED, "handler_failed", "Retry: a b [31m")),
        (Retry("x" * 9000), (Verdict.REFUSED, "handler_failed", ("Retry: " + "x" * 9000)[:500])),
        (ValueError("4111 1111"), (Verdict.REFUSED, "handler_failed", "ValueError")),
        (KeyError("4111 1111"), (Verdict.REFUSED, "handler_failed", "KeyError")),
    ],
)
def test_how_a_handler_ended_says_what_becomes_of_its_message(error: BaseException | None, expected: tuple[Any, ...]) -> None:
    """In one line, fit for the archive and a log."""
    found = verdict(error)
    assert expected == (found.verdict, found.code, found.detail)


class Mute(Exception):  # noqa: N818 - a handler's
    """An exception that fails even at its own text."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [Mute(), Reject("no", code=404), SystemExit(3), asyncio.CancelledError()])  # type: ignore[arg-type]
async def test_nothing_that_a_handler_raises_leaves_its_message_without_a_result(error: BaseException) -> None:
    """Nor does it leave its neighbours without one: the loop continues."""

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        if claims[0].seq == 1:
            raise error

    found = await results(handling(run), batch(3))
    assert ["confirmed", "confirmed"] == [found[0], found[2]]
    assert found[1].split()[1] in {"handler_failed", "handler_rejected"}


async def test_slow_handlers_that_end_after_all_are_no_reason_to_leave() -> None:
    """Only those that hang at the same time count."""
    stuck = list[bool]()
    go = asyncio.Event()

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        assert claims
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    handled = handling(run, concurrency=2, seconds=0.01, stuck=lambda: stuck.append(True))
    for _ in range(3):
        go.clear()
        assert {0: "overdue time_limit"} == await results(handled, batch(1))
        go.set()
        while handled.hangs:  # noqa: ASYNC110 - it ends by itself
            await asyncio.sleep(0)
    assert [] == stuck


async def test_a_list_that_is_cut_off_keeps_its_lock_as_a_whole() -> None:
    """It may have been handled; none of it is handed over again here."""
    began = asyncio.Event()
    calls = list[int]()

    async def run(_: Batch, claims: Sequence[Claim]) -> None:
        calls.append(len(claims))
        began.set()
        await asyncio.get_running_loop().create_future()

    handled = handling(run, group=3)
    found = asyncio.create_task(results(handled, batch(3)))
    await began.wait()
    handled.cut()
    assert dict.fromkeys(range(3), "unknown stopped") == await found
    assert [3] == calls
