"""`task.toml` in Harbor's format: the keys that matter here, with Harbor's names and defaults."""

import posixpath
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff._lib.digest import tree_digest
from bakeoff.core.errors import UsageError
from bakeoff.core.source_location import SourceLocation
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.core.values import Json
from bakeoff.core.workspace import (
    BoxLimits,
    Image,
    Network,
    Reference,
    Tree,
    Workspace,
    parse_allowed_host,
)
from bakeoff.formats.native_task import read_instruction
from bakeoff.formats.text.convert import KeyPath, convert, dotted
from bakeoff.formats.text.toml import line_of

Positive = Annotated[float, Meta(gt=0)]
HarborNetwork = Literal["public", "no-network", "allowlist"]
_INSTRUCTION = re.compile(r"^[ \t]*(FROM|WORKDIR)[ \t]+(.+?)[ \t]*$", re.IGNORECASE | re.MULTILINE)
_AGENT_S = 1800.0  # Harbor sets no limit; here every trial ends
_PROCESSES = 2048  # Harbor has no such limit; this one only stops a fork bomb
_OF_THE_HOST = re.compile(r"\$\{(\w+)(?::-(.*))?\}", re.DOTALL)
_AT_THE_HEAD = re.compile(r"\s*(?:<!--.*?-->|#[^\n]*)\s*", re.DOTALL)
_CANARY = re.compile(r"canary GUID|BENCHMARK DATA SHOULD NEVER", re.IGNORECASE)


class PackageTable(msgspec.Struct, kw_only=True):
    """What the task is called."""

    name: str | None = None
    description: str = ""
    keywords: list[str] = []


class PhaseTable(msgspec.Struct, kw_only=True):
    """The agent's time, and what of the network it may see."""

    timeout_sec: Positive | None = None
    network_mode: HarborNetwork | None = None
    allowed_hosts: list[str] = []


class VerifierTable(msgspec.Struct, kw_only=True):
    """How `tests/test.sh` is run; `trust_system_changes` is Bakeoff's own key."""

    timeout_sec: Positive = 600.0
    env: dict[str, str] = {}
    environment_mode: str | None = None
    environment: dict[str, Json] = {}
    trust_system_changes: bool = False


class EnvironmentTable(msgspec.Struct, kw_only=True):
    """The container; `memory` and `storage` are the older spellings."""

    build_timeout_sec: Positive = 600.0
    docker_image: str | None = None
    workdir: str | None = None
    cpus: Positive = 1.0
    memory_mb: Annotated[int, Meta(ge=1)] = 2048
    storage_mb: Annotated[int, Meta(ge=1)] = 10240
    memory: str | None = None
    storage: str | None = None
    gpus: int = 0
    allow_internet: bool = True
    network_mode: HarborNetwork | None = None
    allowed_hosts: list[str] = []
    env: dict[str, str] = {}


class HarborFile(msgspec.Struct, kw_only=True):
    """A whole file; other keys are for others."""

    task: PackageTable = msgspec.field(default_factory=PackageTable)
    metadata: dict[str, Json] = {}
    agent: PhaseTable = msgspec.field(default_factory=PhaseTable)
    verifier: VerifierTable = msgspec.field(default_factory=VerifierTable)
    environment: EnvironmentTable = msgspec.field(default_factory=EnvironmentTable)
    steps: list[Json] = []


def last_workdir(text: str) -> str | None:
    """Return the working directory of the last stage; None where only a build could tell."""
    here: str | None = None
    for word, value in _INSTRUCTION.findall(text):
        path = value.strip("\"'")
        if word.upper() == "FROM":
            here = None  # that of the image below
        elif "$" in path or (here is None and not path.startswith("/")):
            return None
        else:
            here = posixpath.normpath(posixpath.join(here or "/", path))
    return here


def read_harbor_task(folder: Path, data: Mapping[str, Json], text: str) -> Task:
    """Return the task in *folder*, whose settings are *data*, written as *text*."""
    source = folder / "task.toml"
    if not source.is_file():
        raise UsageError(f"{source} does not exist; a folder with environment/ is read as Harbor's")
    config = convert(data, HarborFile, source=str(source), line_of=partial(line_of, text))
    _refuse(folder, config, _Place(source, text))
    return Task(
        id=folder.name,
        messages=(Message(role="user", content=_without_canary(read_instruction(folder))),),
        scorers=(_reward(folder, config, _Place(source, text)),),
        time_s=config.agent.timeout_sec or _AGENT_S,
        name=config.task.name,
        category=_category(config),
        metadata=_metadata(config),
        workspace=_workspace(folder, config, _Place(source, text)),
    )


class _Place:
    """Where a setting is written, for errors."""

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        self._text = text

    def wrong(self, key: KeyPath, why: str) -> UsageError:
        """Return the error that *key* is."""
        line = line_of(self._text, key)
        return UsageError(f"{self._file}{f':{line}' if line else ''}: key {dotted(key)!r}: {why}")

    def variables(self, key: KeyPath, given: Mapping[str, str]) -> dict[str, str]:
        """Return *given* with defaults filled in; what only the host could fill in is refused."""
        filled = {}
        for name, value in given.items():
            asked = _OF_THE_HOST.fullmatch(value)
            if asked and asked[2] is None:
                why = (
                    f"{value} is a variable of this machine, and none of these is passed into a box"
                )
                raise self.wrong((*key, name), why)
            filled[name] = asked[2] if asked else value
        return filled


