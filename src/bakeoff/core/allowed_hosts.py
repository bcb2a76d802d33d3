"""The hosts that a box may reach, as a task writes them: `pypi.org`, `*.pythonhosted.org:443`."""

import ipaddress
import re
from typing import TypeAlias

from bakeoff._lib.noun import noun

Network: TypeAlias = bool | tuple[str, ...]
"""What a box may reach: nothing, everything that is public, or the hosts of a list."""

_WEB_PORTS = frozenset({80, 443})
_MOST_PORT = 65535
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_ENTRY = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:(?P<port>[0-9]{1,5}))?")


@noun
class AllowedHost:
    """A host by its name or address, or with `subdomains` all that are below it; "" is any host.

    Without a `port` it can be reached at those of the web, 80 and 443.
    """

    name: str
    port: int | None = None
    subdomains: bool = False

    def covers(self, host: str, port: int) -> bool:
        """Whether *host* can be reached at *port*; *host* is written as `plain_host` writes it."""
        if port not in (_WEB_PORTS if self.port is None else {self.port}):
            return False
        if not self.subdomains:
            return host == self.name
        return not self.name or host.endswith(f".{self.name}")


def parse_allowed_host(text: str) -> AllowedHost:
    """Return the entry that *text* is; ValueError says what is wrong with it."""
    parts = _ENTRY.fullmatch(text)
    if parts is None:
        raise ValueError(
            f"{text!r} is no host; write a name such as pypi.org, *.pypi.org or pypi.org:8443, "
            "without http:// and without a path"
        )
    name, port = parts["name"], None if parts["port"] is None else int(parts["port"])
    if port is not None and not 0 < port <= _MOST_PORT:
        raise ValueError(f"{text!r} has no port between 1 and {_MOST_PORT}")
    if name == "*":
        return AllowedHost(name="", port=port, subdomains=True)
    below = name.removeprefix("*.")
    plain = plain_host(below)
    if plain is None or (below != name and _is_address(plain)):
        raise ValueError(f"{text!r} is no host; write a name such as pypi.org, or *.pypi.org")
    return AllowedHost(name=plain, port=port, subdomains=below != name)


def plain_host(host: str) -> str | None:
    """Return *host* in the one form in which hosts are compared; None where it is none."""
    bare = host.strip("[]").rstrip(".").lower()
    if _is_address(bare):
        return str(ipaddress.ip_address(bare))
    try:
        ascii_name = bare if bare.isascii() else bare.encode("idna").decode("ascii")
    except UnicodeError:
        return None
    # a name that ends in a number is an address to some resolvers: 2130706433, 0x7f.1
    last = ascii_name.rsplit(".", 1)[-1]
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", last):
        return None
    return ascii_name if _NAME.fullmatch(ascii_name) else None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
