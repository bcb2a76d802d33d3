"""Runs in the clean room, in the process of the tests: what they do is told line by line.

It is sent as text to whatever Python is there (3.7 or later). Python's own modules and pytest are
imported before the workspace can be imported from; pytest hears no settings of the workspace but
those that are asked for. When the tests are over the process leaves at once, so that nothing that
the agent's code has registered for the end is called.
"""

from __future__ import annotations

import sys

if sys.path[:1] == [""]:
    del sys.path[0]  # before any import: a file of the workspace must not pass for Python's own

import json
import os
import runpy
import traceback
import unittest
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from _typeshed import OptExcInfo

MOST_TEXT = 2_000
CANNOT = 70


def teller(pipe: int, nonce: str) -> Callable[..., None]:
    """Return what tells the overseer; each line carries what only these two know."""
    os.set_inheritable(pipe, False)  # noqa: FBT003 -- it takes no name
    write = os.write
    count = 0

    def tell(**what: object) -> None:
        nonlocal count
        rest = memoryview((json.dumps(dict(what, by=[nonce, count])) + "\n").encode())
        count += 1
        while rest:
            rest = rest[write(pipe, rest) :]

    return tell


def outside(workdir: str) -> list[str]:
    """Return where Python may import from before the workspace is let in."""
    root = Path.cwd()
    for _ in Path(workdir).parts:
        root = root.parent
    if root.parent == root:
        return sys.path[:]  # the whole box is the workspace
    venv = Path(sys.prefix).resolve()
    return [place for place in sys.path if not _within(place, root) or _within(place, venv)]


def _within(place: str, folder: Path) -> bool:
    real = Path(place).resolve()
    return real == folder or folder in real.parents


class Plugin:
    """What pytest calls."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell what is going to be run."""
        self._tell(collected=[item.nodeid for item in session.items])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell what could not be collected; print what a file printed when it was imported."""
        if report.outcome == "passed":
            printed = "".join(text for title, text in report.sections if "stdout" in title)
            sys.stdout.write(f"\n{printed}" if printed else "")
        else:
            text = report.longreprtext[-MOST_TEXT:]
            self._tell(uncollected=report.nodeid, how=report.outcome, text=text)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell how one phase of a test went."""
        text = "" if report.outcome == "passed" else report.longreprtext[-MOST_TEXT:]
        self._tell(test=report.nodeid, phase=report.when, how=report.outcome, text=text)


def run_pytest(tell: Callable[..., None], wanted: dict[str, list[str]]) -> int:
    """Run the files with pytest, without any of the workspace's settings, and return its code."""
    everywhere = sys.path[:]
    brought = os.environ.pop("BAKEOFF_PYTEST", None)
    sys.path[:] = outside(wanted["workdir"][0])
    if brought and sys.version_info >= (3, 11) and util.find_spec("pytest") is None:
        everywhere.append(brought)  # last: what the box has of its own goes before
        sys.path.append(brought)
    try:
        import pytest
    except ImportError as error:
        tell(cannot=str(error))
        return CANNOT
    sys.path[:] = [str(Path.cwd()), *everywhere]
    own = [
        "-c",
        os.devnull,
        "--rootdir",
        str(Path.cwd()),
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=",
    ]
    arguments = [*own, "-q", "-rP", *wanted["options"], *wanted["paths"]]
    return int(pytest.main(arguments, plugins=[Plugin(tell)]))


