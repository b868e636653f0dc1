"""Which connections are called unsafe, and which options of URLs are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from yarl import URL

from relay.config.settings import load
from relay.errors import SettingsError
from relay.events import ConnectionInsecure, Event, warn_once
from relay.net.transport_security import broker_risk, is_here, postgres_risk

ELSEWHERE = "postgresql://relay:secret@db.example/queue"


@pytest.mark.parametrize("host", ["localhost", "/var/run/postgresql", "@abstract", "127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"])
def test_a_socket_and_loopback_are_here(host: str) -> None:
    """Nothing of such a connection leaves the machine."""
    assert is_here(host)


@pytest.mark.parametrize("host", ["db", "localhost.example", "10.0.0.1", "0.0.0.0", "::", "fe80::1%eth0", "::ffff:10.0.0.1", ""])
def test_all_others_are_not(host: str) -> None:
    """Names are not looked up: an established connection knows its address."""
    assert not is_here(host)


@pytest.mark.parametrize(
    ("host", "address", "encrypted", "sslmode", "words"),
    [
        ("db", "10.0.0.5", False, "prefer", "PostgreSQL at db is without TLS"),
        ("db", "10.0.0.5", True, "prefer", "does not check that it is db that answers (sslmode=prefer)"),
        ("db", "10.0.0.5", True, "require", "(sslmode=require)"),
        ("db", "10.0.0.5", True, "verify-ca", "(sslmode=verify-ca)"),
        ("db", "10.0.0.5", False, "verify-full", "is without TLS"),
        ("db", "10.0.0.5", True, "verify-full", None),
        ("db", "127.0.0.1", False, "disable", None),
        ("db", "::1", False, "prefer", None),
        ("/run/postgresql", "", False, "prefer", None),
        ("localhost", "10.0.0.5", False, "prefer", "is without TLS"),
        ("fd00::1", "fd00::1", False, "prefer", "PostgreSQL at [fd00::1] is without TLS"),
        ("fd00::1", "fd00::1", True, "prefer", "does not check that it is [fd00::1] that answers"),
    ],
)
def test_a_database_elsewhere_must_be_verified(host: str, address: str, encrypted: bool, sslmode: str, words: str | None) -> None:
    """The address that a name came to decides, not the name."""
    risk = postgres_risk(host=host, address=address, encrypted=encrypted, sslmode=sslmode)

    assert (risk is None) if words is None else (risk is not None and words in risk and risk.endswith("into its URL."))


@pytest.mark.parametrize(
    ("url", "address", "words"),
    [
        ("amqp://u:p@mq/", "10.0.0.5", "The connection to the broker at mq is without TLS"),
        ("amqp://u:p@[fd00::1]/", "fd00::1", "to the broker at [fd00::1] is without TLS"),
        ("amqp://u:p@mq/", "127.0.0.1", None),
        ("amqp://u:p@mq/", "::1", None),
        ("amqps://u:p@mq/", "10.0.0.5", None),
        ("amqps://u:p@mq/?no_verify_ssl=0", "10.0.0.5", None),
        ("amqps://u:p@mq/?no_verify_ssl=1", "10.0.0.5", "Any server that answers at mq is taken for the broker"),
        ("amqps://u:p@mq/?no_verify_ssl=", "127.0.0.1", "Any server that answers at mq is taken for the broker"),
    ],
)
def test_a_broker_elsewhere_must_speak_tls(url: str, address: str, words: str | None) -> None:
    """And be verified, wherever it is; a password is not repeated."""
    risk = broker_risk(URL(url), address=address)

    assert (risk is None) if words is None else (risk is not None and words in risk and "u:p" not in risk)


def test_a_risk_is_told_once() -> None:
    """A connection is made again and again."""
    told: list[Event] = []
    warn = warn_once(told.append)
    for risk in ("one", "other", "one"):
        warn(risk)

    assert [ConnectionInsecure("one"), ConnectionInsecure("other")] == told


def mistake(**environ: str) -> str:
    """The one line that these variables cause."""
    with pytest.raises(SettingsError) as caught:
        load(environ, None)
    [line] = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize("name", ["RELAY_DATABASE_URL", "RELAY_LISTEN_URL", "RELAY_PIPELINE_DATABASE_URL"])
@pytest.mark.parametrize(
    "conninfo",
    [
        f"{ELSEWHERE}?sslmode=disable",
        f"{ELSEWHERE}?sslmode=allow",
        "host=db sslmode=disable",
        "hostaddr=10.0.0.5 host=localhost sslmode=disable",
        "postgresql://localhost,db/queue?sslmode=disable",
        f"{ELSEWHERE}?channel_binding=disable",
        f"{ELSEWHERE}?ssl_min_protocol_version=TLSv1.1",
    ],
)
def test_a_conninfo_that_asks_for_less_is_refused_unless_it_is_meant(name: str, conninfo: str) -> None:
    """Towards another machine; with the switch it is taken."""
    line = mistake(**{name: conninfo})

    assert line.startswith(f"{name} has an option that weakens security (")
    assert line.endswith("): remove it, or, if it is meant, set RELAY_ALLOW_INSECURE=true.")
    assert "secret" not in line
    load({name: conninfo, "RELAY_ALLOW_INSECURE": "true"}, None)


@pytest.mark.parametrize(
    ("conninfo", "environ"),
    [
        ("dbname=queue sslmode=disable", {"PGHOST": "db.example"}),
        ("postgresql:///queue?sslmode=disable", {"PGHOST": "/run/postgresql,db.example"}),
        ("host=localhost sslmode=disable", {"PGHOSTADDR": "10.0.0.5"}),
        ("host=db,localhost hostaddr=,127.0.0.1 sslmode=disable", {}),
        ("dbname=queue sslmode=disable", {"PGSERVICE": "far"}),
        ("service=far sslmode=disable", {}),
        ("service=far sslmode=disable", {"PGSERVICE": "near"}),
    ],
)
def test_the_host_is_the_one_that_libpq_would_take(
    conninfo: str, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is named by the environment or a service file, which is asked for and stays as it was."""
    services = tmp_path / "services"
    services.write_text("[far]\nhost=db.example\n[near]\nhost=localhost\n", encoding="utf-8")
    for name, value in {"PGSERVICEFILE": str(services), **environ}.items():
        monkeypatch.setenv(name, value)

    assert "has an option that weakens security (sslmode=disable)" in mistake(RELAY_DATABASE_URL=conninfo)
    load({"RELAY_DATABASE_URL": "service=near sslmode=disable"} if "PGHOSTADDR" not in environ else {}, None)
    assert os.environ.get("PGSERVICE") == environ.get("PGSERVICE")


