"""Which addresses are the public Internet: not private, not this machine's own."""

import ipaddress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

# as networks, for a routing table; `is_global` knows the same ones
_NOT_PUBLIC = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
    "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
)  # fmt: skip
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # NAT64: the last 32 bits are an IPv4 address
_IPV4_TABLE = Path("/proc/net/fib_trie")
_IPV6_TABLE = Path("/proc/net/if_inet6")


def is_public(address: str) -> bool:
    """Whether *address* is out on the Internet, and not one of this machine's own."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if parsed.is_multicast or not parsed.is_global:
        return False
    inner = _embedded(parsed)
    if inner is not None:
        return is_public(str(inner))
    return str(parsed) not in own_addresses()


def _embedded(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to, where it does."""
    if isinstance(address, IPv4Address):
        return None
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]


def closed_networks(uplink: str) -> list[str]:
    """Return the IPv4 networks that a box must not reach through an *uplink* on that network.

    On the uplink's own network the uplink alone answers, whatever addresses this machine has there.
    """
    inside = ipaddress.ip_network(uplink)
    own = [address for address in map(IPv4Address, sorted(_own_ipv4())) if address.is_global]
    return [*_NOT_PUBLIC, *(f"{address}/32" for address in own if address not in inside)]


def own_addresses() -> set[str]:
    """Return the addresses of this machine's interfaces, as far as the kernel tells."""
    return {*_own_ipv4(), *_own_ipv6()}


def _own_ipv4() -> set[str]:
    own, last = set(), ""
    for line in _lines(_IPV4_TABLE):
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words == ["/32", "host", "LOCAL"]:
            own.add(last)
    return own


def _own_ipv6() -> set[str]:
    digits = (line.split()[0] for line in _lines(_IPV6_TABLE))
    return {str(IPv6Address(int(number, 16))) for number in digits}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []  # not Linux, or no IPv6
