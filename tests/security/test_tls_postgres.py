"""TLS to PostgreSQL: what is verified, what is refused with which sentence, and logins by certificate."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from relay.devservers.rabbitmq import Certificates
from relay.errors import StoreError
from relay.postgres.session import Session
from tests.support.network.network_namespace import ADDRESS
from tests.support.servers.certificates import Authority, TlsPostgres

ANOTHER_NAME = "PostgreSQL shows a certificate for another name: write a name that it is for as the host into RELAY_DATABASE_URL ("
NOT_TRUSTED = (
    "PostgreSQL shows a certificate that has expired, or that no authority in sslrootcert signed: renew it, or correct sslrootcert ("
)
OWN = "PostgreSQL asks for a certificate that it trusts, as this user's: renew what sslcert and sslkey in RELAY_DATABASE_URL name ("


async def encrypted(url: str) -> tuple[bool, str]:
    """Whether a relay's connection is, and as whom it logged in."""
    session = Session(url, application_name="test")
    try:
        [found] = await session.fetch(b"SELECT ssl, current_user::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()", {})
    finally:
        await session.aclose()
    return found[0], found[1]


async def sentence(url: str) -> str:
    """What a refused connection says: one line that ends as a sentence does."""
    with pytest.raises(StoreError) as caught:
        await encrypted(url)
    said = str(caught.value)
    assert said.endswith(").")
    assert "\n" not in said
    return said


@pytest.fixture
def expired_server(tls_postgres: TlsPostgres, authority: Authority) -> Iterator[TlsPostgres]:
    """The server while it shows a certificate of yesterday."""
    tls_postgres.show(authority.issue("localhost", expired=True))
    yield tls_postgres
    tls_postgres.show(authority.issue("localhost", ADDRESS))


@pytest.fixture(scope="module")
def certified(tls_postgres: TlsPostgres) -> None:
    """A user who logs in by a certificate alone."""
    with psycopg.connect(tls_postgres.server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE certified LOGIN")


def as_certified(server: TlsPostgres, authority: Authority, shown: Certificates | None) -> str:
    """URL of that user, who shows this certificate."""
    files = {"sslcert": str(shown.certificate), "sslkey": str(shown.key)} if shown else {}
    login, _, place = server.url(sslmode="verify-full", sslrootcert=str(authority.file), **files).rpartition("@")
    return f"{login.partition('postgres:')[0]}certified@{place}"


async def test_verify_full_works(tls_postgres: TlsPostgres, authority: Authority) -> None:
    """The name of the host and its authority are right: the relay is in, and encrypted."""
    assert (True, "postgres") == await encrypted(tls_postgres.url(sslmode="verify-full", sslrootcert=str(authority.file)))


async def test_a_certificate_for_another_host_is_refused(tls_postgres: TlsPostgres, authority: Authority) -> None:
    """The address is no name of the certificate, although the authority is right."""
    said = await sentence(tls_postgres.url("127.0.0.1", sslmode="verify-full", sslrootcert=str(authority.file)))

    assert said.startswith(ANOTHER_NAME)
    assert 'does not match host name "127.0.0.1"' in said


async def test_an_unknown_authority_is_refused(tls_postgres: TlsPostgres, stranger: Authority) -> None:
    """Somebody else vouches for the server."""
    assert (await sentence(tls_postgres.url(sslmode="verify-full", sslrootcert=str(stranger.file)))).startswith(NOT_TRUSTED)


async def test_a_file_of_authorities_that_is_not_there_is_told(tls_postgres: TlsPostgres) -> None:
    """Without one no certificate is taken."""
    said = await sentence(tls_postgres.url(sslmode="verify-full", sslrootcert="/nowhere/ca.pem"))

    assert said.startswith("TLS with PostgreSQL failed: correct sslmode and sslrootcert in RELAY_DATABASE_URL (")
    assert 'root certificate file "/nowhere/ca.pem" does not exist' in said


async def test_an_expired_certificate_is_refused(expired_server: TlsPostgres, authority: Authority) -> None:
    """Yesterday's certificate is none, and the next one is taken without a restart of anything."""
    url = expired_server.url(sslmode="verify-full", sslrootcert=str(authority.file))

    assert (await sentence(url)).startswith(NOT_TRUSTED)
    expired_server.show(authority.issue("localhost", ADDRESS))
    assert (True, "postgres") == await encrypted(url)


@pytest.mark.usefixtures("certified")
async def test_a_certificate_is_a_login(tls_postgres: TlsPostgres, authority: Authority) -> None:
    """With cert in pg_hba.conf the certificate's common name is the user, and there is no password."""
    assert (True, "certified") == await encrypted(as_certified(tls_postgres, authority, authority.issue("certified")))


@pytest.mark.usefixtures("certified")
@pytest.mark.parametrize("how", ["none", "expired", "another user's", "a stranger's", "without its key"])
async def test_a_login_without_a_right_certificate_is_refused(
    tls_postgres: TlsPostgres, authority: Authority, stranger: Authority, how: str
) -> None:
    """One sentence, which names the options to correct."""
    shown = {
        "none": None,
        "expired": authority.issue("certified", expired=True),
        "another user's": authority.issue("somebody"),
        "a stranger's": stranger.issue("certified"),
        "without its key": authority.issue("certified")._replace(key=authority.file.with_name("nowhere.key")),
    }[how]

    assert (await sentence(as_certified(tls_postgres, authority, shown))).startswith(OWN)


@pytest.mark.usefixtures("certified")
async def test_a_key_that_others_may_read_is_told(tls_postgres: TlsPostgres, authority: Authority) -> None:
    """The client library refuses it; the sentence holds its words, with the mode to set."""
    shown = authority.issue("certified")
    shown.key.chmod(0o644)

    said = await sentence(as_certified(tls_postgres, authority, shown))

    assert said.startswith(OWN)
    assert "must have permissions u=rw (0600)" in said
