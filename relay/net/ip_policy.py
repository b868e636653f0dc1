"""The addresses to which outbound requests may go: public addresses, private ones if these are allowed, and no others. No I/O."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PRIVATE = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "fc00::/7", "::1/128"))
)
"""This machine and private networks; an operator may allow them."""
_METADATA = tuple(
    map(
        ipaddress.ip_network,
        (
            "169.254.169.254",  # nearly all clouds; the rest, except those below, use other link-local addresses, which are always refused
            "168.63.129.16",  # Azure's WireServer, among public addresses
            "100.100.100.200",  # Alibaba
            "fd00:100::100:200",
            "192.0.0.192",  # Oracle
            "fd00:c1::a9fe:a9fe",
            "fd00:ec2::/32",  # Amazon: instances, pods of EKS, and services next to them
            "fd20:ce::254",  # Google; the networks around this address belong to customers
            "fd00:42::42",  # Scaleway
            "fd00:a9fe:a9fe::1",  # Akamai
        ),
    )
)
"""Documented metadata addresses, at which clouds give credentials to any program that runs in them."""
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""All public addresses of IPv6; other addresses are reserved or local to a link or site (RFC 4291)."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv4 behind a NAT64 (RFC 6052)."""
_6TO4_RELAYS = ipaddress.ip_network("192.88.99.0/24")
"""6to4 relays, withdrawn (RFC 7526)."""
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")


def why_refused(address: Address, *, allow_private: bool) -> str | None:
    """Why a request may not go to this address, as the end of a sentence; None if it may."""
    address = _embedded_ipv4(address)
    if any(address in network for network in _METADATA):
        return f"{address}, which hands out a cloud's credentials"
    if any(address in network for network in _PRIVATE):
        return None if allow_private else f"the private address {address}"
    return None if _is_public(address) else f"{address}, which is no address of the public Internet"


def is_odd_number(host: str) -> bool:
    """Whether the host is a number that only some resolvers read as an address: 2130706433, 0177.1, 0x7f000001, 127.1."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return bool(_NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]))
    return False


def first_refused(addresses: Sequence[Address], *, allow_private: bool) -> str | None:
    """Why a name with these addresses is refused. One refused address is enough, because the name's owner chooses the order."""
    return next((why for each in addresses if (why := why_refused(each, allow_private=allow_private))), None)


def _embedded_ipv4(address: Address) -> Address:
    """The IPv4 address embedded in an IPv6 address, or otherwise the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        # 6to4 and Teredo tunnel to unchecked IPv4 addresses; both are withdrawn.
        return address in _GLOBAL_UNICAST and address.is_global and not (address.sixtofour or address.teredo)
    return address.is_global and not address.is_multicast and address not in _6TO4_RELAYS
