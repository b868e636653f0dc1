"""TLS to RabbitMQ with certificates of both sides: what is verified, what is refused with which sentence, and logins by certificate."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from relay.amqp.connection import connect
from relay.devservers.rabbitmq import Certificates, RabbitMQ
from relay.errors import BrokerError
from relay.message import CONFIRMED
from tests.support.broker.publishing import claim, publishing
from tests.support.broker.topology import Topology
from tests.support.servers.certificates import Authority


def url(node: RabbitMQ, authority: Authority, shown: Certificates | None, *, login: str = "guest:guest@", more: str = "") -> str:
    """URL of the TLS listener for a relay that trusts this authority and shows this certificate."""
    files = f"&certfile={shown.certificate}&keyfile={shown.key}" if shown else ""
    return f"{node.tls_url.replace('guest:guest@', login)}?cafile={authority.file}{files}{more}"


async def sentence(target: str) -> str:
    """What a refused connection says: one line that ends as a sentence does."""
    with pytest.raises(BrokerError) as caught:
        await connect(target, name="outbox-relay/test", heartbeat=10)
    said = str(caught.value)
    assert said.endswith(".")
    assert "\n" not in said
    return said


@pytest.fixture
def expired_broker(tls_broker: RabbitMQ, shown_by_broker: Certificates, authority: Authority) -> Iterator[RabbitMQ]:
    """The node while it shows a certificate of yesterday."""
    good = [file.read_bytes() for file in shown_by_broker]
    expired = authority.issue("localhost", expired=True)
    shutil.copyfile(expired.certificate, shown_by_broker.certificate)
    shutil.copyfile(expired.key, shown_by_broker.key)
    tls_broker.ctl("eval", "ssl:clear_pem_cache().")
    yield tls_broker
    for text, used in zip(good, shown_by_broker, strict=True):
        used.write_bytes(text)
    tls_broker.ctl("eval", "ssl:clear_pem_cache().")


@pytest.fixture(scope="module")
def certified(tls_broker: RabbitMQ) -> None:
    """A user who logs in by a certificate alone, and may write everywhere."""
    tls_broker.ctl("add_user", "certified", "secret")
    tls_broker.ctl("clear_password", "certified")
    tls_broker.ctl("set_permissions", "-p", "/", "certified", "", ".*", "")


async def test_both_sides_show_a_certificate(tls_broker: RabbitMQ, authority: Authority, unique: str) -> None:
    """A password over TLS with a certificate of the relay's: messages are confirmed."""
    shown = url(tls_broker, authority, authority.issue("relay"))
    async with Topology(tls_broker.url, unique) as topology, publishing(shown) as broker:
        made = await topology.declare()
        assert [CONFIRMED] == await broker.send([claim(made.exchange, made.routing_key, b"x")])


@pytest.mark.usefixtures("certified")
async def test_a_certificate_is_a_login(tls_broker: RabbitMQ, authority: Authority, unique: str) -> None:
    """With auth=external the certificate's common name is the user, and there is no password."""
    shown = url(tls_broker, authority, authority.issue("certified"), login="", more="&auth=external")
    async with Topology(tls_broker.url, unique) as topology, publishing(shown) as broker:
        made = await topology.declare()
        assert [CONFIRMED] == await broker.send([claim(made.exchange, made.routing_key, b"x")])
        assert "certified" in tls_broker.ctl("list_connections", "user").split()


async def test_a_certificate_that_is_nobodys_is_refused(tls_broker: RabbitMQ, authority: Authority) -> None:
    """It is trusted, and there is no such user."""
    said = await sentence(url(tls_broker, authority, authority.issue("nobody"), login="", more="&auth=external"))

    assert "refused the relay's certificate as a login (403 ACCESS_REFUSED" in said
    assert said.endswith("add a user of the name that it is for.")


@pytest.mark.parametrize("how", ["none", "expired", "a stranger's"])
async def test_a_relay_without_a_right_certificate_is_refused(
    tls_broker: RabbitMQ, authority: Authority, stranger: Authority, how: str
) -> None:
    """The broker hangs up in the middle of the login, with or without a word; the sentence says what may be the matter."""
    shown = {"none": None, "expired": authority.issue("relay", expired=True), "a stranger's": stranger.issue("relay")}[how]

    said = await sentence(url(tls_broker, authority, shown))

    assert " hung up in the login over TLS (" in said
    assert said.endswith("if it asks for a certificate, name a valid one in the URL (certfile, keyfile).")


async def test_an_expired_certificate_is_refused(expired_broker: RabbitMQ, authority: Authority) -> None:
    """Yesterday's certificate of the broker is none."""
    said = await sentence(url(expired_broker, authority, authority.issue("relay")))

    assert said.endswith("shows a certificate that is not trusted (certificate has expired): renew it at the broker.")


async def test_a_certificate_for_another_host_is_refused(tls_broker: RabbitMQ, authority: Authority) -> None:
    """The address is no name of the certificate, although the authority is right."""
    said = await sentence(url(tls_broker, authority, authority.issue("relay")).replace("localhost", "127.0.0.1"))

    assert "shows a certificate that is not trusted (IP address mismatch" in said
    assert said.endswith("write a name that it is for as the host into the AMQP URL.")


async def test_an_unknown_authority_is_refused(tls_broker: RabbitMQ, authority: Authority, stranger: Authority) -> None:
    """Somebody else vouches for the broker."""
    said = await sentence(url(tls_broker, stranger, authority.issue("relay")))

    assert said.endswith("name its CA in the URL (?cafile=/path/ca.pem).")


async def test_a_key_of_another_certificate_is_told(tls_broker: RabbitMQ, authority: Authority) -> None:
    """The matter is with the relay's files, not with the broker."""
    shown = authority.issue("relay")._replace(key=authority.issue("other").key)

    said = await sentence(url(tls_broker, authority, shown))

    assert said.endswith("holds no certificate, or a key of another one (KEY_VALUES_MISMATCH): correct it.")


async def test_a_way_to_log_in_that_is_not_enabled_is_told(amqp_url: str) -> None:
    """A broker without the plugin for logins by certificate."""
    assert "offers other ways to log in (" in await sentence(f"{amqp_url}?auth=external")
