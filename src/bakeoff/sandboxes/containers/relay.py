"""Relays from a port in a container to a mounted socket of the host.

There are two such sockets: the model gateway, and the proxy to the allowed hosts.

A relay needs an interpreter in the container. Each command checks whether a relay is listening and
starts one if not: the first command of a box, the first after a restart, and the next after a
program killed it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import Mount

PORT = 8642
_SUPPORT = "/run/bakeoff"
_PROGRAMS = Path(__file__).parents[1] / "relay_programs"
_FIND = "for name in python3 perl node; do command -v $name >/dev/null && echo relay=$name; done; :"

# $1 is the relay, $2 its port as /proc shows it. In its own subshell, so that the relay is nobody's child: a program may wait for all of its own.
_ENSURE = """\
relay=$1; port=$2; shift 2
listens() { grep -q "0100007F:$port 00000000:0000 0A" /proc/net/tcp; }
if ! listens; then
  ( $relay </dev/null >/dev/null 2>&1 & )
  tries=0
  until listens; do
    tries=$((tries + 1))
    if [ $tries -gt 500 ]; then echo 'the gateway cannot be reached from here' >&2; exit 125; fi
    sleep 0.02
  done
fi
exec "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Relay:
    """A way to run a relay: interpreter, file, and further arguments."""

    interpreter: str
    file: str
    more: str = ""

    def wrap(self, argv: tuple[str, ...], ports: Iterable[int]) -> tuple[str, ...]:
        """Return *argv* with a prefix that makes sure a relay listens at each of *ports*."""
        for port in ports:
            start = f"{self.interpreter} {_SUPPORT}/{self.file} {port} {_socket(port)} {self.more}"
            argv = ("sh", "-c", _ENSURE, "sh", start.strip(), f"{port:04X}", *argv)
        return argv


RELAYS = (
    # relay.py ends with its command, so it gets one that lasts as long as the box
    Relay(interpreter="python3", file="relay.py", more="-- sleep 2147483647"),
    Relay(interpreter="perl", file="relay.pl"),
    Relay(interpreter="node", file="relay.js"),
)
FIND = ("sh", "-c", _FIND)  # to be run in the box; `choose` reads what it prints


def mounts(sockets: Mapping[int, str]) -> tuple[Mount, ...]:
    """Return the mounts that the relays of *sockets* need in the box."""
    if not sockets:
        return ()
    names = [relay.file for relay in RELAYS]
    files = [Mount(source=str(_PROGRAMS / name), target=f"{_SUPPORT}/{name}") for name in names]
    ends = [Mount(source=path, target=_socket(port)) for port, path in sockets.items()]
    return (*files, *ends)


def _socket(port: int) -> str:
    return f"{_SUPPORT}/{port}.sock"


def choose(printed: str, *, image: str | None) -> Relay:
    """Return the first relay that can be run, by the output of `FIND`."""
    for relay in RELAYS:
        if f"relay={relay.interpreter}" in printed.split():
            return relay
    names = ", ".join(relay.interpreter for relay in RELAYS)
    raise SandboxError(
        f"the image {image!r} has none of {names}: one of them must carry the model's gateway "
        "or the proxy into a container without network. Add one to the image"
    )
