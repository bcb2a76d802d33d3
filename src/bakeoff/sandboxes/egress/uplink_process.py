"""Starts the uplink of one network namespace: `python3 uplink_process.py PID ROUTES -- argv...`.

It makes every network in ROUTES, separated by commas, unreachable in the namespace of process PID,
where that cannot be changed, and then execs *argv*, in which {netns} and {userns} are replaced by
the paths of the two namespaces. It is run by path, with the standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
import time

_GET_OWNER = 0xB701  # NS_GET_USERNS
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_NEW_ROUTE, _ERROR = 24, 2  # RTM_NEWROUTE, NLMSG_ERROR
_REQUEST, _ACKNOWLEDGE, _CREATE = 0x1, 0x4, 0x400
_MAIN_TABLE, _BY_BOOT, _EVERYWHERE, _UNREACHABLE = 254, 3, 0, 7
_DESTINATION = 1  # RTA_DST
_MAPPED_S = 5.0


def _wait_until_mapped(pid: str) -> None:
    """Wait until the user map of the namespace is set, which entering it requires."""
    until = time.monotonic() + _MAPPED_S
    while time.monotonic() < until:
        with open(f"/proc/{pid}/uid_map", encoding="ascii") as file:  # noqa: PTH123 -- no imports
            if file.read():
                return
        time.sleep(0.001)
    sys.exit(f"the user namespace of {pid} has no users")


def _enter(namespace: int, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, kind) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _make_unreachable(network: str) -> bytes:
    address, bits = network.split("/")
    route = struct.pack(
        "=BBBBBBBBI",
        *(socket.AF_INET, int(bits), 0, 0, _MAIN_TABLE, _BY_BOOT, _EVERYWHERE, _UNREACHABLE, 0),
    )
    attribute = struct.pack("=HH4s", 8, _DESTINATION, socket.inet_aton(address))
    body = route + attribute
    flags = _REQUEST | _ACKNOWLEDGE | _CREATE
    return struct.pack("=IHHII", 16 + len(body), _NEW_ROUTE, flags, 1, 0) + body


def _close_routes(netns: int, userns: int, networks: list[str]) -> None:
    """Enter the namespaces and make *networks* unreachable there."""
    _enter(userns, _NEW_USER)
    _enter(netns, _NEW_NET)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        for network in networks:
            kernel.send(_make_unreachable(network))
            reply = kernel.recv(4096)
            kind, code = struct.unpack_from("=H", reply, 4)[0], struct.unpack_from("=i", reply, 16)
            if kind != _ERROR or code[0] != 0:
                raise OSError(-code[0], f"{network}: {os.strerror(-code[0])}")


def main(pid: str, networks: str, _: str, *argv: str) -> None:
    """Close the routes, then exec the uplink."""
    _wait_until_mapped(pid)
    netns = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    userns = fcntl.ioctl(netns, _GET_OWNER)
    child = os.fork()  # a child, because a process cannot leave the namespaces again
    if child == 0:
        try:
            _close_routes(netns, userns, networks.split(","))
        except OSError as error:
            sys.stderr.write(f"the routes cannot be closed: {error}\n")
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(1)
    for number in (netns, userns):
        os.set_inheritable(number, True)  # noqa: FBT003 -- it takes no keyword
    paths = {"{netns}": f"/proc/self/fd/{netns}", "{userns}": f"/proc/self/fd/{userns}"}
    command = [paths.get(word, word) for word in argv]
    os.execv(command[0], command)  # noqa: S606 -- that is what it is for


if __name__ == "__main__":
    main(*sys.argv[1:])
