"""Certificates of a test's own authority, and a private PostgreSQL that shows and asks for them."""

from __future__ import annotations

import os
import secrets
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
import trustme

from relay.devservers.postgres import Postgres
from relay.devservers.process import poll
from relay.devservers.rabbitmq import Certificates
from tests.support.network.network_namespace import ADDRESS as ELSEWHERE

_HBA = "hostssl all certified 127.0.0.1/32 cert\nhost all certified 127.0.0.1/32 reject\n"
"""The user `certified` logs in by a certificate with this common name, and by nothing else."""


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.file = folder / f"authority-{secrets.token_hex(4)}.pem"
        self._authority.cert_pem.write_to_path(self.file)

    def issue(self, name: str, *others: str, expired: bool = False) -> Certificates:
        """A certificate for a host, and more of its names, or for a user as the common name; expired since yesterday, if it is to be."""
        now = datetime.now(UTC)
        issued = self._authority.issue_cert(
            name, *others, common_name=name, not_before=now - timedelta(days=9), not_after=now + timedelta(days=-1 if expired else 99)
        )
        stem = self._folder / f"{name}-{secrets.token_hex(4)}"
        certificate, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.touch(mode=0o600)
        key.write_bytes(issued.private_key_pem.bytes())
        return Certificates(certificate, key, self.file)


class TlsPostgres:
    """A running private server with TLS, or a test that is skipped; `show` makes it show another certificate."""

    def __init__(self, server: Postgres, authority: Authority) -> None:
        with psycopg.connect(server.url) as connection:
            if connection.execute("SELECT current_setting('ssl_library')").fetchone() == ("",):
                pytest.skip(f"PostgreSQL of {server.bin} is built without TLS")
        self.server = server
        self._data = server.folder / "data"
        self._owner = self._data.stat()
        hba = self._data / "pg_hba.conf"
        hba.write_text(_HBA + hba.read_text())
        self.show(authority.issue("localhost", ELSEWHERE))

    def url(self, host: str = "localhost", **options: str) -> str:
        """URL of the superuser under that name, with options."""
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"{self.server.url.replace('@127.0.0.1', f'@{host}')}?{query}"

    def show(self, shown: Certificates) -> None:
        """Show this certificate, and ask for those of its authority, from the next connection on."""
        for name, file in zip(("relay.pem", "relay.key", "authority.pem"), shown, strict=True):
            copy = self._data / name
            shutil.copyfile(file, copy)
            copy.chmod(0o600)
            os.chown(copy, self._owner.st_uid, self._owner.st_gid)
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            before = connection.execute("SELECT pg_conf_load_time()").fetchone()
            for setting, name in (("ssl_cert_file", "relay.pem"), ("ssl_key_file", "relay.key"), ("ssl_ca_file", "authority.pem")):
                connection.execute(f"ALTER SYSTEM SET {setting} = '{name}'".encode())
            connection.execute("ALTER SYSTEM SET ssl = on")
            connection.execute("SELECT pg_reload_conf()")
        # A new process of the server has what its parent read last, all of it.
        assert poll(lambda: self._loaded() != before, seconds=60)

    def _loaded(self) -> object:
        with psycopg.connect(self.server.url) as connection:
            return connection.execute("SELECT pg_conf_load_time()").fetchone()
