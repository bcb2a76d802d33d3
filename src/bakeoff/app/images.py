"""Dockerfiles of prepared tasks in a sandbox that builds no images: left out, and said."""

from collections.abc import Mapping
from dataclasses import replace

from bakeoff.app.sources import PreparedRun
from bakeoff.app.workspaces import VARIABLE
from bakeoff.core.task import Task
from bakeoff.planning.expand import expand

_WITHOUT_IMAGES = frozenset({"bubblewrap", "local"})


def fitting(prepared: PreparedRun, environ: Mapping[str, str]) -> PreparedRun:
    """Return *prepared* for the sandbox that was asked for by name.

    A prepared task brings a Dockerfile for those who use containers. Whoever asks for a sandbox
    without images by name wants the task there, on the programs of this machine.
    """
    brief = prepared.brief
    name = brief.sandbox.name or environ.get(VARIABLE)
    with_image = [p.task for p in brief.pairings if _has_image(p.task)]
    if name not in _WITHOUT_IMAGES or not with_image:
        return prepared
    pairings = tuple(replace(p, task=_without_image(p.task)) for p in brief.pairings)
    tasks = tuple(_without_image(task) for task in brief.tasks)
    brief = replace(brief, pairings=pairings, tasks=tasks)
    names = ", ".join(dict.fromkeys(task.id for task in with_image))
    notice = f"sandbox {name!r} builds no images: no Dockerfile is used for {names}"
    return replace(prepared, brief=brief, plan=expand(brief), notices=(*prepared.notices, notice))


def _has_image(task: Task) -> bool:
    return task.workspace is not None and task.workspace.image is not None


def _without_image(task: Task) -> Task:
    if task.workspace is None or task.workspace.image is None:
        return task
    return replace(task, workspace=replace(task.workspace, image=None))
