"""The client of a container engine, called as a program; what docker and podman do differently."""

import asyncio
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bakeoff._lib import process
from bakeoff.core.errors import SandboxError

EngineName = Literal["docker", "podman"]

_AT_ONCE = 8  # an engine asked for thirty containers in one moment gets slower, not faster
_CALL_S = 120.0
_ASK_S = 10.0
_SHOWN = 2000
_INSTALL = {
    "docker": "install Docker and start it (Debian: apt install docker.io), or use --sandbox podman",
    "podman": "install podman (Debian: apt install podman), or use --sandbox docker",
}


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The words that differ between the engines."""

    run: tuple[str, ...]  # keeps what a container prints small, and the host's proxies out of it
    remove: tuple[str, ...]
    copy: tuple[str, ...]  # into a container, with the owners as they are in the archive
    rootless: str


DIALECTS: Mapping[EngineName, Dialect] = {
    "docker": Dialect(
        run=("--log-driver", "json-file", "--log-opt", "max-size=1m", "--log-opt", "max-file=1"),
        remove=("rm", "-f", "-v"),
        copy=("cp", "--archive"),
        rootless="{{.SecurityOptions}}",
    ),
    "podman": Dialect(
        run=("--log-driver", "k8s-file", "--log-opt", "max-size=1mb", "--http-proxy=false"),
        remove=("rm", "-f", "-v", "-t", "0"),
        copy=("cp", "--archive=false"),
        rootless="rootless={{.Host.Security.Rootless}}",
    ),
}


class Engine:
    """Calls one engine's client; not too many calls at a time."""

    def __init__(self, name: EngineName, environment: Mapping[str, str]) -> None:
        self.name = name
        self.dialect = DIALECTS[name]
        self.environment = environment
        self._turns = asyncio.Semaphore(_AT_ONCE)

    def why_not(self) -> str | None:
        """Return None where the engine answers, else why it does not and what to do."""
        if shutil.which(self.name, path=self.environment.get("PATH")) is None:
            return f"there is no program {self.name!r}; {_INSTALL[self.name]}"
        # docker's `version` fails where no daemon answers, podman's where its set-up is broken
        asked = ["info", "--format", "{{.ID}}"] if self.name == "docker" else ["info"]
        try:
            done = subprocess.run(
                [self.name, *asked],
                env=dict(self.environment),
                capture_output=True,
                timeout=_ASK_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{self.name} does not answer within {_ASK_S:g} s; {_INSTALL[self.name]}"
        if done.returncode == 0:
            return None
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        return f"{self.name} does not work: {said[-_SHOWN:]}; {_INSTALL[self.name]}"

    def program(
        self, *words: str, stdin: bytes = b"", most_output: int = 1_000_000
    ) -> process.Program:
        """Return the call with *words*, not yet made."""
        return process.Program(
            argv=(self.name, *words),
            environment=self.environment,
            stdin=stdin,
            most_output=most_output,
            keeps_children=True,  # podman leaves a watcher with each container
        )

    async def ask(
        self, *words: str, stdin: bytes = b"", time_s: float = _CALL_S, most_output: int = 1_000_000
    ) -> process.Ended:
        """Make the call and return how it ended, good or bad."""
        call = self.program(*words, stdin=stdin, most_output=most_output)
        try:
            async with self._turns:
                return await process.run(call, time_s=time_s)
        except FileNotFoundError as error:
            raise SandboxError(f"no program {self.name!r} here; {_INSTALL[self.name]}") from error

    async def call(
        self, *words: str, stdin: bytes = b"", time_s: float = _CALL_S, most_output: int = 1_000_000
    ) -> str:
        """Make the call and return what it printed; SandboxError where it fails."""
        ended = await self.ask(*words, stdin=stdin, time_s=time_s, most_output=most_output)
        if ended.code == 0:
            return ended.output
        what = f"{self.name} {words[0]}"
        if ended.stopped:
            raise SandboxError(f"{what} did not end within {time_s:g} s", transient=True)
        raise SandboxError(f"{what} failed: {ended.output.strip()[-_SHOWN:]}")

    async def is_rootless(self) -> bool:
        """Whether root in a container is the engine's user outside of it."""
        seen = await self.call("info", "--format", self.dialect.rootless)
        return "name=rootless" in seen or "rootless=true" in seen
