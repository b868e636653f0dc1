"""A private RabbitMQ node: it survives its crashes, speaks TLS, and a lent broker gets a vhost."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pytest
import trustme
from aio_pika.exceptions import AMQPConnectionError

from relay import devservers
from relay.devservers import find as local_find
from relay.errors import LocalServerError


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """The authority that signed the node's certificate."""
    return trustme.CA()


def _ports_as_lent() -> tuple[int, int]:
    """Return two free ports; the second lies where a lent broker's management is looked for, and no outgoing connection takes it."""
    free = set(devservers.free_ports(5_000))
    return next((port, port + 10_000) for port in free if port + 10_000 in free)


@pytest.fixture(scope="module")
def node(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[devservers.RabbitMQ]:
    """A private node with TLS and the management plugin, on the port where a lent broker's is looked for."""
    folder = tmp_path_factory.mktemp("certificates")
    certificate = authority.issue_cert("localhost")
    files = devservers.Certificates(folder / "server.pem", folder / "server.key", folder / "authority.pem")
    certificate.cert_chain_pems[0].write_to_path(files.certificate)
    certificate.private_key_pem.write_to_path(files.key)
    authority.cert_pem.write_to_path(files.authority)
    server = devservers.rabbitmq(say=print, plugins=["rabbitmq_management"], tls=files, private=True)
    server.port, server.management_port = _ports_as_lent()
    with server:
        yield server


async def _messages_in(url: str, queue: str) -> int | None:
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        return (await channel.declare_queue(queue, durable=True)).declaration_result.message_count


async def _publish(url: str, queue: str) -> None:
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, durable=True)
        message = aio_pika.Message(b"kept", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key=queue)


async def test_a_crashed_node_starts_again_with_what_it_confirmed(node: devservers.RabbitMQ) -> None:
    """A crash ends the Erlang machine; the next start finds the confirmed message under the same URL."""
    await _publish(node.url, "crash")
    node.persist_topology()

    node.crash()

    with pytest.raises(AMQPConnectionError):
        await aio_pika.connect(node.url)
    node.start()
    assert 1 == await _messages_in(node.url, "crash")


async def test_a_stopped_node_starts_again_with_what_it_confirmed(node: devservers.RabbitMQ) -> None:
    """An orderly stop keeps messages too, and another process serves them."""
    await _publish(node.url, "stop")
    old = node.pid()

    node.restart()

    assert 1 == await _messages_in(node.url, "stop")
    assert old != node.pid()


async def test_a_node_speaks_tls(node: devservers.RabbitMQ, authority: trustme.CA) -> None:
    """The TLS listener shows the certificate that it was given."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with await aio_pika.connect(node.tls_url, ssl_context=context) as connection:
        assert not connection.is_closed


def test_rabbitmqctl_answers_or_says_why_not(node: devservers.RabbitMQ) -> None:
    """Its output comes back; its refusal is the error's text."""
    node.add_vhost("here")

    assert {"/", "here"} == {*node.ctl("list_vhosts").split()}
    with pytest.raises(LocalServerError, match="nowhere"):
        node.ctl("delete_vhost", "nowhere")
    node.delete_vhost("here")


async def test_a_lent_broker_gets_a_vhost_for_the_run(node: devservers.RabbitMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TEST_AMQP_URL everything happens in a vhost that is removed afterwards."""
    monkeypatch.setenv("TEST_AMQP_URL", node.url)
    before = {*node.ctl("list_vhosts").split()}
    with devservers.rabbitmq(say=print) as lent:
        await _publish(lent.url, "lent")
        [name] = {*node.ctl("list_vhosts").split()} - before
        assert lent.url.endswith(name)

    assert before == {*node.ctl("list_vhosts").split()}


def test_a_lent_broker_without_management_is_refused_with_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where no vhost can be made, nothing is done on the lent broker, and the error says how to change that."""
    monkeypatch.setenv("TEST_AMQP_URL", f"amqp://guest:guest@127.0.0.1:{devservers.free_ports(1)[0]}/")
    with pytest.raises(LocalServerError, match="rabbitmq-plugins enable rabbitmq_management"), devservers.rabbitmq(say=print):
        pass


def test_without_rabbitmq_and_apt_the_error_is_the_line_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where RabbitMQ can neither be found nor fetched, the user reads what to install."""
    monkeypatch.delenv("TEST_RABBITMQ_ROOT", raising=False)
    monkeypatch.setattr(local_find, "_rabbitmq_below", lambda root: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalServerError, match="type: sudo apt-get install -y rabbitmq-server"):
        devservers.rabbitmq(say=print)
