"""The command-line client of docker or podman: calls, arguments, and how a command is started."""

import asyncio
import csv
import io
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bakeoff._lib import process
from bakeoff.core.errors import SandboxError
from bakeoff.core.sandbox import BoxSpec, Mount
from bakeoff.core.values import Json
from bakeoff.core.workspace import BoxLimits
from bakeoff.sandboxes.host.shell_limits import file_size_limit

EngineName = Literal["docker", "podman"]

_AT_ONCE = 8  # more concurrent calls make an engine slower, not faster
_CALL_S = 120.0
_ASK_S = 10.0
_MAX_SHOWN = 2000
_INSTALL = {
    "docker": "install Docker and start it (Debian: apt install docker.io), or use --sandbox podman",
    "podman": "install podman (Debian: apt install podman), or use --sandbox docker",
}


@dataclass(frozen=True, kw_only=True)
class EngineDialect:
    """The arguments that differ between the engines."""

    run: tuple[str, ...]  # limits a container's log, and keeps the host's proxies out of it
    remove: tuple[str, ...]
    copy: tuple[str, ...]  # into a container, with the owners as they are in the archive
    rootless: str


DIALECTS: Mapping[EngineName, EngineDialect] = {
    "docker": EngineDialect(
        run=("--log-driver", "json-file", "--log-opt", "max-size=1m", "--log-opt", "max-file=1"),
        remove=("rm", "-f", "-v"),
        copy=("cp", "--archive"),
        rootless="{{.SecurityOptions}}",
    ),
    "podman": EngineDialect(
        run=("--log-driver", "k8s-file", "--log-opt", "max-size=1mb", "--http-proxy=false"),
        remove=("rm", "-f", "-v", "-t", "0"),
        copy=("cp", "--archive=false"),
        rootless="rootless={{.Host.Security.Rootless}}",
    ),
}


# as in `run` of the dialects
_LOGS: Mapping[EngineName, Json] = {
    "docker": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
    "podman": {"Type": "k8s-file", "Config": {"max-size": "1mb"}},
}


class Engine:
    """Calls one engine's client, with a limit on concurrent calls."""

    def __init__(self, name: EngineName, environment: Mapping[str, str]) -> None:
        self.name = name
        self.dialect = DIALECTS[name]
        self.environment = environment
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def unavailable_reason(self) -> str | None:
        """Return why the engine cannot be used, and what to do; None where it works."""
        if shutil.which(self.name, path=self.environment.get("PATH")) is None:
            return f"there is no program {self.name!r}; {_INSTALL[self.name]}"
        # docker's `version` fails where no daemon answers, podman's where its set-up is broken
        command = ["info", "--format", "{{.ID}}"] if self.name == "docker" else ["info"]
        try:
            done = subprocess.run(
                [self.name, *command],
                env=dict(self.environment),
                capture_output=True,
                timeout=_ASK_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{self.name} does not answer within {_ASK_S:g} s; {_INSTALL[self.name]}"
        if done.returncode == 0:
            return None
        output = (done.stderr or done.stdout).decode(errors="replace").strip()
        return f"{self.name} does not work: {output[-_MAX_SHOWN:]}; {_INSTALL[self.name]}"

    def program(
        self, *arguments: str, stdin: bytes = b"", most_output: int = 1_000_000
    ) -> process.Program:
        """Return the call with *arguments*, not yet started."""
        return process.Program(
            argv=(self.name, *arguments),
            environment=self.environment,
            stdin=stdin,
            most_output=most_output,
            keeps_children=True,  # podman leaves a monitor process with each container
        )

    async def ask(
        self,
        *arguments: str,
        stdin: bytes = b"",
        time_s: float = _CALL_S,
        most_output: int = 1_000_000,
    ) -> process.ProcessResult:
        """Make the call and return how it ended, successful or not."""
        call = self.program(*arguments, stdin=stdin, most_output=most_output)
        try:
            async with self._slots:
                return await process.run(call, time_s=time_s)
        except FileNotFoundError as error:
            raise SandboxError(f"no program {self.name!r} here; {_INSTALL[self.name]}") from error

    async def call(
        self,
        *arguments: str,
        stdin: bytes = b"",
        time_s: float = _CALL_S,
        most_output: int = 1_000_000,
    ) -> str:
        """Make the call and return its output; SandboxError where it fails."""
        ended = await self.ask(*arguments, stdin=stdin, time_s=time_s, most_output=most_output)
        if ended.code == 0:
            return ended.output
        what = f"{self.name} {arguments[0]}"
        if ended.stopped:
            raise SandboxError(f"{what} did not end within {time_s:g} s", transient=True)
        raise SandboxError(f"{what} failed: {ended.output.strip()[-_MAX_SHOWN:]}")

    async def is_rootless(self) -> bool:
        """Whether root in a container is the engine's user on the host."""
        info = await self.call("info", "--format", self.dialect.rootless)
        return "name=rootless" in info or "rootless=true" in info


HOME = "/home/agent"

# A waiting shell also reaps the orphans of the container, so no init program is needed.
_UMASK = "umask 0022"  # podman's API starts programs with none
_WAIT = "while :; do sleep 3600; done"
_WAIT_AT_HOME = f"{_UMASK}; mkdir -p -m 1777 /tmp {HOME}; {_WAIT}"

# Needed by package managers. A box with a mounted folder needs none: it has one user.
_PACKAGING_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID",
)  # fmt: skip

