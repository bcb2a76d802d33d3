"""A program as it is installed here, and how a box gets to see it.

What a box needs is mounted under `/opt/bakeoff`, so that an image with its own `/usr` and its own
`node` keeps them, and no box has to walk through somebody's home. Only Python programs stay where
they are: a virtual environment cannot move.
"""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bakeoff.agents.programs import Program
from bakeoff.core.boxes import Mount
from bakeoff.core.errors import UsageError

_AGENT = "/opt/bakeoff/agent"
_NODE = "/opt/bakeoff/bin/node"
_SYSTEM = Path("/usr")  # every box has one of its own
_VERSION_S = 20.0
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
_PYTHON = re.compile(r"(?:^#!|^'''exec' )\s*[\"']?(/[^\s\"']*python[\w.]*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A program that is there: the words that start it in a box, which needs the mounts for it."""

    words: tuple[str, ...]
    mounts: tuple[Mount, ...]
    version: str | None


def find(program: Program, executable: str | None = None) -> Installed:
    """Return where *program* is; a usage error with its install command where it is not."""
    found = shutil.which(executable or program.executable)
    if found is None:
        missing = f"agent {program.name!r} is not installed; install it with: {program.install}"
        if executable is not None:
            missing = f"agent {program.name!r}: there is no program {executable!r}"
        raise UsageError(missing)
    path = Path(found).resolve()
    modules = _outermost(path, "node_modules")
    version = _version(program, path)
    if modules is not None and program.native and (native := _native(modules, program.native)):
        return _under(native.parent.parent, native, version)
    opening = _opening(path)
    if opening.startswith("#!") and "node" in opening.partition("\n")[0]:
        return _with_node(program, modules or _package(path), path, version)
    if interpreter := _PYTHON.search(opening):
        return _with_python(program, path, Path(interpreter[1]), version)
    return _under(modules or path, path, version)


def _under(folder: Path, program: Path, version: str | None) -> Installed:
    """A program that needs nothing but its folder, or itself."""
    inside = program.relative_to(folder).as_posix() if program != folder else ""
    return Installed(
        words=(f"{_AGENT}/{inside}".rstrip("/"),),
        mounts=(Mount(source=str(folder), target=_AGENT),),
        version=version,
    )


def _with_node(program: Program, folder: Path, script: Path, version: str | None) -> Installed:
    node = shutil.which("node")
    if node is None:
        raise UsageError(f"agent {program.name!r} needs node, which is not installed")
    node = str(Path(node).resolve())
    plain = _under(folder, script, version)
    return Installed(
        words=(_NODE, *plain.words),
        mounts=(Mount(source=node, target=_NODE), *plain.mounts),
        version=version,
    )


def _with_python(program: Program, script: Path, python: Path, version: str | None) -> Installed:
    homes = _homes(python)
    if not any(script.is_relative_to(home) for home in homes):
        raise UsageError(
            f"agent {program.name!r}: {script} is not in an environment of its own, "
            f"so it cannot be shown in a box; install it with: {program.install}"
        )
    mounts = tuple(
        Mount(source=str(home), target=str(home))
        for home in sorted(homes)
        if not home.is_relative_to(_SYSTEM) and not homes & set(home.parents)
    )
    words = (str(python), str(script))
    return Installed(words=words, mounts=mounts, version=version)


def _homes(python: Path) -> set[Path]:
    """Return the environment of an interpreter, and those that it is a link to."""
    homes = {python.parent.parent}
    while python.is_symlink():
        # as it is written: an interpreter knows its own folders by that name
        python = Path(os.path.normpath(python.parent / python.readlink()))
        homes.add(python.parent.parent)
    return homes


def _outermost(path: Path, name: str) -> Path | None:
    """Return the folder called *name* that holds *path* with all that was installed beside it."""
    return next((folder for folder in reversed(path.parents) if folder.name == name), None)


def _package(path: Path) -> Path:
    """Return the folder of the package that *path* belongs to, else the file itself."""
    return next((folder for folder in path.parents if (folder / "package.json").is_file()), path)


def _native(modules: Path, pattern: str) -> Path | None:
    """Return the real program of a package, wherever the package manager put its other half."""
    for where in (pattern, f"*/node_modules/{pattern}", f"*/*/node_modules/{pattern}"):
        if found := sorted(modules.glob(where)):
            return found[0]
    return None


def _opening(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(1024).decode("utf-8", errors="replace")


def _version(program: Program, path: Path) -> str | None:
    """Return its version as its package states it, else as it says itself."""
    for folder in path.parents:
        stated = _manifest(folder / "package.json")
        if stated.get("name") == program.package and "version" in stated:
            return str(stated["version"])
    stem = program.package.replace("-", "_")
    for folder in path.parent.parent.glob(f"lib/python3*/site-packages/{stem}-*.dist-info"):
        return folder.name.removesuffix(".dist-info").removeprefix(f"{stem}-")
    return _asked(path)


def _manifest(path: Path) -> dict[str, object]:
    """Return what a package states of itself; nothing where that is none of ours to read."""
    try:
        stated = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return stated if isinstance(stated, dict) else {}


def _asked(path: Path) -> str | None:
    try:
        said = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(said.stdout.decode("utf-8", errors="replace"))
    return found[0] if found else None
