"""Which front door a file belongs to, where its ending does not tell: what is in it does."""

from collections.abc import Mapping
from pathlib import Path

from bakeoff._lib.suggest import near
from bakeoff.config.agent_bench_file import is_agent_bench, is_agent_file
from bakeoff.config.dialogue_file import is_dialogue
from bakeoff.config.run_file import RunFile
from bakeoff.config.toml_file import line_of, read_toml
from bakeoff.core.brief import Brief
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.suites.agent_bench import read_agent_bench
from bakeoff.suites.bakeoff_toml import read_suite_file, read_task_folders
from bakeoff.suites.dialogue_case import holds_cases, read_cases
from bakeoff.suites.rollouts_toml import read_toml_file


def read_toml_by_content(path: Path, overrides: Mapping[str, str] | None = None) -> Brief:
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


def read_json_by_content(path: Path, overrides: Mapping[str, str] | None = None) -> Brief:
    """Return what a JSON file asks for: a dialogue, or a suite of prompts."""
    if holds_cases(path):
        return read_cases(path, overrides)
    return read_suite_file(path, overrides)


def read_folder_by_content(path: Path, overrides: Mapping[str, str] | None = None) -> Brief:
    """Return what a folder asks for: dialogues, if nothing else is in it; else coding tasks."""
    if holds_cases(path):
        return read_cases(path, overrides)
    return read_task_folders(path, overrides)