class Result(unittest.TestResult):
    """What unittest calls."""

    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__()
        self._tell = tell

    def _told(self, test: unittest.TestCase, how: str, text: str = "") -> None:
        if text:
            sys.stderr.write(f"{how}: {test.id()}\n{text}\n")
        self._tell(test=test.id(), phase="call", how=how, text=text[-MOST_TEXT:])

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: D102, N802
        super().addSuccess(test)
        self._told(test, "passed")

    def addError(self, test: unittest.TestCase, err: OptExcInfo) -> None:  # noqa: D102, N802
        super().addError(test, err)
        self._told(test, "failed", self.errors[-1][1])

    def addFailure(self, test: unittest.TestCase, err: OptExcInfo) -> None:  # noqa: D102, N802
        super().addFailure(test, err)
        self._told(test, "failed", self.failures[-1][1])

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: D102, N802
        super().addSkip(test, reason)
        self._told(test, "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: OptExcInfo) -> None:  # noqa: D102, N802
        super().addExpectedFailure(test, err)
        self._told(test, "skipped", "it failed as expected")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: D102, N802
        super().addUnexpectedSuccess(test)
        self._told(test, "failed", "it passed, and was not expected to")

    def addSubTest(  # noqa: D102, N802
        self, test: unittest.TestCase, subtest: unittest.TestCase, err: OptExcInfo | None
    ) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._told(test, "failed", f"{subtest.id()}: {err[1]}")


def run_unittest(tell: Callable[..., None], wanted: dict[str, list[str]]) -> int:
    """Run the files with unittest, each loaded by its path, and return 0 where all is well."""
    files = [file for path in wanted["paths"] for file in test_files(path)]
    sys.path[:] = [str(Path.cwd()), *sys.path, *sorted({str(file.parent) for file in files})]
    suite = unittest.TestSuite()
    well = True
    for file in files:
        try:
            suite.addTests(loaded(file))
        except BaseException:  # noqa: BLE001 -- whatever it is, the file could not be loaded
            text = traceback.format_exc()
            sys.stderr.write(text)
            tell(uncollected=str(file), how="failed", text=text[-MOST_TEXT:])
            well = False
    tell(collected=[test.id() for test in every(suite)])
    result = Result(tell)
    suite.run(result)
    return 0 if well and result.wasSuccessful() else 1


def run_python(tell: Callable[..., None], wanted: dict[str, list[str]]) -> int:
    """Run each file as a program of its own; what counts is that it comes to its end."""
    everywhere = sys.path[:]
    tell(collected=wanted["paths"])
    code = 0
    for path in wanted["paths"]:
        file = Path.cwd() / path
        sys.path[:] = [str(file.parent), str(Path.cwd()), *everywhere]
        sys.argv[:] = [str(file)]
        try:
            runpy.run_path(str(file), run_name="__main__")
            why = ""
        except SystemExit as error:
            why = _why_it_left(error, file)
        except BaseException:  # noqa: BLE001 -- whatever it is, it failed
            why = traceback.format_exc()
        if why:
            sys.stderr.write(why + "\n")
            code = 1
        tell(test=path, phase="call", how="failed" if why else "passed", text=why[-MOST_TEXT:])
    return code


def _why_it_left(error: SystemExit, file: Path) -> str:
    """Return why a program that called for its exit has failed; nothing where it may do so."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    caller = Path(frame.tb_frame.f_code.co_filename).resolve() if frame else file
    if error.code not in (None, 0):
        return f"exit code {error.code}"
    if caller != file.resolve() and _within(str(caller), Path.cwd()):
        return f"{caller} called for the exit, and not the program itself"
    return ""


def loaded(file: Path) -> unittest.TestSuite:
    """Return the tests in *file*; the module is called as it would be from the working folder."""
    name = ".".join(file.relative_to(Path.cwd()).with_suffix("").parts)
    spec = util.spec_from_file_location(name, str(file))
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return unittest.TestLoader().loadTestsFromModule(module)


def test_files(path: str) -> list[Path]:
    """Return the test files that *path* stands for: itself, or those in the folder."""
    whole = Path.cwd() / path
    return sorted(whole.rglob("test*.py")) if whole.is_dir() else [whole]


def every(suite: unittest.TestSuite) -> list[unittest.TestCase]:
    """Return the tests of a suite, one by one."""
    found: list[unittest.TestCase] = []
    for test in suite:
        found += every(test) if isinstance(test, unittest.TestSuite) else [test]
    return found


def main() -> None:
    """Run the tests that are wanted, tell all, and leave."""
    tell, wanted = teller(int(sys.argv[1]), sys.stdin.read()), json.loads(sys.argv[2])
    leave = os._exit
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    del sys.argv[1:]
    missing = [path for path in wanted["paths"] if not Path(path.split("::")[0]).exists()]
    if missing:
        tell(missing=missing)
        code = CANNOT
    else:
        runners = {"pytest": run_pytest, "unittest": run_unittest, "python": run_python}
        run = runners[wanted["runner"][0]]
        try:
            code = run(tell, wanted)
        except BaseException:  # noqa: BLE001 -- the agent's code can raise anything
            traceback.print_exc()
            code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    tell(over=code)
    leave(code)


if __name__ == "__main__":
    main()
