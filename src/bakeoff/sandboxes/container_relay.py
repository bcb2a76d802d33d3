"""How commands in a container reach the gateway: its socket is mounted, and a relay leads to it.

A relay needs something in the container that can run it. It is started with each command and ends
with it.
"""

from dataclasses import dataclass
from pathlib import Path

from bakeoff.core.boxes import GatewayAddress, Mount
from bakeoff.core.errors import SandboxError

PORT = 8642
_SOCKET = "/run/bakeoff/gateway.sock"
_HERE = Path(__file__).parent
_FIND = "for name in python3 perl node; do command -v $name >/dev/null && echo relay=$name; done; :"


@dataclass(frozen=True, kw_only=True)
class Relay:
    """A way to run a relay: which file, and how it comes before a command."""

    interpreter: str
    file: str

    def before(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return *argv* with the relay beside it."""
        at = _at(self.file)
        if self.interpreter == "python3":
            return ("python3", "-IS", at, str(PORT), _SOCKET, "--", *argv)
        start = f'{self.interpreter} {at} {PORT} {_SOCKET} $$ </dev/null && exec "$@"'
        return ("sh", "-c", start, "sh", *argv)


RELAYS = (
    Relay(interpreter="python3", file="relay.py"),
    Relay(interpreter="perl", file="container_relay.pl"),
    Relay(interpreter="node", file="container_relay.js"),
)
FIND = ("sh", "-c", _FIND)  # to be run in the box; `choose` reads what it prints


def mounts(gateway: GatewayAddress | None) -> tuple[Mount, ...]:
    """Return what the box must show so that a relay can be run in it."""
    if gateway is None:
        return ()
    files = [Mount(source=str(_HERE / relay.file), target=_at(relay.file)) for relay in RELAYS]
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


def _at(file: str) -> str:
    return f"/run/bakeoff/{file}"
