"""How the hidden tests of a task folder are run: as its settings say, else as the files tell."""

from collections.abc import Container
from pathlib import Path

from bakeoff._lib.python_imports import imports_module
from bakeoff.config.task_file import Runner, TestsTable
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

_SCRIPT, _PROGRAM = "check.sh", "check.py"


def tests_settings(
    folder: Path, table: TestsTable, *, aside: Container[str]
) -> dict[str, Json] | None:
    """Return the settings of the scorer `tests` for the task in *folder*; None where it has none.

    Files named in *aside* are other scorers' tests.
    """
    tests = folder / "tests"
    files = [path for path in _files(tests) if str(path.relative_to(tests)) not in aside]
    runner = table.runner or _runner(table, files)
    if runner is None:
        return None
    settings: dict[str, Json] = {
        "runner": runner,
        "time_s": table.time_s,
        "partial": table.partial,
        "readable": table.readable,
        "named": list(table.named),
        "environment": dict(table.environment),
        "command": table.command,
    }
    if runner == "script":
        settings["command"] = table.command or _script(tests, files)
    else:
        wanted = _programs(files) if runner == "python" else _test_files(files)
        settings["paths"] = list(table.paths or [f"tests/{p.relative_to(tests)}" for p in wanted])
        if not settings["paths"]:
            name = _PROGRAM if runner == "python" else "test_*.py"
            raise UsageError(f"{tests}: no {name} is there for {runner}")
    return {key: value for key, value in settings.items() if value or key == "runner"}


def _files(tests: Path) -> list[Path]:
    return sorted(path for path in tests.rglob("*") if path.is_file()) if tests.is_dir() else []


def _test_files(files: list[Path]) -> list[Path]:
    return [path for path in files if path.match("test_*.py")]


def _programs(files: list[Path]) -> list[Path]:
    return [path for path in files if path.name == _PROGRAM]


def _runner(table: TestsTable, files: list[Path]) -> Runner | None:
    if table.command or any(path.name == _SCRIPT for path in files):
        return "script"
    if _programs(files):
        return "python"
    if tests := _test_files(files):
        # unittest needs nothing in the box; a file that knows nothing of it is meant for pytest
        return "unittest" if all(_is_unittest(file) for file in tests) else "pytest"
    return "pytest" if table.paths or table.named else None


def _is_unittest(file: Path) -> bool:
    text = file.read_text(encoding="utf-8", errors="replace")
    return "unittest" in text and not imports_module(text, "pytest")


def _script(tests: Path, files: list[Path]) -> str:
    found = [path for path in files if path.name == _SCRIPT]
    if not found:
        raise UsageError(f"{tests}: a {_SCRIPT} is needed there, or a `command` under [tests]")
    return f"sh tests/{found[0].relative_to(tests)}"
