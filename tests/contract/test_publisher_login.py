"""Connecting: TLS, and one sentence for each reason why it does not work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from relay import devservers
from relay.amqp.connection import connect
from relay.devservers.rabbitmq import Certificates, RabbitMQ
from relay.errors import BrokerError
from relay.events import ConnectionInsecure
from relay.events.broker import BrokerDown, BrokerUp
from relay.message import CONFIRMED
from tests.support.broker.publishing import claim, publishing
from tests.support.broker.topology import Topology
from tests.support.servers.shared import Say


async def sentence(url: str) -> str:
    """Return what a failed connect says."""
    with pytest.raises(BrokerError) as caught:
        await connect(url, name="outbox-relay/test", heartbeat=10)
    return str(caught.value)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """A certificate authority of the test's own."""
    return trustme.CA()


@pytest.fixture(scope="module")
def authority_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its certificate as a file."""
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture(scope="module")
def tls_node(say: Say, authority: trustme.CA, authority_file: Path) -> Iterator[RabbitMQ]:
    """A node with a TLS listener for the name localhost."""
    issued = authority.issue_cert("localhost")
    certificate, key = authority_file.with_name("server.pem"), authority_file.with_name("server.key")
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    with devservers.rabbitmq(say=say, private=True, tls=Certificates(certificate, key, authority_file)) as node:
        yield node


async def test_tls_is_verified_and_works(tls_node: RabbitMQ, authority_file: Path, unique: str) -> None:
    """With the authority named in the URL messages are confirmed over TLS, large ones too."""
    async with Topology(tls_node.url, unique) as topology, publishing(f"{tls_node.tls_url}?cafile={authority_file}") as broker:
        made = await topology.declare()
        claims = [claim(made.exchange, made.routing_key, b"x" * size) for size in (10, 500_000)]
        assert await broker.send(claims) == [CONFIRMED] * 2
        assert await topology.waiting(made.queue) == 2


async def test_a_certificate_that_nobody_vouches_for_is_refused(tls_node: RabbitMQ) -> None:
    """The sentence names the option that helps."""
    said = await sentence(tls_node.tls_url)
    assert re.fullmatch(r"The broker at localhost:\d+ shows a certificate that is not trusted \(.+\): name its CA in the URL .+", said)


async def test_a_certificate_that_is_not_verified_is_told_once(tls_node: RabbitMQ) -> None:
    """The URL may turn it off, for a first try; never silently, and once, however often the relay connects."""
    async with publishing(f"{tls_node.tls_url}?no_verify_ssl=1") as broker:
        tls_node.ctl("close_all_connections", "test")
        await broker.seen.wait_for(BrokerDown)
        await broker.publisher.wait_ready()
        [told] = broker.seen.of(ConnectionInsecure)
        assert told.risk.startswith("Any server that answers at localhost is taken for the broker (no_verify_ssl)")


async def test_no_verify_ssl_0_verifies(tls_node: RabbitMQ) -> None:
    """It is the one value that turns nothing off."""
    async with publishing(f"{tls_node.tls_url}?no_verify_ssl=0", wait=False) as broker:
        await broker.seen.wait_for(BrokerDown)
        assert [] == broker.seen.of(BrokerUp)


async def test_a_certificate_for_another_name_is_refused(tls_node: RabbitMQ, authority_file: Path) -> None:
    """Trust in the authority is not enough: the name in the URL must be the certificate's."""
    said = await sentence(f"{tls_node.tls_url}?cafile={authority_file}".replace("localhost", "127.0.0.1"))
    assert "shows a certificate that is not trusted (IP address mismatch" in said


async def test_tls_towards_a_plain_port_is_named(tls_node: RabbitMQ) -> None:
    """amqps:// with the port of the plain listener."""
    said = await sentence(tls_node.url.replace("amqp:", "amqps:"))
    assert "use the port of its TLS listener, or amqp:// without TLS." in said


async def test_plain_text_towards_a_tls_port_is_named(tls_node: RabbitMQ) -> None:
    """amqp:// with the port of the TLS listener."""
    said = await sentence(tls_node.tls_url.replace("amqps:", "amqp:"))
    assert re.match(r"The broker at localhost:\d+ (is not reachable|did not complete the login) \(", said)


async def test_a_wrong_password_is_named_and_never_printed(amqp_url: str) -> None:
    """The sentence names the user and what to correct."""
    said = await sentence(amqp_url.replace("guest:guest@", "guest:pa55word@"))
    assert re.fullmatch(
        r"The broker at 127.0.0.1:\d+ refused user 'guest' \(403 ACCESS_REFUSED .+\): correct user and password in the AMQP URL; "
        r"users in the broker's loopback_users, such as guest, log in on its machine only\.",
        said,
    )
    assert "pa55word" not in said


async def test_a_missing_vhost_is_named(amqp_url: str) -> None:
    """The broker's own words say which."""
    said = await sentence(amqp_url.rpartition("/")[0] + "/nowhere")
    assert re.fullmatch(
        r"The broker at 127.0.0.1:\d+ refused the vhost \(530 NOT_ALLOWED - vhost nowhere not found\): "
        r"create 'nowhere' \(rabbitmqctl add_vhost\), or correct the AMQP URL\.",
        said,
    )


async def test_a_host_that_does_not_exist_is_named() -> None:
    """A name that no resolver knows (RFC 6761 reserves .invalid)."""
    assert "has a host name that is not known" in await sentence("amqp://guest:guest@broker.invalid:5672/")


async def test_a_port_where_nobody_listens_is_named() -> None:
    """The broker is not started yet, or the port is wrong."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    assert (await sentence(f"amqp://guest:guest@127.0.0.1:{port}/")).startswith(f"The broker at 127.0.0.1:{port} is not reachable (")


async def test_a_missing_certificate_file_is_named() -> None:
    """It is no matter of the network, although the system reports both as an error of the same kind."""
    said = await sentence("amqps://localhost:5671/?cafile=/nowhere/ca.pem")
    assert said.endswith("a certificate file that the URL names (cafile, certfile, keyfile) is not there.")


@pytest.mark.parametrize("url", ["http://localhost:5672/", "localhost:5672", "amqp:///vhost", "amqp://localhost:port/"])
async def test_a_url_that_names_no_broker_is_refused(url: str) -> None:
    """The sentence shows the form, and not the URL, which may hold a password."""
    assert "write amqp://user:password@host:port/vhost" in await sentence(url)


async def test_a_server_that_is_no_broker_is_named() -> None:
    """A web server on that port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        said = await sentence(f"amqp://guest:guest@127.0.0.1:{port}/")
    assert said.startswith(f"The broker at 127.0.0.1:{port} ")
    assert said.endswith(("AMQP 0-9-1 listener.", "correct the AMQP URL."))
