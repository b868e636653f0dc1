"""Fixture: what a test leaves to chance, so that a failure can be repeated."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from tests.support.servers.shared import Say


@pytest.fixture
def chance(say: Say, record_property: Callable[[str, object], None]) -> random.Random:
    """What a test leaves to chance; the printed TEST_SEED repeats it."""
    seed = os.environ.get("TEST_SEED") or str(random.getrandbits(32))
    say(f"TEST_SEED={seed}")
    record_property("seed", seed)
    return random.Random(seed)
