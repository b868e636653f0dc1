"""The guard of outbound requests: which addresses and which URLs are refused, however they are written."""

from __future__ import annotations

import ipaddress

import pytest

from relay.net.http_client import UrlError, parse
from relay.net.ip_policy import first_refused, why_refused

PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "172.32.0.1",
    "100.128.0.1",
    "223.255.255.254",
]
PRIVATE = [
    "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255", "::1",
    "fd00::8", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1",
]  # fmt: skip
NEVER = [
    "169.254.169.254", "169.254.0.1", "0.0.0.0", "0.1.2.3", "255.255.255.255", "224.0.0.1", "239.255.255.250", "240.0.0.1", "192.0.2.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.0.0.192", "100.100.100.200", "192.88.99.1", "::", "::7f00:1", "fe80::1",
    "fe80::1%eth0", "fec0::1", "ff02::1", "fd00:ec2::254", "fd20:ce::254", "2001:db8::1", "2002:7f00:1::", "2002:808:808::",
    "2001:0:808:808::1", "::ffff:169.254.169.254", "::ffff:0.0.0.0", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "4000::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_asked(address: str) -> None:
    """Also one of IPv4 in the clothes of IPv6."""
    assert why_refused(ipaddress.ip_address(address), allow_private=False) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_for_those_who_allow_it(address: str) -> None:
    """This machine and one's own networks."""
    assert "private" in (why_refused(ipaddress.ip_address(address), allow_private=False) or "")
    assert why_refused(ipaddress.ip_address(address), allow_private=True) is None


METADATA = [
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.42.42", "169.254.0.23", "100.100.100.200", "192.0.0.192",
    "168.63.129.16", "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "fd00:ec2::254", "fd00:ec2::23", "fd00:ec2:0:1::254", "fd20:ce::254",
    "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:100::100:200", "fe80::a9fe:a9fe",
]  # fmt: skip
"""AWS (instances, ECS, EKS), Azure, Google, Oracle, Alibaba, Tencent, Scaleway, Akamai, OpenStack."""


@pytest.mark.parametrize("allow_private", [False, True])
@pytest.mark.parametrize("address", METADATA)
def test_no_cloud_is_asked_for_its_credentials(address: str, allow_private: bool) -> None:
    """Whatever network their provider has put them in: public, private, or of one link."""
    assert why_refused(ipaddress.ip_address(address), allow_private=allow_private)


@pytest.mark.parametrize("address", NEVER)
def test_an_address_that_is_no_hosts_is_never_asked(address: str) -> None:
    """Metadata, link-local, multicast, reserved, tunnels: not even where private ones are allowed."""
    assert why_refused(ipaddress.ip_address(address), allow_private=True)


def test_one_refused_address_refuses_the_name() -> None:
    """The name's owner chooses what comes first."""
    found = [ipaddress.ip_address(each) for each in ("8.8.8.8", "10.0.0.1")]

    assert "the private address 10.0.0.1" == first_refused(found, allow_private=False)
    assert first_refused(found[:1], allow_private=False) is None


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/", "file:///etc/passwd", "gopher://example.org/", "unix:/run/docker.sock", "javascript:alert(1)",
        "//example.org/", "", "https://user@example.org/", "https://user:pw@example.org/", "https://@example.org/",
        "https://example.org@127.0.0.1/", "https://", "https:///path", "https://example.org:0/", "https://example.org:65536/",
        "https://example.org:x/", "https://[::1/", "https://[fe80::1%25eth0]/", "https://ex%61mple.org/", "https://2130706433/",
        "https://0177.0.0.1/", "https://0x7f000001/", "https://0x7f.1/", "https://127.1/", "https://127.0.0.01/", "https://1.2.3.4.5/",
        "https://8.8.8.8.0x/", "https://127.0.0.1/", "https://127.0.0.1./", "https://[::1]/", "https://[::ffff:169.254.169.254]/",
        "https://169.254.169.254/latest/meta-data/", "https://0.0.0.0/", "https://10.1/", "https://exam ple.org/",
        "https://example.org/\r\nX: y", "https://example.org\\@10.0.0.1/", "https://example.org/\x00", "https://b\u00fccher.example/",
        "https://127\uff0e0\uff0e0\uff0e1/", "https://\u2460\u2461\u2466.0.0.1/", "https://example.org/" + "a" * 9000, "https://.../",
    ],
)  # fmt: skip
def test_a_url_that_is_odd_or_leads_inside_is_refused(url: str) -> None:
    """One sentence, and nothing of what may be secret in it."""
    with pytest.raises(UrlError) as refused:
        parse(url)

    assert str(refused.value).endswith(".")
    assert str(refused.value).isprintable()
    assert "pw" not in str(refused.value)


def test_a_url_is_told_without_its_path() -> None:
    """That may hold a token."""
    target = parse("HTTPS://Example.ORG:8443/services/T0KEN?key=1#part")

    assert "https://example.org:8443" == target.place
    assert ("example.org:8443", "/services/T0KEN?key=1") == (target.authority, target.path)
    assert ("example.org", "/") == (parse("http://example.org").authority, parse("http://example.org").path)
    assert "[2606:4700::1111]" == parse("https://[2606:4700::1111]/").authority
