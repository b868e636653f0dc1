"""Runs docker-compose.yml of this repository as a project of its own, on free ports, with nothing of the user's settings."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests import ROOT

PORTS = ("POSTGRES_PORT", "AMQP_PORT", "RABBITMQ_UI_PORT", "HTTP_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")
IMAGES: Mapping[str, str] = {"OUTBOX_IMAGE": "outbox-relay:test", "OUTBOX_POSTGRES_IMAGE": "outbox-relay-postgres:test"}
"""Tags of their own, so that a test does not replace what the user has built."""


def compose_command() -> Sequence[str] | None:
    """The first words of a compose command: Docker's plugin, or docker-compose on the PATH or in this Python's folder; None without one."""
    if _works(["docker", "compose"]):
        return ["docker", "compose"]
    found = shutil.which("docker-compose") or shutil.which("docker-compose", path=Path(sys.executable).parent)
    return [found] if found and _works([found]) else None


def _works(command: Sequence[str]) -> bool:
    try:
        asked = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return False
    return asked.returncode == 0 and not asked.stdout.startswith("1.")


class Compose:
    """One project: its containers, networks and volumes share a random name, and `down` removes them all."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = [*command, "--project-name", f"outbox-test-{secrets.token_hex(4)}", "--env-file", os.devnull, "--progress", "quiet"]
        kept = {name: value for name, value in os.environ.items() if name in {"HOME", "PATH"} or name.startswith("DOCKER_")}
        self._environment = {**kept, **dict.fromkeys(PORTS, "0"), **IMAGES}

    def run(self, *words: str, check: bool = True, seconds: float = 300) -> str:
        """Run a compose command; return what it printed.

        Raises:
            AssertionError: it failed, and why.
        """
        done = subprocess.run(
            [*self._command, *words], cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False, timeout=seconds,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"compose {' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def config(self) -> dict[str, Any]:
        """Everything in docker-compose.yml, of all profiles, as compose understands it."""
        found: dict[str, Any] = json.loads(self.run("--profile", "*", "config", "--format", "json"))
        return found

    def port(self, service: str, inside: int) -> int:
        """The port on loopback that leads to a service's."""
        address, _, port = self.run("port", service, str(inside)).strip().rpartition(":")
        assert address == "127.0.0.1"
        return int(port)

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine knows of a service's only container, running or not."""
        container = self.run("ps", "--all", "--quiet", service).strip()
        [found] = json.loads(docker("inspect", container))
        return dict(found)

    def down(self) -> None:
        """Remove everything of this project; the images stay, so that the next build is quick."""
        self.run("--profile", "*", "down", "--volumes", "--remove-orphans", "--timeout", "5")


def docker(*words: str) -> str:
    """Run a docker command that must succeed; return what it printed."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"docker {' '.join(words)}\n{done.stderr[-3000:]}"
    return done.stdout
