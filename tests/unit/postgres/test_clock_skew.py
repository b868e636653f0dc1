"""By how much a relay's clock is wrong, as far as an answer of the database can tell."""

from __future__ import annotations

import pytest

from relay.postgres.maintenance_store import ahead


@pytest.mark.parametrize(
    ("asked", "clock", "answered", "expected"),
    [
        (100.0, 100.1, 100.2, 0.0),
        (100.0, 109.9, 110.0, 0.0),
        (100.0, 100.0, 100.0, 0.0),
        (3700.0, 100.1, 3700.2, 3599.9),
        (100.0, 3700.1, 100.2, -3599.9),
        (100.0, 99.0, 130.0, 1.0),
        (100.0, 130.5, 130.0, -0.5),
    ],
    ids=["right", "slow answer", "at once", "ahead", "behind", "ahead by a slow answer", "behind by a slow answer"],
)
def test_only_what_the_answers_time_cannot_explain_is_a_wrong_clock(asked: float, clock: float, answered: float, expected: float) -> None:
    """Ahead counts from when it was asked, behind from when it was answered."""
    assert pytest.approx(expected) == ahead(asked, clock, answered)
