"""Whether a box can run tests at all: asked before an agent works in it, so that no work is lost."""

import asyncio
import json
import shlex
from collections.abc import Iterable, Mapping

from bakeoff.core.boxes import Box, Command, Mount
from bakeoff.core.errors import ScorerError
from bakeoff.scorers import brought_pytest
from bakeoff.scorers.clean_room import last_lines

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
    """Return what shows the pytest that Bakeoff brings; the first call copies it."""
    return await asyncio.to_thread(brought_pytest.mounts)


async def check_python(
    box: Box,
    *,
    scorer: str,
    command: str | None = None,
    pytest: bool = False,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Raise where *box* has no Python, or with *pytest* none that can run it."""
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
    """Raise where a Python without pytest cannot use the one that Bakeoff brings either."""
    if not brought_pytest.is_here():
        why = "and none is installed beside Bakeoff that it could bring: pip install pytest"
    elif version < brought_pytest.OLDEST_PYTHON:
        oldest = ".".join(map(str, brought_pytest.OLDEST_PYTHON))
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
