"""How the hidden tests of a task folder are run: as its settings say, else as the files tell."""

from collections.abc import Container
from pathlib import Path

from bakeoff.config.task_file import Runner, TestsTable
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

_CHECKS = {"check.sh": "sh tests/check.sh", "check.py": "python3 tests/check.py"}


def tests_settings(
    folder: Path, table: TestsTable, *, aside: Container[str]
) -> dict[str, Json] | None:
    """Return the settings of the scorer `tests` for the task in *folder*; None where it has none.

    Files named in *aside* are other scorers' tests.
    """
    tests = folder / "tests"
    checks = [name for name in _CHECKS if name not in aside and (tests / name).is_file()]
    files = [path for path in _test_files(tests) if str(path.relative_to(tests)) not in aside]
    runner = table.runner or _runner(table, checks, files)
    if runner is None:
        return None
    settings: dict[str, Json] = {
        "runner": runner,
        "time_s": table.time_s,
        "partial": table.partial,
        "named": list(table.named),
        "environment": dict(table.environment),
    }
    if runner == "script":
        settings["command"] = table.command or _check(folder, checks)
    else:
        paths = [str(path.relative_to(folder)) for path in files]
        settings["paths"] = list(table.paths or paths)
        if not settings["paths"]:
            raise UsageError(f"{tests}: no test_*.py is there for {runner}")
    return {key: value for key, value in settings.items() if value or key == "runner"}


def _test_files(tests: Path) -> list[Path]:
    if not tests.is_dir():
        return []
    return sorted(path for path in tests.rglob("test_*.py") if path.is_file())


def _runner(table: TestsTable, checks: list[str], files: list[Path]) -> Runner | None:
    if table.command or checks:
        return "script"
    if files:
        # unittest needs nothing in the box; a file that knows nothing of it is meant for pytest
        return "unittest" if all(_is_unittest(file) for file in files) else "pytest"
    return "pytest" if table.paths or table.named else None


def _is_unittest(file: Path) -> bool:
    text = file.read_text(encoding="utf-8", errors="replace")
    return "unittest" in text and "import pytest" not in text and "from pytest" not in text


def _check(folder: Path, checks: list[str]) -> str:
    if not checks:
        raise UsageError(
            f"{folder / 'tests'}: a check.sh is needed there, or a `command` under [tests]"
        )
    return _CHECKS[checks[0]]
