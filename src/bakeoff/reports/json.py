"""A run as JSON: its summary, its questions, its tasks by candidate, and each trial."""

from collections.abc import Iterable, Iterator

import msgspec

from bakeoff.reports.files import question, rows_with_answers
from bakeoff.reports.wording.decision import answer
from bakeoff.reports.wording.findings import Findings


def render(findings: Findings) -> Iterator[str]:
    """Yield one object, part by part; what is unknown is null."""
    headline = answer(findings.summary)
    head = {
        "run": findings.called,
        "made_at": findings.made_at,
        "running": findings.running,
        "standing": findings.standing,
        "manifest": findings.manifest,
        "answer": {"text": headline.text, "why": headline.why, "decided": headline.decided},
        "summary": findings.summary,
    }
    yield "{\n"
    for name, value in head.items():
        yield f" {_text(name)}: {_text(value)},\n"
    if findings.with_text:
        yield ' "questions": ['
        yield from _list(_questions(findings))
        yield "],\n"
    yield ' "tasks": ['
    yield from _list(findings.by_task)
    yield '],\n "trials": ['
    yield from _list(_trials(findings))
    yield "]\n}\n"


def _questions(findings: Findings) -> Iterator[object]:
    """Yield what each task asks and expects, once."""
    for task in findings.tasks:
        yield {"task_id": task.id, "question": question(task), "expected": task.target}


def _trials(findings: Findings) -> Iterator[object]:
    for row, reply in rows_with_answers(findings):
        data = row._asdict()
        if findings.with_text:
            data["answer"] = reply
        for name in ("passed", "fault_transient"):  # the database has them as 0 and 1
            data[name] = None if data[name] is None else bool(data[name])
        yield data
    for trial in findings.missing():
        yield {
            "task_id": trial.task.id,
            "category": trial.task.category,
            "candidate_id": trial.candidate.id,
            "rollout": trial.rollout,
            "status": findings.why_missing(trial.candidate.id).replace(" ", "_"),
        }


def _list(values: Iterable[object]) -> Iterator[str]:
    between = "\n  "
    for value in values:
        yield between + _text(value)
        between = ",\n  "


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
