"""The files of an agent benchmark, kept current while it runs; all of them can be made from the ledger."""

import logging
from collections.abc import Sequence
from pathlib import Path

from bakeoff import app
from bakeoff._lib import files
from bakeoff._lib.clock import monotonic
from bakeoff._lib.sanitize import for_terminal
from bakeoff.core.errors import LedgerError
from bakeoff.core.events import (
    Event,
    Notice,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialOutput,
    TrialStarted,
    TurnEnded,
)
from bakeoff.core.outcome import Outcome
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, TrialRecord
from bakeoff.core.values import Json
from bakeoff.frontends.agent_bench.folders import BenchRun
from bakeoff.frontends.agent_bench.record import (
    agent_of,
    conversation_of,
    entry_of,
    in_words,
    record_of,
    summary_of,
)
from bakeoff.frontends.json_files import write_json
from bakeoff.frontends.view import View
from bakeoff.stats.role_fidelity import role_fidelity
from bakeoff.stores.checkpoints import CHECKPOINTS, checkpoint_file, steps_in

LOGGER = logging.getLogger("bakeoff.agent_runner")
SUMMARY, ALL = "summary.json", "all_results.json"
_OFTEN_S = 1.0


class BenchView(View):
    """Writes the results, the logs and the checkpoints of a run as its events come."""

    def __init__(self, run: BenchRun, agents: Sequence[str]) -> None:
        self.run = run
        self._agents = agents
        self._entries: dict[str, dict[str, Json]] = {}
        self._records: dict[str, TrialRecord] = {}
        self._order: dict[str, int] = {}
        self._written = -_OFTEN_S

    def say(self, text: str) -> None:
        """Log one line."""
        LOGGER.warning("%s", text)

    def __call__(self, event: Event) -> None:
        """Write what *event* changes."""
        try:
            self._take(event)
        except OSError as error:
            where = error.filename or self.run.folder
            raise LedgerError(
                f"{where} cannot be written: {error.strerror}; the trials are kept: make room there, "
                "then go on with --resume"
            ) from error

    def _take(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, TrialStarted):
            log = self._log_of(event.trial)
            files.make_folder(log.parent)
            files.make_file(log)
            log.write_text("", encoding="utf-8")  # a resumed conversation logs all of it again
            LOGGER.info("agent %s, case %s: started", agent_of(event.trial), event.trial.task.id)
        elif isinstance(event, TrialOutput):
            self._print(event.trial, event.text)
        elif isinstance(event, TurnEnded):
            case = event.trial.task.id
            LOGGER.info("agent %s, case %s: turn %s", agent_of(event.trial), case, event.number)
            self._save_conversation(event.trial)
        elif isinstance(event, TrialEnded):
            self._end(event.trial, event.attempt, last=event.last)
        elif isinstance(event, Notice):
            LOGGER.warning("%s", event.text)
        elif isinstance(event, RunEnded):
            self.write(finished=not event.stopped_early)

    def _start(self, event: RunStarted) -> None:
        """Write the files from the ledger: an earlier session may have been cut off."""
        before = app.load_run(self.run.ledger)
        self._order = {trial.name: number for number, trial in enumerate(before.plan)}
        many = f"{event.planned} conversation{'s' if event.planned != 1 else ''}"
        before_now = f", {event.finished_before} finished before" if event.finished_before else ""
        LOGGER.info("%s: %s%s", self.run.name, many, before_now)
        recorded = {record.name: record.attempt for record in before.trials()}
        for trial in before.plan:
            if trial.name in recorded:
                self._note(trial, recorded[trial.name])
        self.write(finished=False)

    def _log_of(self, trial: Trial) -> Path:
        return self.run.case_log(agent_of(trial), trial.task.id, trial.rollout)

    def _print(self, trial: Trial, text: str) -> None:
        with self._log_of(trial).open("a", encoding="utf-8", errors="replace") as log:
            log.write(for_terminal(text))
        LOGGER.debug("agent %s, case %s: %s", agent_of(trial), trial.task.id, text.rstrip())

    def _save_conversation(self, trial: Trial) -> None:
        kept = checkpoint_file(self.run.ledger / CHECKPOINTS, trial.name)
        write_json(
            self.run.checkpoint(agent_of(trial), trial.task.id, trial.rollout),
            conversation_of(trial, steps_in(kept)),
        )

    def _end(self, trial: Trial, attempt: Attempt, *, last: bool) -> None:
        self._note(trial, attempt)
        how = attempt.fault.message if attempt.fault else attempt.status.value
        if attempt.score is not None:
            how += f", score {attempt.score:.3f}"
        if not last:
            how += "; it is tried again"
        level = logging.ERROR if attempt.fault else logging.INFO
        LOGGER.log(level, "agent %s, case %s: %s", agent_of(trial), trial.task.id, how)
        with self._log_of(trial).open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"ended: {for_terminal(how)}\n")
        self._save_conversation(trial)
        if last and monotonic() - self._written >= _OFTEN_S:
            self.write(finished=False)

    def _note(self, trial: Trial, attempt: Attempt) -> None:
        self._entries[trial.name] = entry_of(trial, attempt, self.run)
        self._records[trial.name] = record_of(trial, _without_conversation(attempt))

    def write(self, *, finished: bool) -> None:
        """Write the result files."""
        self._written = monotonic()
        for agent in self._agents:
            write_json(self.run.result(agent), self._entries_of(agent))
        entries = {name: self._entries[name] for name in self._in_order()}
        write_json(self.run.folder / ALL, list(entries.values()))
        fidelity = role_fidelity(self._records[name] for name in entries)
        summary = summary_of(entries, fidelity, planned=len(self._order), finished=finished)
        write_json(self.run.folder / SUMMARY, summary)

    def log_agents(self) -> None:
        """Log a line for each agent: how it did."""
        for agent in self._agents:
            LOGGER.info("%s", in_words(agent, self._entries_of(agent)))

    def _in_order(self) -> list[str]:
        """Return the trials of which something is known, in the order of the plan."""
        return sorted(self._entries, key=lambda name: self._order.get(name, 0))

    def _entries_of(self, agent: str) -> list[dict[str, Json]]:
        entries = [self._entries[name] for name in self._in_order()]
        return [entry for entry in entries if entry["agent_id"] == agent]


def _without_conversation(attempt: Attempt) -> Attempt:
    """Return *attempt* with the notes of its outcome only: the conversation is in the ledger."""
    outcome = attempt.outcome
    if outcome is None:
        return attempt
    slim = Outcome(answer="", notes=outcome.notes)
    return Attempt(
        number=attempt.number,
        status=attempt.status,
        started_at=attempt.started_at,
        elapsed_s=attempt.elapsed_s,
        outcome=slim,
        passed=attempt.passed,
    )
