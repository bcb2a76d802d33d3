"""The pytest that Bakeoff brings, for boxes whose own Python has none.

It is the one that is installed with Bakeoff: pytest and the packages it needs, pure Python, copied
once per process and mounted read-only into the box in which work is graded, and into no other.
"""

import atexit
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

from bakeoff._lib import scratch
from bakeoff.core.boxes import Mount

VARIABLE = "BAKEOFF_PYTEST"  # where the process of the tests finds it
OLDEST_PYTHON = (3, 11)  # for an older one pytest needs packages that are not installed here
_TARGET = "/opt/bakeoff-pytest"
_PACKAGES = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
_copying = Lock()


def is_here() -> bool:
    """Whether there is a pytest to bring."""
    return all(_location(name) is not None for name in _PACKAGES)


def mounts() -> tuple[Mount, ...]:
    """Return what shows it in a box; nothing where there is none to bring."""
    if not is_here():
        return ()
    with _copying:
        return (Mount(source=str(_folder()), target=_TARGET),)


def environment() -> dict[str, str]:
    """Return what tells the process of the tests where it is."""
    return {VARIABLE: _TARGET}


@cache
def _folder() -> Path:
    """Return a folder with the packages and nothing else, so that no other package is seen."""
    folder = scratch.new_folder("pytest")
    atexit.register(scratch.remove, folder)
    for name in _PACKAGES:
        source = _location(name)
        if source is not None and source.is_dir():
            shutil.copytree(source, folder / name)  # with its bytecode: it is mounted read-only
        elif source is not None:
            shutil.copy2(source, folder / source.name)
    folder.chmod(0o755)  # whoever the box makes of the tests must be able to read it
    return folder


@cache
def _location(name: str) -> Path | None:
    """Return the folder or the file that *name* is imported from, without importing it."""
    spec = find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None