@pytest.mark.parametrize(
    "conninfo",
    [
        "postgresql://127.0.0.1/queue?sslmode=disable",
        "host=/run/postgresql sslmode=disable",
        "host=localhost sslmode=allow",
        "dbname=queue sslmode=disable",
        "hostaddr=127.0.0.1 host=db sslmode=disable",
        f"{ELSEWHERE}?sslmode=prefer",
        f"{ELSEWHERE}?sslmode=require",
        f"{ELSEWHERE}?sslmode=verify-full",
        ELSEWHERE,
    ],
)
def test_a_conninfo_on_this_machine_or_that_asks_for_more_is_taken(conninfo: str) -> None:
    """What stays here needs no TLS. An unverified connection to elsewhere is reported once it is established."""
    load({"RELAY_DATABASE_URL": conninfo}, None)


def test_what_asks_for_less_outside_of_a_url_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of libpq are for every program here; the security that the connection gets is reported."""
    monkeypatch.setenv("PGSSLMODE", "disable")
    load({"RELAY_DATABASE_URL": ELSEWHERE}, None)


@pytest.mark.parametrize("name", ["RELAY_AMQP_URL", "AMQP_URL"])
@pytest.mark.parametrize("scheme", ["amqps", "AMQPS"])
@pytest.mark.parametrize("value", ["1", "", "true", "false"])
def test_a_broker_that_is_not_verified_is_refused_unless_it_is_meant(name: str, value: str, scheme: str) -> None:
    """All but 0 turns the check off; so it is for every host."""
    url = f"{scheme}://relay:secret@localhost/?no_verify_ssl={value}"

    line = mistake(**{name: url})

    assert f"{name} has an option that weakens security (no_verify_ssl={value}): remove it" in line
    load({name: url, "RELAY_ALLOW_INSECURE": "true"}, None)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("AMQPS://h/?cafil=/ca.pem", "There is no option 'cafil': did you mean cafile?"),
        ("amqps://h/?cafil=/ca.pem", "There is no option 'cafil': did you mean cafile?"),
        ("amqp://h/?frameMax=0", "There is no option 'frameMax': remove it (there are cafile, "),
        ("amqp://h/?name=x", "There is no option 'name': remove it"),
        ("amqp://h/?cafile=/ca.pem", "The option cafile is for TLS, and amqp:// has none: write amqps://."),
        ("amqp://h/?no_verify_ssl=1", "The option no_verify_ssl is for TLS, and amqp:// has none: write amqps://."),
        ("amqp://h/?auth=external", "The option auth is for TLS, and amqp:// has none: write amqps://."),
        ("amqps://h/?auth=amqplain", "The option auth must be plain or external."),
        ("amqp://h/?heartbeat=ten", "The option heartbeat must be a whole number of seconds from 0 to 65534."),
        ("amqp://h/?heartbeat=-1", "The option heartbeat must be"),
        ("amqp://h/?heartbeat=65535", "The option heartbeat must be"),
        ("amqp://h/?heartbeat=99999999999999999999", "The option heartbeat must be"),
    ],
)
def test_an_option_of_the_broker_that_cannot_be_meant_is_refused_by_name(url: str, words: str) -> None:
    """The library would drop it, or take it for something else."""
    line = mistake(RELAY_AMQP_URL=url)

    assert line.startswith("RELAY_AMQP_URL is not usable (not shown): it must be an AMQP URL such as ")
    assert words in line


def test_a_part_of_a_password_is_not_taken_for_an_option() -> None:
    """A question mark in it that was not encoded; nothing after that is shown."""
    line = mistake(RELAY_AMQP_URL="amqp://relay:pa?canary=1@host/")

    assert "canary" not in line
    assert line.endswith("user, password and names must be percent-encoded: @ as %40, / as %2F, # as %23, % as %25.")


def test_known_options_of_the_broker_are_taken() -> None:
    """All at once."""
    load({"RELAY_AMQP_URL": "amqps://h/?cafile=/a&capath=/b&certfile=/c&keyfile=/d&no_verify_ssl=0&auth=EXTERNAL&heartbeat=5"}, None)
