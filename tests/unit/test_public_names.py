"""What `import bakeoff` offers, and what it costs."""

import importlib
import rlcompleter
import subprocess
import sys

import pytest

import bakeoff

DOCUMENTED = [
    "APIConfiguration",
    "AgentSpec",
    "BakeoffError",
    "Completion",
    "ExecutionProgress",
    "Message",
    "ModelSpec",
    "Outcome",
    "Request",
    "Run",
    "Score",
    "ScorerSpec",
    "Stop",
    "Suite",
    "Summary",
    "Task",
    "TestResult",
    "TestRunner",
    "TrialRecord",
    "Usage",
    "UsageError",
    "compare",
    "get_task_score",
    "load_benchmark",
    "load_run",
    "power",
    "report",
    "rescore",
    "run",
    "run_async",
    "summarize",
]
HEAVY = {"aiohttp", "asyncio", "jsonschema", "msgspec", "numpy", "regex", "rich", "scipy", "uvloop"}


def test_the_public_names_are_the_documented_ones() -> None:
    assert sorted(bakeoff.__all__) == sorted(DOCUMENTED)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_each_public_name_is_there_and_knows_its_own_name(name: str) -> None:
    assert getattr(bakeoff, name).__name__ == name


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Runner'"):
        importlib.import_module("bakeoff").Runner  # noqa: B018


def test_dir_lists_the_public_names_before_any_of_them_is_used_and_imports_nothing() -> None:
    program = (
        "import sys, bakeoff; names = dir(bakeoff); "
        "print(*(n for n in names if not n.startswith('_'))); "
        "assert '__doc__' in names and '_HOMES' not in names; "
        "print(*(m for m in sys.modules if m.startswith('bakeoff')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    listed, imported = done.stdout.splitlines()
    assert listed.split() == sorted(bakeoff.__all__)
    assert imported.split() == ["bakeoff"]


def test_the_tab_key_completes_public_names() -> None:
    completer = rlcompleter.Completer({"bakeoff": bakeoff})
    offered = {completer.complete("bakeoff.", n) for n in range(200)} - {None}
    names = {str(word).removeprefix("bakeoff.").rstrip("()") for word in offered}
    assert set(bakeoff.__all__) <= names


def test_importing_bakeoff_imports_nothing_heavy() -> None:
    assert not HEAVY & _imported_with("bakeoff")


def test_a_command_brings_an_http_client_only_where_somebody_is_asked() -> None:
    seldom = {"aiohttp", "jsonschema", "numpy", "regex", "scipy"}
    assert not seldom & _imported_with("bakeoff.api.checks, bakeoff.cli.listings")
    assert not seldom & _imported_with("bakeoff.cli.running, bakeoff.cli.showing")


def _imported_with(modules: str) -> set[str]:
    """The packages that are there once a new Python has imported *modules*."""
    program = f"import sys, {modules}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())
