"""Several hosts in one AMQP URL."""

from __future__ import annotations

import pytest

from relay.config.settings import load
from relay.errors import SettingsError
from relay.net.amqp_url import each_host


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("amqp://localhost/", ["amqp://localhost/"]),
        ("amqp://u:p@a,b/shop", ["amqp://u:p@a/shop", "amqp://u:p@b/shop"]),
        (
            "amqps://u:p,w@a:5671,[::1]:5673, c.example/%2F?heartbeat=3",
            ["amqps://u:p,w@a:5671/%2F?heartbeat=3", "amqps://u:p,w@[::1]:5673/%2F?heartbeat=3", "amqps://u:p,w@c.example/%2F?heartbeat=3"],
        ),
        ("amqp://a,b?heartbeat=3", ["amqp://a?heartbeat=3", "amqp://b?heartbeat=3"]),
        ("host=a,b", ["host=a,b"]),
    ],
)
def test_each_host_has_the_login_the_vhost_and_the_options(url: str, hosts: list[str]) -> None:
    """Commas separate the hosts, which keep their order. Nothing else of the URL is split."""
    assert hosts == each_host(url)


@pytest.mark.parametrize("url", ["amqp://u:p@a,b:5673,[::1]:5674/shop?heartbeat=3", "amqp://a,b"])
def test_a_url_with_several_hosts_is_a_setting(url: str) -> None:
    """It is kept as it is; the supervisor takes it apart for each try."""
    assert url == load({"RELAY_AMQP_URL": url}, None).amqp_url.get_secret_value()


@pytest.mark.parametrize("url", ["amqp://u:hunter2@a,/shop", "amqp://u:hunter2@a,,b/", "amqp://u:hunter2@a,b:x/", "amqp://u:hunter2@,b/"])
def test_each_of_several_hosts_must_be_one(url: str) -> None:
    """An empty name or a port that is no number is a mistake of the URL, reported without showing it."""
    with pytest.raises(SettingsError) as caught:
        load({"RELAY_AMQP_URL": url}, None)
    assert str(caught.value).startswith("RELAY_AMQP_URL is not usable (not shown): it must be an AMQP URL")
    assert "hunter2" not in str(caught.value)
