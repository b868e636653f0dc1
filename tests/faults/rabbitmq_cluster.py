"""Private RabbitMQ nodes that form one cluster on this machine."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from relay.devservers import RabbitMQ
from relay.devservers.process import LOOPBACK, Keeper, Say, free_ports, poll

_JOIN_SECONDS = 120.0


class Node(RabbitMQ):
    """One node; all have a cookie and the port of one epmd in common.

    Args:
        name: before the @ of its node name.
        peers: names of all nodes.
        cookie: the secret that they share.
        names_port: of their epmd, which the first of them runs.

    """

    def __init__(self, name: str, *, peers: Sequence[str], cookie: str, names_port: int) -> None:
        lines = [f"cluster_formation.classic_config.nodes.{number} = {peer}@localhost" for number, peer in enumerate(peers, start=1)]
        super().__init__(config="\n".join(["cluster_formation.peer_discovery_backend = classic_config", *lines]))
        self._node, self._cookie, self._names_port = name, cookie, names_port
        self._runs_names = name == peers[0]

    def members(self) -> int:
        """How many nodes of the cluster run, as this one sees it."""
        return len(json.loads(self.ctl("cluster_status", "--formatter", "json"))["running_nodes"])

    def _prepare(self, keeper: Keeper) -> None:
        super()._prepare(keeper)
        cookie = keeper.folder / "home" / ".erlang.cookie"
        cookie.write_text(self._cookie)
        cookie.chmod(0o400)

    def _run_names(self, keeper: Keeper) -> None:
        if self._runs_names:
            super()._run_names(keeper)

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "RABBITMQ_NODENAME": f"{self._node}@localhost"}


@contextmanager
def cluster(*names: str, say: Say) -> Iterator[list[Node]]:
    """Run nodes of these names as one cluster until the end of the block."""
    cookie, [names_port] = secrets.token_hex(10), free_ports(1)
    nodes = [Node(name, peers=names, cookie=cookie, names_port=names_port) for name in names]
    say(f"rabbitmq: a cluster of {len(nodes)} private nodes on ports {', '.join(str(node.port) for node in nodes)} (ready in 10 to 40 s)")
    with ExitStack() as stack, ThreadPoolExecutor(len(nodes)) as starters:
        for node in nodes:
            # In this order: epmd comes with the folder of the first node, before any starts, and goes with it, after all others.
            stack.callback(node.close)
            assert node.folder.exists()
        # All at once: since RabbitMQ 4.1 the first one waits for the others.
        list(starters.map(Node.start, nodes))
        assert poll(lambda: all(node.members() == len(nodes) for node in nodes), seconds=_JOIN_SECONDS), "the nodes form no cluster"
        yield nodes


def hosts(nodes: Sequence[RabbitMQ]) -> str:
    """The URL that names all of them, in this order."""
    return f"amqp://guest:guest@{','.join(f'{LOOPBACK}:{node.port}' for node in nodes)}/"
