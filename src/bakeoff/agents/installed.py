"""A program as it is installed here, and how a box gets to see it.

What a box needs is mounted under `/opt/bakeoff`, so that an image with its own `/usr` and its own
`node` keeps them. Only Python programs stay where they are: a virtual environment cannot move. A box
without mounts has the files of the host, and finds the program at its own place.
"""

import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bakeoff.agents.programs import Program
from bakeoff.core.boxes import Mount
from bakeoff.core.errors import UsageError

_AGENT = "/opt/bakeoff/agent"
_NODE = "/opt/bakeoff/bin/node"
_SYSTEM = ("/usr", "/bin", "/lib", "/sbin")  # of the host's own; a box has one of its own
_VERSION_S = 20.0
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
_PYTHON = re.compile(r"(?:^#!|^'''exec' )\s*[\"']?(/[^\s\"']*python[\w.]*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Where a program is: on the host, in a box that mounts it, and what is to be mounted."""

    host: tuple[str, ...]
    box: tuple[str, ...]
    mounts: tuple[Mount, ...]
    version: str | None

    def argv(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command that starts it where it is found, mounted or not."""
        if self.host == self.box:
            return (*self.host, *arguments)
        mounted, own = shlex.join(self.box), shlex.join(self.host)
        script = f'if [ -e {shlex.quote(self.box[-1])} ]; then exec {mounted} "$@"; fi\n'
        return ("sh", "-c", f'{script}exec {own} "$@"', Path(self.box[-1]).name, *arguments)


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
        return _with_node(program, modules or path.parent, path, version)
    if interpreter := _PYTHON.search(opening):
        return _with_python(program, path, Path(interpreter[1]), version)
    return _under(modules or path, path, version)


def _under(folder: Path, program: Path, version: str | None) -> Installed:
    """A program that needs nothing but its folder, or itself."""
    inside = program.relative_to(folder).as_posix() if program != folder else ""
    return Installed(
        host=(str(program),),
        box=(f"{_AGENT}/{inside}".rstrip("/"),),
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
        host=(node, *plain.host),
        box=(_NODE, *plain.box),
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
        if not str(home).startswith(_SYSTEM) and not homes & set(home.parents)
    )
    words = (str(python), str(script))
    return Installed(host=words, box=words, mounts=mounts, version=version)


def _homes(python: Path) -> set[Path]:
    """Return the environment of an interpreter, and those that it is a link to."""
    homes = {python.parent.parent}
    while python.is_symlink():
        python = python.parent / python.readlink()
        homes.add(python.parent.parent)
    return homes


def _outermost(path: Path, name: str) -> Path | None:
    """Return the folder called *name* that holds *path* with all that was installed beside it."""
    return next((folder for folder in reversed(path.parents) if folder.name == name), None)


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
        manifest = folder / "package.json"
        if manifest.is_file():
            stated = json.loads(manifest.read_text(encoding="utf-8"))
            if stated.get("name") == program.package:
                return str(stated["version"])
    stem = program.package.replace("-", "_")
    for folder in path.parent.parent.glob(f"lib/python3*/site-packages/{stem}-*.dist-info"):
        return folder.name.removesuffix(".dist-info").removeprefix(f"{stem}-")
    return _asked(path)


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
