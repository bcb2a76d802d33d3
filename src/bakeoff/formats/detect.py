"""Which front door a file belongs to, where its ending does not tell: what is in it does."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bakeoff._lib.suggest import near, near_file
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Suite, Task
from bakeoff.core.values import Json
from bakeoff.formats.agent_bench import read_agent_bench
from bakeoff.formats.agent_bench_cases import is_agent_bench, is_agent_file
from bakeoff.formats.dialogue import holds_cases, is_dialogue, read_cases
from bakeoff.formats.markdown_task import read_markdown_task
from bakeoff.formats.rollouts import read_toml_file
from bakeoff.formats.run_file import RunFile, read_suite_file, read_task_folders
from bakeoff.formats.text.toml import line_of, read_toml

RunSource = str | Path | Suite | Sequence[Task] | RunSpec


def read_source(source: RunSource, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what a person wants to run as a spec: tasks as they are, files by what is in them."""
    if isinstance(source, RunSpec):
        return source
    if isinstance(source, Suite):
        return RunSpec(name=source.name, tasks=source.tasks)
    if not isinstance(source, str | Path):
        return RunSpec(name="tasks", tasks=tuple(source))
    return read_path(Path(source), overrides)


def read_path(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what the file or the folder *path* asks for."""
    if path.is_dir():
        return read_folder_by_content(path, overrides)
    meant = None if path.exists() else near_file(path)
    if meant is not None:
        raise UsageError(f"{path} cannot be read: there is no such file; did you mean {meant}?")
    match path.suffix.lower():
        case ".toml":
            return read_toml_by_content(path, overrides)
        case ".json":
            return read_json_by_content(path, overrides)
        case ".md":
            return read_markdown_task(path, overrides)
    what = "what kind of file is this?" if path.exists() else "there is no such file or folder."
    raise UsageError(
        f"{path}: {what} A suite ends in .json, a run file in .toml, a task in Markdown in "
        ".md; any other coding task is a folder"
    )


def read_toml_by_content(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what a TOML file asks for: an agent benchmark, a dialogue, rollouts, or any other run."""
    data, text = read_toml(path)
    if is_agent_bench(data):
        return read_agent_bench(path, overrides)
    if is_dialogue(data):
        return read_cases(path, overrides)
    _refuse_what_is_no_run(path, data, text)
    return read_toml_file(path, overrides)


def _refuse_what_is_no_run(path: Path, data: Mapping[str, Json], text: str) -> None:
    """Raise where a file is of another kind, which its unknown keys would not tell."""
    if is_agent_file(data):
        raise UsageError(
            f"{path}: this is an agent of an agent benchmark; run it with the base file: "
            f"bakeoff run BASE.toml --agents {path}"
        )
    for key in set(data) - set(RunFile.__struct_fields__):
        if meant := near(key, ("objective", "benchmark"), least=0.85):
            line = line_of(text, (key,))
            raise UsageError(f"{path}:{line}: unknown key {key!r}; did you mean {meant!r}?")


def read_json_by_content(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what a JSON file asks for: a dialogue, or a suite of prompts."""
    if holds_cases(path):
        return read_cases(path, overrides)
    return read_suite_file(path, overrides)


def read_folder_by_content(path: Path, overrides: Mapping[str, str] | None = None) -> RunSpec:
    """Return what a folder asks for: dialogues, if nothing else is in it; else coding tasks."""
    if holds_cases(path):
        return read_cases(path, overrides)
    return read_task_folders(path, overrides)
