"""One test script of a rubric: how it is run, by what it is, and the metrics that it tells."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

from bakeoff._lib.python_imports import imports_module
from bakeoff._lib.untrusted import well_formed
from bakeoff.core.values import Json
from bakeoff.scorers.json_text import NoJsonError, read_json
from bakeoff.scorers.tests import Runner, Tests

METRICS_FILE = "custom_metrics.json"
_KEY = "custom_metrics"
_PROGRAMS = {".sh": "bash", ".bash": "bash", ".js": "node", ".mjs": "node", ".rb": "ruby"}
_PROGRAMS |= {".pl": "perl", ".php": "php"}
_TEST = re.compile(r"^\s*(?:async\s+)?def\s+test\w*\s*\(", re.MULTILINE)


def how_to_run(path: str, content: str, *, time_s: float, environment: Mapping[str, str]) -> Tests:
    """Return what runs the script at *path*: by its kind, and for Python by what is in it.

    A file of test functions that is only executed would pass without running any of them.
    """
    if not is_python(path):
        return Tests(command=_command(path), time_s=time_s, environment=environment)
    runner: Runner = "pytest"
    if not _TEST.search(content):
        runner = "python"
    elif imports_module(content, "unittest") and not imports_module(content, "pytest"):
        runner = "unittest"
    return Tests(runner=runner, paths=(path,), time_s=time_s, environment=environment)


def is_python(path: str) -> bool:
    """Whether the script at *path* is run by Python."""
    return PurePosixPath(path).suffix == ".py"


def program_of(path: str) -> str | None:
    """Return the program that a box must have to run the script at *path*; sh is everywhere."""
    program = _PROGRAMS.get(PurePosixPath(path).suffix)
    return None if program == "bash" else program


def _command(path: str) -> str:
    quoted = shlex.quote(f"./{path}")
    program = _PROGRAMS.get(PurePosixPath(path).suffix)
    if program == "bash":  # small images have only sh
        return f"if command -v bash >/dev/null; then exec bash {quoted}; else exec sh {quoted}; fi"
    return f"exec {program} {quoted}" if program else f"exec {quoted}"


def metrics_in(output: str) -> dict[str, Json]:
    """Return the custom metrics that *output* tells: as a whole, or in lines of their own."""
    found: dict[str, Json] = {}
    for text in (output.strip(), *output.splitlines()):
        if not text.startswith("{") or _KEY not in text:
            continue
        try:
            value = read_json(well_formed(json.dumps(read_json(text), ensure_ascii=False)))
        except NoJsonError:
            continue
        metrics = value.get(_KEY) if isinstance(value, dict) else None
        if isinstance(metrics, dict):
            found |= metrics
    return found
