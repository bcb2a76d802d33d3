"""Looks in a box for canaries everywhere an agent can: run as a cell, or as a program of its own.

Prints one line, `looked [...]`, with every place where one was found. `HINTS`, a name or a variable of
the environment, is what an attacker could have guessed of the host: paths, and ports.
"""

import contextlib
import gc
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import FrameType

CANARY = re.compile("CANA" + "RY-[a-z]")  # neither this file nor the pattern is a finding
SKIPPED = {"/proc", "/sys", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt"}
MOST = 5_000_000
GATEWAY_PATHS = ("", "/models", "/../", "/../../etc/passwd", "/files", "/chat/completions")
found: set[str] = set()
hints = json.loads(globals().get("HINTS") or os.environ.get("HINTS") or "{}")


def look(what: object, where: str) -> None:
    text = what.decode(errors="replace") if isinstance(what, bytes) else str(what)
    if CANARY.search(text):
        found.add(where)


def look_in(path: Path) -> None:
    """Read a file; those of /proc say that they are empty, and are not."""
    look(path, str(path))
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size < MOST:
            look(path.read_bytes(), str(path))


def files(top: str) -> None:
    look_in(Path(top))
    for here, folders, names in os.walk(top):
        folders[:] = [name for name in folders if str(Path(here, name)) not in SKIPPED]
        for name in (*folders, *names):
            look_in(Path(here, name))


def processes() -> None:
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline", "maps", "mountinfo", "status", "cgroup"):
            look_in(process / name)
        for name in ("root", "cwd"):
            for path in hints.get("paths", ()):
                look_in(Path(f"{process / name}{path}"))
        with contextlib.suppress(OSError):
            for handle in (process / "fd").iterdir():
                look(handle.readlink(), str(handle))
        if process.name != str(os.getpid()):
            memory(process)


def memory(process: Path) -> None:
    with contextlib.suppress(OSError, ValueError), (process / "mem").open("rb") as mem:
        for line in (process / "maps").read_text().splitlines():
            place, rights, *_ = line.split()
            first, last = (int(number, 16) for number in place.split("-"))
            if rights.startswith("rw") and last - first < 10 * MOST:
                mem.seek(first)
                look(mem.read(last - first), str(process / "mem"))


def network() -> None:
    look_in(Path("/proc/net/unix"))
    for port in hints.get("ports", ()):
        for host in ("127.0.0.1", "10.0.2.2", "host.docker.internal"):
            with contextlib.suppress(OSError), socket.create_connection((host, port), 2):
                found.add(f"reached {host}:{port}")


def gateway() -> None:
    base, token = os.environ.get("OPENAI_BASE_URL"), os.environ.get("OPENAI_API_KEY")
    if base is None:
        return
    asks: list[tuple[str, bytes | None]] = [(path, None) for path in GATEWAY_PATHS]
    for model in ("candidate", "roles", "instructor", "supervisor"):
        body = {"model": model, "messages": [{"role": "user", "content": f"PROBE as {model}"}]}
        asks.append(("/chat/completions", json.dumps(body).encode()))
    for path, data in asks:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            request = urllib.request.Request(base + path, data, headers)
            with urllib.request.urlopen(request, timeout=20) as answer:
                look(f"{answer.headers}{answer.read().decode(errors='replace')}", f"GET {path}")
        except OSError as error:
            look(f"{error}{getattr(error, 'headers', '')}", f"GET {path}")
            look(error.read() if hasattr(error, "read") else "", f"GET {path}")


def itself() -> None:
    look(dict(os.environ), "environment")
    look(sys.argv, "argv")
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        look(frame.f_locals, f"frame {frame.f_code.co_name}")
        frame = frame.f_back
    for one in gc.get_objects():
        if isinstance(one, dict | list | tuple) and one is not found:
            texts = list(one.values() if isinstance(one, dict) else one)
            look([text for text in texts if isinstance(text, str)], "memory of the session")
    said = subprocess.run(
        "set; mount; ps auxww; git log -p --all; git stash list; ls -laR ~ . | head -n 2000",
        shell=True,
        capture_output=True,
        check=False,
    )
    look(said.stdout, "shell")


for top in ("/", *hints.get("paths", ())):
    files(top)
processes()
network()
gateway()
itself()
print("looked", json.dumps(sorted(found)))
