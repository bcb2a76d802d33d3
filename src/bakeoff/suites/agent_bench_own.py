"""The cases of an agent benchmark as dialogues of our own: a folder with one file for each."""

from dataclasses import replace
from pathlib import Path

from bakeoff.config.agent_bench_file import BenchmarkTable
from bakeoff.core.brief import Source
from bakeoff.core.dialogue import Dialogue
from bakeoff.core.errors import UsageError
from bakeoff.core.task import Task
from bakeoff.suites.agent_bench_case import Prompts, chosen_of
from bakeoff.suites.dialogue_case import read_cases


def own_cases(
    folder: Path, settings: BenchmarkTable, prompts: Prompts, *, boxed: bool
) -> tuple[list[Task], tuple[Source, ...]]:
    """Return the dialogues in *folder* that are to be run, and what was read.

    A case says for itself whether it has shards, and may have prompts of its own. No conversation
    is longer than the base file allows, and who plays the roles is for the base file alone.
    """
    brief = read_cases(folder, boxed=boxed)
    found = {task.id: task for task in brief.tasks}
    tasks = []
    for case in chosen_of(list(found), settings.test_cases, folder):
        dialogue = found[case].dialogue
        if dialogue is None or (settings.user_type == "shard_user" and not dialogue.shards):
            raise UsageError(
                f"{folder}: case {case!r} has no `shards`, and `user_type` is 'shard_user'"
            )
        tasks.append(replace(found[case], dialogue=_fitted(dialogue, settings, prompts)))
    return tasks, brief.sources


def _fitted(dialogue: Dialogue, settings: BenchmarkTable, prompts: Prompts) -> Dialogue:
    return replace(
        dialogue,
        max_turns=min(dialogue.max_turns, settings.max_turns),
        instructor_prompt=dialogue.instructor_prompt or prompts.instructor,
        supervisor_prompt=dialogue.supervisor_prompt or prompts.supervisor,
    )
