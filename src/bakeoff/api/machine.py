"""What was measured on: the machine, its system, and the server that its models came from."""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec

from bakeoff._lib.untrusted import one_line
from bakeoff.core.errors import ProviderError, UsageError
from bakeoff.core.values import Json
from bakeoff.models.look import look, open_session
from bakeoff.models.ollama_address import address


class _Version(msgspec.Struct):
    version: str


async def machine_info(
    ollama: str | None = None, models: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return what there is to know, what is unknown as None; *models* is what servers say of them."""
    return {
        "cpu": _cpu(),
        "cores": _cores(),
        "memory_bytes": _memory_bytes(),
        "os": _system(),
        "python": platform.python_version(),
        "bakeoff": version("bakeoff"),
        "ollama": await ollama_version(ollama) if ollama else None,
        "models": dict(models or {}),
    }


async def ollama_version(host: str) -> str | None:
    """Return the version of the Ollama at *host*; None where nothing answers there."""
    try:
        async with open_session() as session:
            told = await look(session, f"{address(host)}/api/version", _Version)
    except (ProviderError, UsageError):
        return None  # whether there is one at all was asked before, and told
    return one_line(told.version, width=40)


def _cores() -> int | None:
    """Return how many cores this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu() -> str | None:
    """Return the name of the processor."""
    for line in _lines(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Hardware", "cpu model"}:
            return one_line(value)
    return platform.processor() or platform.machine() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None  # not every system tells


def _system() -> str:
    """Return the system with its version, as people call it."""
    for line in _lines(Path("/etc/os-release")):
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            name = one_line(value.strip("\"'"))
            return f"{name}, {platform.system()} {platform.release()}"
    return f"{platform.system()} {platform.release()}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []  # not Linux