def _refuse(folder: Path, config: HarborFile, place: _Place) -> None:
    """Raise if the task needs an unsupported feature."""
    if config.steps:
        raise place.wrong(("steps",), "tasks with several steps are not supported")
    if config.verifier.environment_mode == "separate" or config.verifier.environment:
        key = "environment_mode" if config.verifier.environment_mode else "environment"
        raise place.wrong(("verifier", key), "a verifier with its own image is not supported")
    if config.environment.gpus:
        raise place.wrong(("environment", "gpus"), "boxes have no GPU")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (folder / "environment" / name).is_file():
            raise UsageError(
                f"{folder / 'environment' / name}: several containers are not supported"
            )


def _workspace(folder: Path, config: HarborFile, place: _Place) -> Workspace:
    environment, tests = config.environment, folder / "tests"
    solve = folder / "solution" / "solve.sh"
    return Workspace(
        root=_workdir(folder, config),
        image=_image(folder, config),
        whole_box=True,
        environment=place.variables(("environment", "env"), environment.env),
        network=_network(config, place),
        limits=BoxLimits(
            memory_mb=_megabytes(environment.memory, ("environment", "memory"), place)
            or environment.memory_mb,
            disk_mb=_megabytes(environment.storage, ("environment", "storage"), place)
            or environment.storage_mb,
            cpus=environment.cpus,
            processes=_PROCESSES,
            setup_s=environment.build_timeout_sec,
        ),
        hidden=(Tree(path=str(tests), digest=tree_digest(tests), at="/tests"),),
        reference=Reference(kind="script", path=str(solve)) if solve.is_file() else None,
        trust_system_changes=config.verifier.trust_system_changes,
    )


def _reward(folder: Path, config: HarborFile, place: _Place) -> ScorerSpec:
    script = folder / "tests" / "test.sh"
    if not script.is_file():
        raise UsageError(f"{script} does not exist; it says whether the work is right")
    settings: dict[str, Json] = {"time_s": config.verifier.timeout_sec}
    if env := place.variables(("verifier", "env"), config.verifier.env):
        settings["environment"] = dict(env)
    origin = SourceLocation(file=str(folder / "task.toml"), key=("verifier",))
    return ScorerSpec(name="reward", settings=settings, origin=origin)


def _image(folder: Path, config: HarborFile) -> Image:
    if config.environment.docker_image:
        return Image(name=config.environment.docker_image)
    context = folder / "environment"
    if not (context / "Dockerfile").is_file():
        raise UsageError(
            f"{context / 'Dockerfile'} does not exist; write it, or name a ready image with "
            "`docker_image` under [environment]"
        )
    return Image(context=Tree(path=str(context), digest=tree_digest(context)))


def _workdir(folder: Path, config: HarborFile) -> str:
    if config.environment.workdir:
        return posixpath.normpath(posixpath.join("/", config.environment.workdir))
    file = folder / "environment" / "Dockerfile"
    if not file.is_file():
        return "/"
    return last_workdir(file.read_text(encoding="utf-8", errors="replace")) or "/"


def _network(config: HarborFile, place: _Place) -> Network:
    """Return what the box may reach; the agent's setting wins, as it may be the narrower."""
    for table, phase in (("agent", config.agent), ("environment", config.environment)):
        if phase.network_mode == "allowlist":
            return _allowed_hosts(phase.allowed_hosts, (table, "allowed_hosts"), place)
        if phase.network_mode is not None:
            return phase.network_mode == "public"
    return config.environment.allow_internet


def _allowed_hosts(hosts: list[str], key: KeyPath, place: _Place) -> Network:
    for host in hosts:
        try:
            parse_allowed_host(host)
        except ValueError as error:
            raise place.wrong(key, str(error)) from None
    return tuple(hosts) or False


def _megabytes(size: str | None, key: KeyPath, place: _Place) -> int | None:
    if size is None:
        return None
    parts = re.fullmatch(r"\s*([\d.]+)\s*([KMGT])i?B?\s*", size, re.IGNORECASE)
    if parts is None:
        raise place.wrong(key, f"{size!r} is not a size; write for example 2G or 512M")
    factor = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}[parts[2].upper()]
    return max(1, int(float(parts[1]) * factor))


def _category(config: HarborFile) -> str | None:
    category = config.metadata.get("category")
    return category if isinstance(category, str) else None


def _metadata(config: HarborFile) -> dict[str, Json]:
    metadata = {key: value for key, value in config.metadata.items() if key != "category"}
    if config.task.description:
        metadata.setdefault("description", config.task.description)
    if config.task.keywords:
        metadata.setdefault("tags", list(config.task.keywords))
    return metadata


def _without_canary(text: str) -> str:
    """Return *text* without the lines at its head that mark it as test data for crawlers."""
    while (head := _AT_THE_HEAD.match(text)) and _CANARY.search(head[0]):
        text = text[head.end() :]
    return text
