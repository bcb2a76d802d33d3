"""How a box is said to an engine: the words of `run`, and how a command gets into a container.

A command's environment goes in through standard input, before the command's own input: an argument
could be read by every user of the host, and an engine's file of variables holds no line breaks.
"""

import csv
import io
import re
import shlex
from collections.abc import Mapping

from bakeoff.core.boxes import BoxSpec, Mount
from bakeoff.core.errors import SandboxError
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.prelude import largest_file

HOME = "/home/agent"

# A shell that waits also sees off the orphans of the container, so no init program is needed.
_WAIT = "while :; do sleep 3600; done"
_WAIT_AT_HOME = f"mkdir -p -m 1777 /tmp {HOME}; {_WAIT}"

# What package managers use. A box with a folder of ours needs none: it works as one user.
_PACKAGING = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID",
)  # fmt: skip

# Reads lines up to the mark, does what they say, and becomes the command. A shell reads a pipe
# byte by byte, so what follows the mark is left for the command.
_ENTER = """\
_lines=
while IFS= read -r _line && [ "$_line" != "$1" ]; do _lines="$_lines$_line
"; done
shift
eval "$_lines"
unset _lines _line
exec "$@" 2>&1
"""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def run_words(spec: BoxSpec, mounts: tuple[Mount, ...], image: str) -> list[str]:
    """Return what follows `run` for the container of *spec*, after its name and labels."""
    words = ["--pull", "never", "--security-opt", "no-new-privileges"]
    words += ["--security-opt", "label=disable"]  # else SELinux keeps it from its own mounts
    words += [] if spec.network is True else ["--network", "none"]
    words += _limits(spec.limits)
    words += ["--cap-drop", "ALL"]
    for mount in mounts:
        words += ["--mount", _mount(mount)]
    if spec.folder is None:  # the image as its maker meant it, with its own user and entrypoint
        for capability in _PACKAGING:
            words += ["--cap-add", capability]
        return [*words, image, "sh", "-c", _WAIT]
    return [*words, "--user", "0:0", "--entrypoint", "sh", image, "-c", _WAIT_AT_HOME]


def _limits(limits: BoxLimits) -> list[str]:
    words = []
    if limits.memory_mb is not None:
        most = f"{limits.memory_mb}m"
        words += ["--memory", most, "--memory-swap", most]
    if limits.processes is not None:
        words += ["--pids-limit", str(limits.processes)]
    if limits.cpus is not None:
        words += ["--cpus", f"{limits.cpus:g}"]
    return words


def _mount(mount: Mount) -> str:
    """Return a mount as the engines read it: a line of CSV, whatever is in the paths."""
    line = io.StringIO()
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    csv.writer(line, lineterminator="").writerow(fields + ([] if mount.writable else ["readonly"]))
    return line.getvalue()


def entering(argv: tuple[str, ...], mark: str) -> list[str]:
    """Return the program to run in the container so that it becomes *argv*."""
    return ["/bin/sh", "-c", _ENTER, "sh", mark, *argv]  # not one that an agent put on PATH


def nowhere(mark: str) -> str:
    """Return what is printed instead of the mark where there is no such folder to start in."""
    return f"nowhere-{mark}"


def preamble(environment: Mapping[str, str], *, cwd: str, disk_mb: int | None, mark: str) -> bytes:
    """Return what comes before the command's own input; it makes the mark the first line out."""
    lines = []
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            raise SandboxError(f"no shell can set the variable {name!r} in a container")
        lines.append(f"export {name}={shlex.quote(value)}")
    if disk_mb is not None:
        lines.append(largest_file(disk_mb))
    # the mark after `cd`: without it the command has not been started
    start = f"cd -- {shlex.quote(cwd)} 2>&1 || {{ echo {nowhere(mark)}; exit 126; }}"
    lines += [start, f"echo {mark}"]
    return "".join(f"{line}\n" for line in [*lines, mark]).encode()
