"""Fixtures and options of every test; see tests/support."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess

import pytest
from hypothesis import settings

from relay.devservers.java import QUICK_START

pytest_plugins = [
    f"tests.support.{name}"
    for name in (
        "pages.conventions",
        "servers.in_memory",
        "servers.shared",
        "servers.private",
        "database.queue",
        "database.claimers",
        "random_seed",
        "relays.cli",
        "database.checking",
        "relays.processes",
        "faults.runner",
        "xdist_order",
        "slow_tests",
        "database.inboxes",
    )
]

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
"""No example fails because the machine was busy."""


def pytest_configure() -> None:
    """Forget the user's own servers and settings, here and in every process that a test starts, and hear SIGINT; Spark starts quickly.

    A shell in the background starts its commands with SIGINT ignored, and so would every process here be.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in list(os.environ):
        if name.startswith(("RELAY_", "PG")) or name == "AMQP_URL":
            del os.environ[name]
    os.environ.update(QUICK_START)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Never leave out a container test in silence: it is skipped with a reason, or fails with REQUIRE_DOCKER=1."""
    if item.get_closest_marker("docker") is None or _docker_answers():
        return
    reason = "no Docker engine answers here (REQUIRE_DOCKER=1 makes this a failure)"
    if os.environ.get("REQUIRE_DOCKER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def _docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=30).returncode == 0
