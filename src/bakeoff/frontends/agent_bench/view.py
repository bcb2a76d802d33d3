"""The files of an agent benchmark: records of its trials and a summary, kept current while it runs."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bakeoff import app
from bakeoff._lib import files
from bakeoff._lib.clock import monotonic
from bakeoff._lib.sanitize import for_terminal
from bakeoff.agents.dialogue.checkpoints import exchanges
from bakeoff.agents.dialogue.roles import FormError, json_object
from bakeoff.core.dialogue import AGENT, INSTRUCTOR, SUPERVISOR
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
from bakeoff.core.outcome import Outcome, Spent
from bakeoff.core.plan import Trial
from bakeoff.core.record import Attempt, Status, TrialRecord
from bakeoff.core.values import Json
from bakeoff.frontends.agent_bench.folders import BenchRun
from bakeoff.frontends.session import View, write_json
from bakeoff.stats.role_fidelity import (
    RoleFidelity,
    dialogue_notes,
    is_failure,
    marks_of,
    role_fidelity,
    turns_of,
)
from bakeoff.stores.checkpoints import CHECKPOINTS, checkpoint_file, steps_in

ROLE_NAMES = {
    INSTRUCTOR: "user agent",
    AGENT: "assistant agent",
    SUPERVISOR: "gatekeeper",
}
"""What the parties are called in checkpoint files, which other programs read by these names."""

_CODE = re.compile(r"^```(?:python|py)[ \t]*\n.*?^```", re.DOTALL | re.MULTILINE)


def agent_of(trial: Trial) -> str:
    """Return the id of the agent in *trial*, as its file gives it."""
    candidate = trial.candidate
    return candidate.agent.label or candidate.model.label or candidate.id


def entry_of(trial: Trial, attempt: Attempt, run: BenchRun) -> dict[str, Json]:
    """Return what `results_<agent>.json` says of one conversation."""
    record, agent, case = TrialRecord.of(trial, attempt), agent_of(trial), trial.task.id
    notes = dialogue_notes(record) or {}
    entry: dict[str, Json] = {
        "test_case": case,
        "agent_id": agent,
        "status": attempt.status.value,
        "rollout": trial.rollout,
        "model": trial.candidate.model.full_name,
        "framework": trial.candidate.agent.name,
        "passed": attempt.passed,
        "score": attempt.score,
        **_metrics(attempt, notes),
        "ended": attempt.outcome.stop_reason if attempt.outcome else None,
        "role_fidelity": {
            "marks": dict(marks_of(notes)),
            "touches_a_failure": bool(marks_of(notes)) and is_failure(record),
        },
        "attempts": attempt.number,
        "checkpoint_path": str(run.checkpoint(agent, case, trial.rollout)),
        "log_path": str(run.case_log(agent, case, trial.rollout)),
        "result_path": str(run.result(agent)),
    }
    if attempt.fault is not None:
        entry["error"] = attempt.fault.message
    reasons: list[Json] = [s.explanation for s in attempt.scores if s.explanation]
    return {**entry, "reasons": reasons} if reasons else entry


def _metrics(attempt: Attempt, notes: Mapping[str, Json]) -> dict[str, Json]:
    parties = {AGENT: attempt.spent, **attempt.roles}
    graded = next((s.details for s in attempt.scores if "skill" in s.details), {})
    return {
        "interaction_time_seconds": round(attempt.phases.get("agent", attempt.elapsed_s), 3),
        "conversation_turns": turns_of(notes) if attempt.outcome else None,
        "code_snippets_count": _snippets(attempt.outcome),
        "absolute_metric_score": graded.get("score"),
        "skill_score": graded.get("skill"),
        "supervisor_interventions": attempt.outcome.interventions if attempt.outcome else 0,
        "tokens": {name: _tokens(spent) for name, spent in parties.items()},
        "cost_usd": {name: spent.usage.cost_usd for name, spent in parties.items()},
        "billed_usd": attempt.bill.cost_usd,
    }


def _tokens(spent: Spent) -> dict[str, Json]:
    return {
        "requests": spent.sent,
        "input": spent.usage.input_tokens,
        "output": spent.usage.output_tokens,
    }


def _snippets(outcome: Outcome | None) -> int:
    """Return how many pieces of code the agent ran or wrote."""
    if outcome is None:
        return 0
    own = [m for m in outcome.transcript if m.role == "assistant"]
    return sum(len(m.tool_calls) + len(_CODE.findall(m.content)) for m in own)


def conversation_of(trial: Trial, steps: list[dict[str, Json]]) -> dict[str, Json]:
    """Return the saved *steps* of a trial as a checkpoint file has them.

    It is for people and other programs: a run goes on from the steps themselves.
    """
    entries = [entry for step in steps if isinstance(entry := step.get("entry"), Mapping)]
    history: list[Json] = [_history_entry(exchange) for exchange in exchanges(entries)]
    instructor = trial.conditions.roles.get(INSTRUCTOR)
    return {
        "test_case": trial.task.id,
        "agent_id": agent_of(trial),
        "trial": trial.name,
        "user_agent_model": instructor.full_name if instructor else None,
        "assistant_agent_model": trial.candidate.model.full_name,
        "conversation_history": history,
    }


def _history_entry(exchange: Mapping[str, Json]) -> dict[str, Json]:
    messages, answer = exchange["messages"], exchange["answer"]
    asked = messages if isinstance(messages, list) else []
    last = asked[-1] if asked else None
    answer_message: dict[str, Json] = {"role": "assistant", "content": answer}
    if exchange["tool_calls"]:
        answer_message["tool_calls"] = exchange["tool_calls"]
    entry: dict[str, Json] = {
        "role": ROLE_NAMES.get(str(exchange["party"]), exchange["party"]),
        "party": exchange["party"],
        "turn": exchange["turn"],
        "prompt_received": last.get("content") if isinstance(last, Mapping) else None,
        "all_messages": [*asked, answer_message],
    }
    if exchange["party"] == AGENT:
        return entry
    try:
        return {**entry, "parsed_response": json_object(str(answer))}
    except FormError:
        return {**entry, "parsed_response": None}


_KEYS = ("status", "checkpoint_path", "log_path", "result_path", "error")


def in_words(agent: str, entries: Sequence[Mapping[str, Json]]) -> str:
    """Return how *agent* did, in one line."""
    statuses = Counter(str(entry["status"]) for entry in entries)
    ends = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "nothing was run"
    scores = [score for entry in entries if isinstance(score := entry["score"], float)]
    if not scores:
        return f"agent {agent}: {ends}; nothing was scored"
    passed = sum(entry["passed"] is True for entry in entries)
    return (
        f"agent {agent}: {ends}; {passed} of {len(scores)} passed, mean score {fmean(scores):.3f}"
    )


def summary_of(
    entries: Mapping[str, Mapping[str, Json]],
    fidelity: RoleFidelity,
    *,
    planned: int,
    finished: bool,
) -> dict[str, Json]:
    """Return what `summary.json` says of a run; *entries* are by the names of their trials."""
    known = entries.values()
    return {
        **_counts(list(known), planned),
        "finished": finished,
        "results": [{**_whose(e), **{key: e[key] for key in _KEYS if key in e}} for e in known],
        "role_fidelity": {
            "conversations": fidelity.conversations,
            "turns": fidelity.turns,
            "marked_conversations": fidelity.marked_conversations,
            "marked_turns": dict(fidelity.marks),
            "failures": fidelity.failures,
            "failures_touched": len(fidelity.touched),
            "touched": [
                {
                    **_whose(entries[touched.trial]),
                    "trial": touched.trial,
                    "marks": dict(touched.marks),
                }
                for touched in fidelity.touched
            ],
        },
    }


def _counts(entries: Sequence[Mapping[str, Json]], planned: int) -> dict[str, Json]:
    """Return how many conversations there are of each kind.

    `successful_tests`, those that were held to their end, are the passed, the failed and the
    unscored ones; with the faulted, the cancelled and those not run yet they are all of them. One
    that a limit ended and that nothing scored has failed.
    """
    statuses = Counter(str(entry["status"]) for entry in entries)
    held = [entry for entry in entries if Status(str(entry["status"])).final]
    passed = sum(entry["passed"] is True for entry in held)
    unscored = sum(
        entry["passed"] is None and entry["status"] == Status.COMPLETED.value for entry in held
    )
    return {
        "total_tests": planned,
        "successful_tests": len(held),
        "passed_tests": passed,
        "failed_tests": len(held) - passed - unscored,
        "unscored_tests": unscored,
        "faulted_tests": statuses[Status.FAULTED.value],
        "cancelled_tests": statuses[Status.CANCELLED.value],
        "not_run_tests": planned - len(entries),
    }


def _whose(entry: Mapping[str, Json]) -> dict[str, Json]:
    return {"agent_id": entry["agent_id"], "test_case_id": entry["test_case"]}


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
                "then continue with --resume"
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
        self._records[trial.name] = TrialRecord.of(trial, _without_conversation(attempt))

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
