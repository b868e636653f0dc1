"""When work counts as sustained."""

from __future__ import annotations

from relay.wakeup import Work


def judged(per_second: int, seconds: float, *, each: int = 1, work: Work | None = None, began: float = 1000.0) -> list[bool]:
    """Verdicts, one after each find of a steady flow."""
    work = work or Work()
    steps = int(per_second * seconds / each)
    verdicts = []
    for step in range(steps):
        now = began + step * each / per_second
        work.found(each, now)
        verdicts.append(work.sustained(now))
    return verdicts


def test_a_trickle_is_not_sustained_work() -> None:
    """Two hundred single messages a second keep the gate, so that each is claimed the moment it is committed."""
    assert not any(judged(200, 10))


def test_a_flow_is_sustained_work_after_less_than_a_second() -> None:
    """Writers get their group commit back."""
    verdicts = judged(5000, 2, each=50)

    assert not verdicts[0]
    assert all(verdicts[75:])


def test_one_burst_is_not_sustained_work() -> None:
    """A transaction of a thousand rows does not make the gate swing."""
    work = Work()
    work.found(500, 100.0)
    work.found(500, 100.05)

    assert not work.sustained(100.1)
    assert not work.sustained(100.3)
    assert not work.sustained(100.6)


def test_work_that_slows_down_a_little_stays_sustained_and_work_that_stops_does_not() -> None:
    """Once let go, the gate is taken again below half of the rate, within half a second of silence."""
    work = Work()
    judged(1000, 2, work=work)

    assert all(judged(240, 2, work=work, began=1002.0))
    assert work.sustained(1004.2)
    assert not work.sustained(1004.5)


def test_finds_far_apart_are_not_in_a_row() -> None:
    """Two full quarters an hour apart are two bursts."""
    work = Work()
    for moment in (0.0, 1000.0, 2000.0):
        work.found(5000, moment)

    assert not work.sustained(2000.2)
