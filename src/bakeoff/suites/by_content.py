"""Which front door a file belongs to, where its ending does not tell: what is in it does."""

from collections.abc import Mapping
from pathlib import Path

from bakeoff.config.agent_bench_file import is_agent_bench
from bakeoff.config.dialogue_file import is_dialogue
from bakeoff.config.toml_file import read_toml
from bakeoff.core.brief import Brief
from bakeoff.suites.agent_bench import read_agent_bench
from bakeoff.suites.bakeoff_toml import read_suite_file, read_task_folders
from bakeoff.suites.dialogue_case import holds_cases, read_cases
from bakeoff.suites.rollouts_toml import read_toml_file


def read_toml_by_content(path: Path, overrides: Mapping[str, str] | None = None) -> Brief:
    """Return what a TOML file asks for: an agent benchmark, a dialogue, rollouts, or any other run."""
    data, _ = read_toml(path)
    if is_agent_bench(data):
        return read_agent_bench(path, overrides)
    if is_dialogue(data):
        return read_cases(path, overrides)
    return read_toml_file(path, overrides)


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
