"""Real coding agents, installed once from npm at fixed versions and kept between runs."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bakeoff.agents.programs.command import (
    ClaudeCode,
    Codex,
    Continue,
    GeminiCli,
    NamedProgram,
    OpenCode,
    QwenCode,
)
from support.parts import require

VERSIONS: Mapping[type[NamedProgram], str] = {
    Codex: "0.166.0",
    ClaudeCode: "2.1.325",
    Continue: "1.5.47",
    OpenCode: "1.18.33",
    QwenCode: "0.24.4",
    GeminiCli: "0.61.0",
}


def installed(kind: type[NamedProgram]) -> NamedProgram:
    """Return the agent, installed where it is missing; the test is skipped where it cannot be."""
    program, version = kind.program, VERSIONS[kind]
    require("node with npm", shutil.which("npm") and shutil.which("node"), "apt install npm")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "bakeoff-tests" / "agents" / f"{program.name}-{version}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = (
            "" if (home / "complete").exists() else _install(home, f"{program.package}@{version}")
        )
    require(
        f"{program.name} {version}{said and f' ({said})'}",
        (home / "complete").exists(),
        f"npm install {program.package}@{version}",
    )
    return kind(executable=str(home / "node_modules" / ".bin" / program.executable))


def _install(home: Path, package: str) -> str:
    """Install *package*, and return what npm said if it could not."""
    shutil.rmtree(home / "node_modules", ignore_errors=True)
    done = subprocess.run(
        ["npm", "install", "--prefix", home, "--no-audit", "--no-fund", package],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode == 0:
        (home / "complete").touch()
        return ""
    return done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else "no reason given"
