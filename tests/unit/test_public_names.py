"""What `import bakeoff` offers, and what it costs."""

import ast
import importlib
import inspect
import re
import rlcompleter
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import bakeoff
from bakeoff.core import errors, events

DOCUMENTED = [
    "APIConfiguration",
    "Agent",
    "AgentError",
    "AgentSpec",
    "Attachment",
    "Attempt",
    "BakeoffError",
    "Workspaces",
    "Box",
    "BoxLimits",
    "BoxSpec",
    "BudgetReached",
    "Candidate",
    "Change",
    "Checkpoint",
    "GradingSpec",
    "GradingWorkspace",
    "Command",
    "Completion",
    "Conditions",
    "Context",
    "ModelAccess",
    "Event",
    "ExecutionProgress",
    "Fault",
    "Gate",
    "GatewayAddress",
    "Image",
    "Journal",
    "Json",
    "LedgerError",
    "LimitReached",
    "Limits",
    "Listener",
    "Message",
    "Model",
    "ModelSpec",
    "Mount",
    "NotRun",
    "Notice",
    "Outcome",
    "Plan",
    "PromptSpec",
    "ProviderError",
    "CommandResult",
    "Request",
    "OpenWorkspace",
    "Run",
    "RunEnded",
    "RunStarted",
    "Sandbox",
    "SandboxError",
    "SandboxSpec",
    "Score",
    "Scorer",
    "ScorerError",
    "ScorerSpec",
    "Spent",
    "Status",
    "Stop",
    "Suite",
    "Summary",
    "Task",
    "TestResult",
    "TestRunner",
    "Tool",
    "ToolCall",
    "Trial",
    "TrialEnded",
    "TrialError",
    "TrialNotRun",
    "TrialOutput",
    "TrialRecord",
    "TrialSpent",
    "TrialStarted",
    "TurnEnded",
    "TurnStarted",
    "Usage",
    "UsageError",
    "Wait",
    "Waiting",
    "Workspace",
    "agreement",
    "compare",
    "gate",
    "get_task_score",
    "history",
    "load_benchmark",
    "load_run",
    "merge",
    "power",
    "report",
    "rescore",
    "run",
    "run_async",
    "set_baseline",
    "summarize",
]
ALIASES = {"Event", "Json", "Listener"}  # of types: they have no name of their own
# what is only read or raised by the engine itself
INTERNAL = {"Bill", "Cap", "ChangeTooLargeError", "Origin", "boundary"}
ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / "README.md", *sorted((ROOT / "docs/start").glob("*.md"))),
    *sorted((ROOT / "docs/guides").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.py")),
]
HEAVY = {"aiohttp", "asyncio", "jsonschema", "msgspec", "numpy", "regex", "rich", "scipy", "uvloop"}


def test_the_public_names_are_the_documented_ones() -> None:
    assert sorted(bakeoff.__all__) == sorted(DOCUMENTED)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_each_public_name_is_there_and_knows_its_own_name(name: str) -> None:
    public = getattr(bakeoff, name)
    assert name in ALIASES or public.__name__ == name


def test_type_checkers_see_the_same_public_names() -> None:
    tree = ast.parse(Path(bakeoff.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [
        name for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names
    ]
    assert sorted(name.name for name in imported) == sorted(bakeoff.__all__)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Agent",
            "Model",
            "Scorer",
            "Sandbox",
            "Box",
            "OpenWorkspace",
            "GradingWorkspace",
            "Workspaces",
            "ModelAccess",
        ),
        *("Context", "Request", "Completion", "Outcome", "Score", "Message", "Tool"),
        *("BoxSpec", "Command", "CommandResult", "ModelSpec", "Attempt", "TrialRecord", "Fault"),
        *("RunStarted", "TrialStarted", "TrialOutput", "TrialSpent", "TrialEnded", "RunEnded"),
    ],
)
def test_what_a_public_part_is_given_or_gives_is_public_too(name: str) -> None:
    part = getattr(bakeoff, name)
    methods = [m for m in vars(part).values() if inspect.isfunction(m) and m.__name__[0] != "_"]
    getters = [p.fget for p in vars(part).values() if isinstance(p, property) and p.fget]
    hints = [typing.get_type_hints(described) for described in (part, *methods, *getters)]
    named = {kind for hint in hints for value in hint.values() for kind in _classes_in(value)}
    ours = {kind.__name__ for kind in named if kind.__module__.startswith("bakeoff.")}
    assert ours - set(bakeoff.__all__) <= INTERNAL


@pytest.mark.parametrize("module", [errors, events])
def test_every_error_and_every_event_is_public(module: ModuleType) -> None:
    classes = {
        n for n, c in vars(module).items() if getattr(c, "__module__", "") == module.__name__
    }
    ours = {name for name in classes if inspect.isclass(getattr(module, name))}
    assert ours - set(bakeoff.__all__) == INTERNAL & ours


def _classes_in(hint: object) -> Iterator[type]:
    """The classes that a type hint names, however deep."""
    if isinstance(hint, type):
        yield hint
    inner = [*hint] if isinstance(hint, list) else typing.get_args(hint)
    for part in inner:
        yield from _classes_in(part)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_guide_or_example_imports_what_is_not_public(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    imported = re.findall(r"^ *(?:from|import) (bakeoff\.[\w.]+)", text, re.MULTILINE)
    assert imported == []
    assert not re.search(r"\bbakeoff\.core\b|from bakeoff import app\b", text)


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
    assert not seldom & _imported_with("bakeoff.app.checks, bakeoff.cli.list_command")
    assert not seldom & _imported_with("bakeoff.cli.running, bakeoff.cli.show_command")


def _imported_with(modules: str) -> set[str]:
    """The packages that are there once a new Python has imported *modules*."""
    program = f"import sys, {modules}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())
