"""Checks whether a box can run tests before an agent works in it, and brings pytest if it has none."""

import asyncio
import atexit
import json
import shlex
import shutil
from collections.abc import Iterable, Mapping
from compileall import compile_dir
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

from bakeoff._lib import scratch
from bakeoff.core.errors import ScorerError
from bakeoff.core.sandbox import Box, Command, Mount
from bakeoff.scorers.grading_box import last_lines

VARIABLE = "BAKEOFF_PYTEST"  # tells the test process where it is
OLDEST_PYTHON = (3, 11)  # on older ones pytest needs packages that are not installed here
_TARGET = "/opt/bakeoff-pytest"
_PACKAGES = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
_COMPILED = (
    "_pytest",
    "pluggy",
    "iniconfig",
    "packaging",
)  # of pygments it imports a few of hundreds
_copying = Lock()


def is_here() -> bool:
    """Whether pytest is installed beside Bakeoff, so that it can be brought."""
    return all(_location(name) is not None for name in _PACKAGES)


def mounts() -> tuple[Mount, ...]:
    """Return the mounts that show pytest in a box; none where it is not installed."""
    if not is_here():
        return ()
    with _copying:
        return (Mount(source=str(_folder()), target=_TARGET),)


def environment() -> dict[str, str]:
    """Return the variables that tell the test process where pytest is."""
    return {VARIABLE: _TARGET}


@cache
def _folder() -> Path:
    """Return a folder with only these packages, so that no other package is visible."""
    folder = scratch.new_folder("pytest")
    atexit.register(scratch.remove, folder)
    for name in _PACKAGES:
        source = _location(name)
        if source is not None and source.is_dir():
            shutil.copytree(source, folder / name)
        elif source is not None:
            shutil.copy2(source, folder / source.name)
    for name in _COMPILED:  # it is mounted read-only: what is not compiled now never will be
        compile_dir(folder / name, quiet=2)
    folder.chmod(0o755)  # readable for any user in the box
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


REMEDY = (
    "give the box what is missing: a Dockerfile in a prepared folder; `box.setup`, `box.dockerfile` "
    "or `box.image` in task.toml; or `settings.default_image` (docker, podman) or `settings.rootfs` "
    "(bubblewrap) under [sandbox]"
)
_PROBE_S = 60.0
_PROBE = """\
import json, sys
from importlib.util import find_spec
sys.path[:] = [place for place in sys.path if place]
print()
print(json.dumps([list(sys.version_info[:2]), find_spec("pytest") is not None]))
"""


async def brought_mounts() -> tuple[Mount, ...]:
    """Return the mounts for the pytest that Bakeoff brings; the first call copies it."""
    return await asyncio.to_thread(mounts)


async def check_python(
    box: Box,
    *,
    scorer: str,
    command: str | None = None,
    pytest: bool = False,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Raise where *box* has no Python, or with *pytest*, none that can run pytest."""
    python = command or "python3"
    probe = Command(
        argv=("sh", "-c", f'exec {python} "$@"', "sh", "-c", _PROBE),
        environment={**(environment or {}), "PYTHONDONTWRITEBYTECODE": "1"},
        time_s=_PROBE_S,
    )
    ran = await box.run(probe)
    try:
        version, has_pytest = json.loads(ran.output.splitlines()[-1])
    except (IndexError, ValueError, TypeError) as error:
        raise ScorerError(
            f"scorer {scorer!r}: Python could not be started with {python!r}; "
            f"{last_lines(ran.output)}; {REMEDY}"
        ) from error
    if pytest and not has_pytest:
        refuse_pytest(scorer, tuple(version))


def refuse_pytest(scorer: str, version: tuple[int, ...]) -> None:
    """Raise where a Python without pytest cannot use the one that Bakeoff brings."""
    if not is_here():
        why = "and none is installed beside Bakeoff that it could bring: pip install pytest"
    elif version < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        has = ".".join(map(str, version))
        why = f"and the one that Bakeoff brings needs Python {oldest} or later, not {has}"
    else:
        return
    raise ScorerError(f"scorer {scorer!r}: the box has no pytest, {why}; {REMEDY}")


async def check_programs(box: Box, programs: Iterable[str], *, scorer: str) -> None:
    """Raise where *box* lacks one of *programs*."""
    for program in sorted(set(programs)):
        line = f"command -v {shlex.quote(program)}"
        ran = await box.run(Command(argv=("sh", "-c", line), time_s=_PROBE_S))
        if ran.code != 0:
            raise ScorerError(
                f"scorer {scorer!r}: the box has no {program!r}, which runs a test; {REMEDY}"
            )
