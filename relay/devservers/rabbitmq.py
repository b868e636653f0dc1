"""A private RabbitMQ node, from an installed or fetched server."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from relay.devservers.find import Installation, find_rabbitmq
from relay.devservers.process import LOOPBACK, Keeper, Server, free_ports, kill_family, plain_environment, poll
from relay.errors import LocalServerError

_START_SECONDS = 120.0
_AMQP_HEADER = b"AMQP\x00\x00\x09\x01"


class Certificates(NamedTuple):
    """PEM files for a TLS listener: the server's certificate and key, and the signing authority."""

    certificate: Path
    key: Path
    authority: Path


class RabbitMQ(Server):
    """A private node on free loopback ports, from `with` or `start` on; `stop` keeps its data, `close` removes all.

    Args:
        installation: which RabbitMQ; `find_rabbitmq` by default.
        config: further lines of rabbitmq.conf; they win over the built-in ones.
        plugins: plugins to enable; `rabbitmq_management` listens on `management_port`.
        tls: adds a TLS listener on `tls_port`.
    """

    def __init__(
        self, installation: Installation | None = None, *, config: str = "", plugins: Sequence[str] = (), tls: Certificates | None = None
    ) -> None:
        super().__init__("RabbitMQ", name="rabbitmq", prefix="relay-mq-", stop_by=signal.SIGTERM)
        self.installation = installation or find_rabbitmq()
        self.plugins = tuple(plugins)
        self.port, self.tls_port, self.management_port, self._distribution_port, self._names_port = free_ports(5)
        self._tls, self._config = tls, config
        self._names: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL (amqp) of the user guest, an administrator, in the vhost `/`."""
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/"

    @property
    def tls_url(self) -> str:
        """URL (amqps) of the TLS listener, under the name localhost."""
        return f"amqps://guest:guest@localhost:{self.tls_port}/"

    def pid(self) -> int:
        """Process id of the Erlang machine."""
        self._running()
        return int((self.folder / "pid").read_text())

    def ctl(self, *words: str) -> str:
        """Run rabbitmqctl against this node, and return its output.

        Raises:
            LocalServerError: rabbitmqctl failed; the message ends with its output.
        """
        return self._run("rabbitmqctl", *words)

    def persist_topology(self) -> None:
        """Write new declarations to the disk at once.

        With Mnesia, RabbitMQ answers a declaration before it is on disk. So it may confirm messages for a queue that a crash then loses.
        """
        self.ctl("eval", "catch mnesia:sync_log().")

    def add_vhost(self, name: str) -> str:
        """Make a vhost that guest may use; return its URL."""
        self.ctl("add_vhost", name)
        self.ctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return self.url + name

    def delete_vhost(self, name: str) -> None:
        """Remove a vhost with everything in it."""
        self.ctl("delete_vhost", name)

    def _prepare(self, keeper: Keeper) -> None:
        for name in ("home", "data", "log", "schema"):
            (keeper.folder / name).mkdir()
        (keeper.folder / "rabbitmq.conf").write_text("\n".join([*self._built_in_config(), self._config, ""]))
        (keeper.folder / "plugins").write_text(f"[{','.join(self.plugins)}].\n")
        self._run_names(keeper)

    def _run_names(self, keeper: Keeper) -> None:
        # Otherwise the node starts epmd as a daemon that outlives the node.
        command = ["epmd", "-port", str(self._names_port), "-address", LOOPBACK]
        self._names = keeper.spawn("epmd", self._found(command), self._environment(), end_by="KILL")

    def _launch(self, keeper: Keeper) -> None:
        process = keeper.spawn("rabbitmq", self.installation.command("rabbitmq-server"), self._environment(), end_by="KILL")
        self._process = process
        poll(lambda: process.poll() is not None or self._ready(), seconds=_START_SECONDS)
        if process.poll() is not None or not self._ready():
            message = f"RabbitMQ of {self.installation.scripts} does not start; read its last words: {keeper.output('rabbitmq')}"
            raise LocalServerError(message)

    def _end_for_good(self) -> None:
        for process in (self._process, self._names):
            if process is not None:
                kill_family(process)
        self._forget()
        self._names = None

    def _found(self, command: list[str]) -> list[str]:
        if self.installation.root is not None:
            return self.installation.inside(command)
        program = shutil.which(command[0], path=self._environment()["PATH"])
        return [program or command[0], *command[1:]]

    def _run(self, script: str, *words: str) -> str:
        done = subprocess.run(
            self.installation.command(script, "--silent", *words),
            env=self._environment(),
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            message = f"{script} {' '.join(words)}: {(done.stderr or done.stdout).strip()}"
            raise LocalServerError(message)
        return done.stdout

    def _ready(self) -> bool:
        """Check every listener; RabbitMQ opens them one after the other."""
        further = [self.tls_port] if self._tls is not None else []
        if "rabbitmq_management" in self.plugins:
            further.append(self.management_port)
        return self._speaks_amqp() and all(map(_is_open, further))

    def _speaks_amqp(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
                connection.settimeout(5)
                connection.sendall(_AMQP_HEADER)
                return connection.recv(1) == b"\x01"  # a method frame: Connection.Start
        except OSError:
            return False

    def _built_in_config(self) -> list[str]:
        lines = [
            f"listeners.tcp.default = {LOOPBACK}:{self.port}",
            "vm_memory_high_watermark.absolute = 2GB",
            "disk_free_limit.absolute = 50MB",
        ]
        if "rabbitmq_management" in self.plugins:
            lines += [f"management.tcp.ip = {LOOPBACK}", f"management.tcp.port = {self.management_port}"]
        if self._tls is not None:
            files = zip(("certfile", "keyfile", "cacertfile"), self._tls, strict=True)
            lines += [f"listeners.ssl.default = {LOOPBACK}:{self.tls_port}", *(f"ssl_options.{option} = {path}" for option, path in files)]
        return lines

    def _environment(self) -> dict[str, str]:
        folder = self._keeper.folder if self._keeper is not None else Path("/")
        erlang = self.installation.erlang
        return {
            **plain_environment(folder / "home", first_in_path=[erlang] if erlang else ()),
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_NODENAME": "relay@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_BASE": str(folder),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_SCHEMA_DIR": f"{folder}/schema",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/data",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_CONFIG_FILES": f"{folder}/none",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }


def _is_open(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
