"""A run becomes a report: what its ledger says at one moment, without a secret, as files."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from bakeoff._lib import files
from bakeoff._lib.clock import now
from bakeoff._lib.files import replacing
from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.process_setup import rare_collections
from bakeoff._lib.redact import Redactor
from bakeoff._lib.sanitize import well_formed
from bakeoff.app.comparing import compare
from bakeoff.app.known_secrets import learn_plan
from bakeoff.app.options import DEFAULT_OUTPUT
from bakeoff.app.run_results import Run, load_run
from bakeoff.core.errors import UsageError
from bakeoff.core.lazy_tasks import mapped
from bakeoff.core.plan import Plan
from bakeoff.core.record import TrialRecord, TrialRow
from bakeoff.core.task import Task
from bakeoff.formats.prompts import asked_by
from bakeoff.formats.text.env import environment
from bakeoff.reports import markdown as markdown_report
from bakeoff.reports.data_files import render_csv, render_json, render_junit
from bakeoff.reports.html import compared, run
from bakeoff.reports.wording.findings import Findings
from bakeoff.stats.by_task import by_task
from bakeoff.stores.attachments import AttachmentStore
from bakeoff.stores.folders import INNER, MANIFEST
from bakeoff.stores.ledger_reader import SqliteLedger
from bakeoff.stores.writing import being_written

T = TypeVar("T")


COMPARISON = "comparison.html"


def report(
    run: Run | str | Path | Sequence[Run | str | Path] = "latest",
    *,
    output: str | Path = DEFAULT_OUTPUT,
    to: str | Path | None = None,
    formats: Sequence[str] = ("html",),
    text: bool = True,
) -> list[Path]:
    """Write a report of *run* for people or for programs, and return its files.

    They go into the run's own folder, or to another one. Of a run that is not over, the report
    tells what is there, and that it is not all. Without *text*, no form holds what was asked,
    expected and answered.

    Of several runs it is one page, `comparison.html` in the folder of the latest: the earliest of them
    compared with each later one.
    """
    chosen = check_formats([formats] if isinstance(formats, str) else formats)
    if isinstance(run, Sequence) and not isinstance(run, str):
        runs = [r if isinstance(r, Run) else load_run(r, output=output) for r in run]
        if len(runs) > 1:
            return [_report_comparison(runs, None if to is None else Path(to), chosen)]
        run = runs[0] if runs else "latest"
    loaded = run if isinstance(run, Run) else load_run(run, output=output)
    folder = loaded.folder if to is None else Path(to)
    ledger = SqliteLedger(loaded.folder)
    with ledger.at_one_moment(), rare_collections():
        findings = replace(_findings(loaded.folder, ledger), with_text=text)
        return write_report(findings, folder, chosen)


def _report_comparison(runs: Sequence[Run], folder: Path | None, formats: Sequence[str]) -> Path:
    """Write the page of several runs compared, and return its path."""
    if formats != ("html",):
        raise UsageError(
            "several runs are compared on an HTML page; for a program there is: bakeoff compare --json"
        )
    ordered = in_time(runs)
    path = (folder or ordered[-1].folder) / COMPARISON
    steps = compared_steps(ordered)
    shown = [
        compared.ComparedRun(id=run.id, manifest=clean(run.manifest, redactor_of(run.plan)))
        for run in ordered
    ]
    _write(path, compared.render(shown, steps, made_at=now().isoformat(timespec="seconds")))
    return path


def in_time(runs: Iterable[Run]) -> list[Run]:
    """Return runs with the earliest first."""
    return sorted(runs, key=lambda run: (run.manifest.created_at, run.id))


def compared_steps(runs: Sequence[Run]) -> list[compared.Step]:
    """Return the first run compared with each other one."""
    first, *others = runs
    results = [compare(first, other) for other in others]
    return [
        compared.Step(
            before=result.before,
            after=result.after,
            contrasts=result.contrasts,
            tasks=result.tasks,
            notes=result.notes,
            only_before=result.only_before,
            only_after=result.only_after,
        )
        for result in results
    ]


def _findings(folder: Path, ledger: SqliteLedger) -> Findings:
    run = Run(folder, ledger=ledger)
    if not (folder / MANIFEST).is_file():
        raise UsageError(
            f"{folder} was cut off before its first trial: there is nothing to report; "
            "start the run again"
        )
    running, made_at = being_written(folder), now().isoformat(timespec="seconds")
    plan = run.plan
    redactor, attachments = redactor_of(plan), AttachmentStore(folder)
    manifest = run.manifest
    called, reference, output = _found_again(folder)
    return Findings(
        summary=run.summary_of(plan),
        manifest=clean(manifest, redactor),
        plan=_clean_plan(plan, redactor, attachments),
        by_task=by_task(plan, ledger.rows()),
        trials=_CleanTrials(ledger, redactor, attachments),
        called=called,
        run=reference,
        output=output,
        made_at=made_at,
        running=running,
        as_asked=_as_asked(plan, redactor, attachments),
    )


def _as_asked(
    plan: Plan, redactor: Redactor, attachments: AttachmentStore
) -> Callable[[str, Task], Task]:
    prompts = {candidate.id: candidate.prompt for candidate in plan.candidates}

    def as_asked(candidate: str, task: Task) -> Task:
        return _clean_task(asked_by(prompts[candidate], task), redactor, attachments)

    return as_asked


def _found_again(folder: Path) -> tuple[str, str, str | None]:
    """Return the name of a run, and how a command refers to it: by id and output folder, or by path."""
    if folder.name == INNER:  # the layout of another tool: many runs have this name
        return folder.resolve().parent.name, str(folder.parent), None
    output = None if folder.parent == DEFAULT_OUTPUT else str(folder.parent)
    return folder.name, folder.name, output


# --- secrets ----------------------------------------------------------------------------------


def redactor_of(plan: Plan) -> Redactor:
    """Return one that knows the secrets of *plan* that can be read here."""
    redactor = Redactor()
    learn_plan(plan, _environ(), redactor)
    return redactor


def _environ() -> Mapping[str, str]:
    try:
        return environment(os.environ, named=None, here=Path()).values
    except UsageError:
        return os.environ  # a report needs no key: a mistake in .env is told where one is used


def clean(value: T, redactor: Redactor) -> T:
    """Return *value* without any known secret."""
    data = msgspec.json.encode(value, enc_hook=str)
    clean = redactor.data(data)
    return value if clean is data else msgspec.json.decode(clean, type=type(value))


def _clean_plan(plan: Plan, redactor: Redactor, attachments: AttachmentStore) -> Plan:
    safe = partial(_clean_task, redactor=redactor, attachments=attachments)
    blocks = tuple(
        replace(block, tasks=mapped(safe, block.tasks, keeps_outline=True)) for block in plan.blocks
    )
    return replace(plan, blocks=blocks)


def _clean_task(task: Task, redactor: Redactor, attachments: AttachmentStore) -> Task:
    """Return *task* with clean words and the files of the run; its id is how it is found, and stays."""
    safe = clean(task, redactor)
    return attachments.task(task if safe is task else replace(safe, id=task.id))


@dataclass(frozen=True)
class _CleanTrials:
    """The trials of a ledger, without any known secret."""

    ledger: SqliteLedger
    redactor: Redactor
    attachments: AttachmentStore

    def rows(self) -> Iterator[TrialRow]:
        return self.ledger.rows()

    def records(
        self,
        *,
        tasks: Collection[str] | None = None,
        candidate: str | None = None,
        rollouts: int | None = None,
    ) -> Iterator[TrialRecord]:
        for record in self.ledger.records(tasks=tasks, candidate=candidate, rollouts=rollouts):
            attempt = clean(record.attempt, self.redactor)
            if attempt.outcome is not None:
                outcome = self.attachments.outcome(attempt.outcome)
                attempt = replace(attempt, outcome=outcome)
            yield replace(record, attempt=attempt)


# --- formats --------------------------------------------------------------------------------------


_FORMS: dict[str, tuple[str, Callable[[Findings], Iterator[str]]]] = {
    "html": ("report.html", run.render),
    "csv": ("report.csv", render_csv),
    "json": ("report.json", render_json),
    "junit": ("junit.xml", render_junit),
    "md": ("report.md", markdown_report.render),
}


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """Return *formats* without duplicates; raise `UsageError` for an unknown one."""
    chosen = tuple(dict.fromkeys(formats))
    for name in chosen:
        if name not in _FORMS:
            hint = did_you_mean(name, _FORMS)
            raise UsageError(f"a report has no format {name!r}; {hint}")
    return chosen


def write_report(findings: Findings, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write *findings* into *folder* in each of *formats*, and return the files."""
    written = []
    for name in formats:
        file_name, render = _FORMS[name]
        _write(folder / file_name, render(findings))
        written.append(folder / file_name)
    return written


def _write(path: Path, parts: Iterable[str]) -> None:
    try:
        files.make_folder(path.parent)
        with replacing(path, durable=False) as file:
            for part in parts:
                file.write(well_formed(part).encode())
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}; choose another folder with --to"
        ) from error
