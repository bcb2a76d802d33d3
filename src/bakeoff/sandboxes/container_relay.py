"""How commands in a container reach the gateway: its socket is mounted, and a relay leads to it.

A relay needs something in the container that can run it. Each command looks whether there is one
that listens, and starts it where there is none: the first command of a box, the first after a
restart, and whoever comes after a program that killed it.
"""

from dataclasses import dataclass
from pathlib import Path

from bakeoff.core.boxes import GatewayAddress, Mount
from bakeoff.core.errors import SandboxError

PORT = 8642
_SUPPORT = "/run/bakeoff"
_SOCKET = f"{_SUPPORT}/gateway.sock"
_HERE = Path(__file__).parent
_FIND = "for name in python3 perl node; do command -v $name >/dev/null && echo relay=$name; done; :"

# $1 is the relay. In its own subshell, so that the relay is nobody's child: a program may wait for all of its own.
_ENSURE = f"""\
relay=$1; shift
listens() {{ grep -q '0100007F:{PORT:04X} 00000000:0000 0A' /proc/net/tcp; }}
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
    """A way to run a relay: which program runs which file, and what it wants besides."""

    interpreter: str
    file: str
    more: str = ""

    def before(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return *argv* behind words that see to it that a relay listens."""
        relay = f"{self.interpreter} {_SUPPORT}/{self.file} {PORT} {_SOCKET} {self.more}"
        return ("sh", "-c", _ENSURE, "sh", relay.strip(), *argv)


RELAYS = (
    # relay.py ends with the command that it is given: one that lasts as long as the box
    Relay(interpreter="python3", file="relay.py", more="-- sleep 2147483647"),
    Relay(interpreter="perl", file="container_relay.pl"),
    Relay(interpreter="node", file="container_relay.js"),
)
FIND = ("sh", "-c", _FIND)  # to be run in the box; `choose` reads what it prints


def mounts(gateway: GatewayAddress | None) -> tuple[Mount, ...]:
    """Return what the box must show so that a relay can be run in it."""
    if gateway is None:
        return ()
    names = [relay.file for relay in RELAYS]
    files = [Mount(source=str(_HERE / name), target=f"{_SUPPORT}/{name}") for name in names]
    return (*files, Mount(source=gateway.socket, target=_SOCKET))


def choose(printed: str, *, image: str | None) -> Relay:
    """Return the first relay that can be run, by what `FIND` printed."""
    for relay in RELAYS:
        if f"relay={relay.interpreter}" in printed.split():
            return relay
    names = ", ".join(relay.interpreter for relay in RELAYS)
    raise SandboxError(
        f"the image {image!r} has none of {names}: one of them must carry the model's gateway "
        "into a container without network. Add one to the image"
    )