# Reads lines up to the marker, evaluates them, and execs the command. A shell reads a pipe byte by
# byte, so what follows the marker is left for the command.
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


def run_arguments(spec: BoxSpec, mounts: tuple[Mount, ...], image: str) -> list[str]:
    """Return the arguments of `run` for the container of *spec*, after its name and labels."""
    arguments = ["--pull", "never", "--security-opt", "no-new-privileges"]
    arguments += ["--security-opt", "label=disable"]  # otherwise SELinux blocks its own mounts
    arguments += [] if spec.network is True else ["--network", "none"]
    arguments += _limits(spec.limits)
    arguments += ["--cap-drop", "ALL"]
    for mount in mounts:
        arguments += ["--mount", _mount(mount)]
    if spec.folder is None:  # the image with its own user and entrypoint
        for capability in _PACKAGING_CAPABILITIES:
            arguments += ["--cap-add", capability]
        return [*arguments, image, "sh", "-c", _WAIT]
    return [*arguments, "--user", "0:0", "--entrypoint", "sh", image, "-c", _WAIT_AT_HOME]


def container_settings(
    spec: BoxSpec, mounts: tuple[Mount, ...], image: str, *, engine: EngineName
) -> dict[str, Json]:
    """Return what `run_arguments` and the engine's own arguments say, as docker's API takes it.

    `tests/component/test_container_api.py` compares the containers that come of both.
    """
    limits = spec.limits
    host: dict[str, Json] = {
        "SecurityOpt": ["no-new-privileges", "label=disable"],
        "CapDrop": ["ALL"],
        "RestartPolicy": {"Name": "no"},
        "LogConfig": _LOGS[engine],
        "Mounts": [
            {
                "Type": "bind",
                "Source": mount.source,
                "Target": mount.target,
                "ReadOnly": not mount.writable,
            }
            for mount in mounts
        ],
    }
    if spec.network is not True:
        host["NetworkMode"] = "none"
    if limits.memory_mb is not None:
        host["Memory"] = host["MemorySwap"] = limits.memory_mb << 20
    if limits.processes is not None:
        host["PidsLimit"] = limits.processes
    if limits.cpus is not None:
        host["NanoCpus"] = round(limits.cpus * 1e9)
    if spec.folder is None:  # the image with its own user and entrypoint
        host["CapAdd"] = [f"CAP_{capability}" for capability in _PACKAGING_CAPABILITIES]
        return {"Image": image, "Cmd": ["sh", "-c", _WAIT], "HostConfig": host}
    command: dict[str, Json] = {"Entrypoint": ["sh"], "Cmd": ["-c", _WAIT_AT_HOME], "User": "0:0"}
    return {"Image": image, **command, "HostConfig": host}


def _limits(limits: BoxLimits) -> list[str]:
    arguments = []
    if limits.memory_mb is not None:
        most = f"{limits.memory_mb}m"
        arguments += ["--memory", most, "--memory-swap", most]
    if limits.processes is not None:
        arguments += ["--pids-limit", str(limits.processes)]
    if limits.cpus is not None:
        arguments += ["--cpus", f"{limits.cpus:g}"]
    return arguments


def _mount(mount: Mount) -> str:
    """Return a mount in the engines' format: one line of CSV, so that paths may hold anything."""
    line = io.StringIO()
    fields = ["type=bind", f"source={mount.source}", f"target={mount.target}"]
    csv.writer(line, lineterminator="").writerow(fields + ([] if mount.writable else ["readonly"]))
    return line.getvalue()


def wrap_command(argv: tuple[str, ...], marker: str) -> list[str]:
    """Return the command line that starts *argv* in the container."""
    return [
        "/bin/sh",
        "-c",
        _ENTER,
        "sh",
        marker,
        *argv,
    ]  # absolute, so that an agent cannot put another one on PATH


def no_folder_marker(marker: str) -> str:
    """Return the text that is printed instead of the marker where the working directory is missing."""
    return f"nowhere-{marker}"


def preamble(
    environment: Mapping[str, str], *, cwd: str, disk_mb: int | None, marker: str
) -> bytes:
    """Return the input before the command's own; it prints the marker as the first line of output."""
    lines = [_UMASK]
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            raise SandboxError(f"no shell can set the variable {name!r} in a container")
        lines.append(f"export {name}={shlex.quote(value)}")
    if disk_mb is not None:
        lines.append(file_size_limit(disk_mb))
    # the marker after `cd`: without it the command was not started
    start = f"cd -- {shlex.quote(cwd)} 2>&1 || {{ echo {no_folder_marker(marker)}; exit 126; }}"
    lines += [start, f"echo {marker}"]
    return "".join(f"{line}\n" for line in [*lines, marker]).encode()
