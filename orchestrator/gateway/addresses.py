"""Which IP addresses a sandbox may reach through the gateway: public ones and no others, whatever a name resolves to.

Sources: the IANA registries of special-purpose IPv4 and IPv6 addresses (RFC 6890), and the addresses at which clouds answer their
machines with credentials.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SPECIAL_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # carrier-grade NAT; 100.100.100.200 is Alibaba's metadata
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's machine agent, a public address that only its machines reach
            "169.254.0.0/16",  # link-local; 169.254.169.254 is metadata nearly everywhere
            "172.16.0.0/12",
            "192.0.0.0/24",  # 192.0.0.192 is Oracle's metadata
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
"""All that is public in IPv6 is here; fd00:ec2::254 (metadata), mapped, link-local and NAT64 addresses are not."""
_SPECIAL_V6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocols, Teredo among them: an IPv4 address is inside
            "2001:db8::/32",
            "2002::/16",  # 6to4: an IPv4 address is inside
            "3fff::/20",
            "2620:4f:8000::/48",
        ),
    )
)


def is_public(address: Address) -> bool:
    """Return whether an address is one of the open internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    return address in _UNICAST_V6 and not any(address in network for network in _SPECIAL_V6)


def is_own(address: Address) -> bool:
    """Return whether the address is one of this machine's: services that trust their own machine listen there, also on a public address."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def reachable(addresses: Iterable[Address], denied: Iterable[Network], allowed: Iterable[Network]) -> list[Address]:
    """Return the addresses that may be connected to, each once, in order.

    ``denied`` are further networks that may not; ``allowed`` are exceptions that whoever runs the gateway has named.
    """
    denied, allowed = tuple(denied), tuple(allowed)
    found = []
    for address in dict.fromkeys(addresses):
        named = any(address in network for network in allowed if network.version == address.version)
        refused = any(address in network for network in denied if network.version == address.version)
        if named or (is_public(address) and not refused and not is_own(address)):
            found.append(address)
    return found
