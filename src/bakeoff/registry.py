"""Names become parts: built-ins by dotted path, plugins by entry point, your own by `module:attr`.

Nothing is imported before it is asked for by name.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Literal

from bakeoff._lib.digest import digest_bytes
from bakeoff._lib.phrasing import did_you_mean, near_file
from bakeoff.core.errors import BakeoffError, UsageError
from bakeoff.core.values import Json
from bakeoff.formats.text.convert import convert
from bakeoff.formats.text.entries import check_call

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["models", "agents", "scorers", "sandboxes"]

BUILT_IN: dict[Kind, dict[str, str]] = {
    "models": {
        "anthropic": "bakeoff.models.adapters.anthropic:build",
        "embedded": "bakeoff.models.adapters.embedded:build",
        "gemini": "bakeoff.models.adapters.gemini:build",
        "ollama": "bakeoff.models.adapters.ollama:build",
        "openai-compatible": "bakeoff.models.adapters.openai_compatible:build",
        "openai-responses": "bakeoff.models.adapters.openai_responses:build",
        "scripted": "bakeoff.models.adapters.scripted:build",
    },
    "agents": {
        "aider": "bakeoff.agents.programs.command:Aider",
        "cheat": "bakeoff.agents.cheating.agent:Cheat",
        "claude-code": "bakeoff.agents.programs.command:ClaudeCode",
        "code-session": "bakeoff.agents.session.agent:CodeSessionAgent",
        "codex": "bakeoff.agents.programs.command:Codex",
        "command": "bakeoff.agents.programs.command:CommandAgent",
        "continue": "bakeoff.agents.programs.command:Continue",
        "direct": "bakeoff.agents.direct:Direct",
        "gemini-cli": "bakeoff.agents.programs.command:GeminiCli",
        "human": "bakeoff.agents.human:Human",
        "mini-swe-agent": "bakeoff.agents.programs.command:MiniSweAgent",
        "nop": "bakeoff.agents.baselines:Nop",
        "opencode": "bakeoff.agents.programs.command:OpenCode",
        "oracle": "bakeoff.agents.baselines:Oracle",
        "qwen-code": "bakeoff.agents.programs.command:QwenCode",
        "shell": "bakeoff.agents.shell:Shell",
    },
    "sandboxes": {
        "bubblewrap": "bakeoff.sandboxes.bubblewrap.sandbox:Bubblewrap",
        "docker": "bakeoff.sandboxes.containers.sandbox:Docker",
        "local": "bakeoff.sandboxes.host.local:Local",
        "modal": "bakeoff.sandboxes.modal.sandbox:Modal",
        "podman": "bakeoff.sandboxes.containers.sandbox:Podman",
    },
    "scorers": {
        "calls": "bakeoff.scorers.tool_calls:ToolCalls",
        "choice": "bakeoff.scorers.choice:Choice",
        "contains-all": "bakeoff.scorers.text:ContainsAll",
        "contains-any": "bakeoff.scorers.text:ContainsAny",
        "cost": "bakeoff.scorers.bounds:CostBound",
        "edit-similarity": "bakeoff.scorers.similarity:EditSimilarity",
        "ends-with": "bakeoff.scorers.text:EndsWith",
        "evaluation": "bakeoff.scorers.evaluation:Evaluation",
        "exact": "bakeoff.scorers.text:Exact",
        "includes": "bakeoff.scorers.text:Includes",
        "json": "bakeoff.scorers.json_answer:JsonAnswer",
        "judge": "bakeoff.scorers.judge:Judge",
        "label": "bakeoff.scorers.label:Label",
        "latency": "bakeoff.scorers.bounds:LatencyBound",
        "length": "bakeoff.scorers.bounds:LengthBound",
        "numeric": "bakeoff.scorers.numeric:Numeric",
        "pattern": "bakeoff.scorers.text:Pattern",
        "reasoning": "bakeoff.scorers.reasoning:Reasoning",
        "refusal": "bakeoff.scorers.refusal:Refusal",
        "reward": "bakeoff.scorers.reward:Reward",
        "rubrics": "bakeoff.scorers.rubrics:Rubrics",
        "starts-with": "bakeoff.scorers.text:StartsWith",
        "tests": "bakeoff.scorers.testing.scorer:Tests",
        "token-f1": "bakeoff.scorers.similarity:TokenF1",
        "tool-calls": "bakeoff.scorers.tool_calls:ToolCalls",
        "trajectory": "bakeoff.scorers.tool_calls:Trajectory",
        "valid-json": "bakeoff.scorers.validity:ValidJson",
        "valid-python": "bakeoff.scorers.validity:ValidPython",
        "valid-sql": "bakeoff.scorers.validity:ValidSql",
    },
}

_ONE = {"models": "model", "agents": "agent", "scorers": "scorer", "sandboxes": "sandbox"}
_OF_PYTHON = (
    "{!r} is part of Python's standard library, and so no agent, model or scorer: "
    "write a function of your own that calls it"
)
_REFERENCE = re.compile(r"[\w./-]+:[A-Za-z_]\w*")


def is_reference(name: str) -> bool:
    """Whether *name* has the form `module:attr` or `path/file.py:attr`."""
    return _REFERENCE.fullmatch(name) is not None


def is_own(name: str, *, folders: Iterable[Path] = ()) -> bool:
    """Whether *name* is a `module:attr` whose module exists; it is not imported."""
    if not is_reference(name):
        return False
    module = _module(name)
    if any(_file(module, folder).is_file() for folder in (*folders, Path.cwd())):
        return True
    if name.rpartition(":")[0].endswith(".py"):
        return False  # a file is where it is named; a package of the same name is not it
    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _module(reference: str) -> str:
    return reference.rpartition(":")[0].removesuffix(".py").replace("/", ".").strip(".")


def _file(module: str, folder: Path) -> Path:
    return folder.joinpath(*module.split(".")).with_suffix(".py")


def names(kind: Kind) -> list[str]:
    """Return every name that `find` knows."""
    return sorted({*BUILT_IN[kind], *plugins(kind)})


def plugins(kind: Kind) -> dict[str, "EntryPoint"]:
    """Return the plug-ins of *kind* that installed packages offer; none of them is imported.

    A built-in name cannot be taken, and of two packages with the same name the first one counts.
    """
    from importlib.metadata import entry_points

    offered = reversed(tuple(entry_points(group=f"bakeoff.{kind}")))
    return {plugin.name: plugin for plugin in offered if plugin.name not in BUILT_IN[kind]}


def find(kind: Kind, name: str, *, folders: Iterable[Path] = ()) -> object:
    """Return the part called *name*; *folders* are searched for a `module:attr` first."""
    if path := BUILT_IN[kind].get(name):
        return _load(path)
    if plugin := plugins(kind).get(name):
        return _load_plugin(kind, plugin)
    if is_reference(name):
        return _load_own(name, folders)
    raise UsageError(f"no {_ONE[kind]} is called {name!r}: {did_you_mean(name, names(kind))}")


def load_function(reference: str, *, folders: Iterable[Path] = ()) -> Callable[..., object]:
    """Return the function at *reference*, a `module:attr`; *folders* are searched first."""
    part = _load_own(reference, folders)
    if not callable(part):
        raise UsageError(f"{reference!r} is a {type(part).__name__}; name a function")
    return part


def build(part: object, settings: Mapping[str, Json], *, what: str) -> object:
    """Return *part* ready to use: a class is instantiated with *settings*, anything else is returned as it is."""
    if not isinstance(part, type):
        return part
    check_call(part, settings, what=what)
    try:
        if is_dataclass(part):
            return convert(dict(settings), part, source=what, line_of=lambda _: None)
        return part(**settings)
    except BakeoffError:
        raise
    except TypeError as error:
        raise UsageError(f"{what} cannot be made with these settings: {error}") from error
    except Exception as error:
        raise UsageError(f"{what} cannot be made: {type(error).__name__}: {error}") from error


def _load(path: str) -> object:
    module, _, attr = path.partition(":")
    return getattr(import_module(module), attr)


def package_of(plugin: "EntryPoint") -> str:
    """Return the package that provides *plugin*."""
    return f"{plugin.dist.name} {plugin.dist.version}" if plugin.dist else "an unknown package"


def _load_plugin(kind: Kind, plugin: "EntryPoint") -> object:
    try:
        part: object = plugin.load()
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{_ONE[kind]} {plugin.name!r} of {package_of(plugin)} cannot be loaded from "
            f"{plugin.value!r}: {type(error).__name__}: {error}; fix or uninstall that package"
        ) from error
    return part


def _load_own(reference: str, folders: Iterable[Path]) -> object:
    module, attr = _module(reference), reference.rpartition(":")[2]
    places = (*folders, Path.cwd())
    refuse_standard(reference, folders)
    for folder in places:
        if str(folder) not in sys.path:
            sys.path.append(str(folder))  # last: a file of theirs must not hide a library of ours
    try:
        loaded = _own_module(module, places)
    except Exception as error:
        meant = next(filter(None, (near_file(_file(module, folder)) for folder in places)), None)
        missing = isinstance(error, ModuleNotFoundError) and error.name == module and meant
        hint = f"; did you mean {meant.stem}:{attr}?" if missing and meant else ""
        raise UsageError(
            f"{reference!r} cannot be imported: {type(error).__name__}: {error}{hint}"
        ) from error
    if not hasattr(loaded, attr):
        public = [name for name in vars(loaded) if not name.startswith("_")]
        hint = did_you_mean(attr, public)
        raise UsageError(f"{reference!r}: module {module!r} has no {attr!r}; {hint}")
    part: object = getattr(loaded, attr)
    if _is_of_python(part):
        raise UsageError(_OF_PYTHON.format(reference))
    return part


def _is_of_python(part: object) -> bool:
    """Whether *part* is a function or a class of the standard library."""
    if not isinstance(part, type | FunctionType | BuiltinFunctionType):
        return False
    return (part.__module__ or "").partition(".")[0] in sys.stdlib_module_names


def refuse_standard(reference: str, folders: Iterable[Path] = ()) -> None:
    """Raise where the module of *reference* is one of Python's own, and no file of the user's."""
    module = _module(reference)
    if module.partition(".")[0] not in sys.stdlib_module_names:
        return
    if not any(_file(module, folder).is_file() for folder in (*folders, Path.cwd())):
        raise UsageError(_OF_PYTHON.format(reference))


def _own_module(module: str, places: Iterable[Path]) -> ModuleType:
    """Return a module of the user's: a file in one of *places*, else whatever can be imported."""
    for path in (_file(module, folder) for folder in places):
        if not path.is_file():
            continue
        name = f"bakeoff_own_{digest_bytes(str(path.resolve()).encode())[:8]}_{module}"
        if name in sys.modules:
            return sys.modules[name]
        spec = spec_from_file_location(name, path)
        if spec is not None and spec.loader is not None:
            loaded = module_from_spec(spec)
            spec.loader.exec_module(loaded)
            sys.modules[name] = loaded
            return loaded
    return import_module(module)
