"""A dialogue: an instructor who wants something, a supervisor who watches, and an agent that works.

A turn is a message to the agent and its reply. The supervisor sees every message of the instructor;
one that contradicts its reference goes out all the same, and the next turn is the supervisor's
follow-up in the place of the instructor's. Where the instructor says that it ends, the agent replies
once more, unless a follow-up is pending: then the conversation goes on. With `shard_user` nobody
watches: the instructor reveals one to three shards a turn, and when all are told, asks to wrap up.
"""

from dataclasses import dataclass, replace

from bakeoff._lib.untrusted import for_terminal
from bakeoff.agents.dialogue_audit import MARKS, audited
from bakeoff.agents.dialogue_candidate import Candidate
from bakeoff.agents.dialogue_prompts import WRAP_UP
from bakeoff.agents.dialogue_roles import Roles
from bakeoff.agents.dialogue_tape import Tape
from bakeoff.core.dialogue import AGENT, INSTRUCTOR, SUPERVISOR, Dialogue, Turn
from bakeoff.core.errors import AgentError, LimitReached
from bakeoff.core.journal import Journal
from bakeoff.core.outcome import Outcome
from bakeoff.core.ports import Agent, Context
from bakeoff.core.task import Task
from bakeoff.core.values import Json

OPENING, WRAPPING_UP = "opening", "wrap-up"
ENDED = "the instructor ended the conversation"
ALL_TOLD = "all shards are told"


@dataclass(frozen=True, kw_only=True)
class InDialogue:
    """Has the roles of a task talk to *agent* until they are done or the turns are spent."""

    agent: Agent

    async def solve(self, task: Task, kit: Context) -> Outcome:
        """Hold the conversation, or go on with one that was cut off."""
        if task.dialogue is None:
            return await self.agent.solve(task, kit)
        kit = kit if kit.journal is not None else replace(kit, journal=Journal())
        tape = Tape(kit.checkpoint)
        candidate = Candidate(self.agent, task, kit, tape)
        try:
            return await _Conversation(task.dialogue, kit, candidate, tape).held()
        finally:
            await candidate.leave()


class _Conversation:
    """One dialogue on its way."""

    def __init__(self, dialogue: Dialogue, kit: Context, candidate: Candidate, tape: Tape) -> None:
        if INSTRUCTOR not in kit.roles:
            raise AgentError("a dialogue needs somebody who leads it: give [roles.instructor]")
        watched = dialogue.mode == "user"
        self._dialogue = dialogue
        self._candidate = candidate
        self._journal = kit.journal or Journal()
        self._roles = Roles(
            dialogue=dialogue,
            instructor=kit.roles[INSTRUCTOR],
            supervisor=kit.roles.get(SUPERVISOR) if watched else None,
            tape=tape,
            rollout=kit.rollout,
        )
        self._turns: list[Turn] = []
        self._open: tuple[Turn, ...] = ()  # the turn that is not answered yet
        self._shards = dict(enumerate(dialogue.shards, start=1))

    async def held(self) -> Outcome:
        """Return what the agent left when the conversation was over."""
        follow_up: str | None = None
        self._journal.left = self._outcome
        for number in range(1, self._dialogue.max_turns + 1):
            turn = audited(self._dialogue, self._turns, await self._next(number, follow_up))
            follow_up = turn.follow_up
            self._journal.print(_line(turn.number, turn.speaker, turn.message, *turn.marks))
            self._journal.turn(number, over=False)
            self._open = (turn,)
            reply = await self._candidate.answer(turn.message, number)
            self._journal.print(_line(number, AGENT, reply))
            self._journal.turn(number, over=True)
            self._turns.append(replace(turn, reply=reply))
            self._open = ()
            if turn.end and follow_up is None:
                return self._outcome(ALL_TOLD if turn.speaker == WRAPPING_UP else ENDED)
        raise LimitReached(f"{self._dialogue.max_turns} turns are spent")

    async def _next(self, number: int, follow_up: str | None) -> Turn:
        """Return the next message to the agent, as the rules have it."""
        dialogue, turns = self._dialogue, self._turns
        if follow_up is not None:
            return Turn(number=number, speaker=SUPERVISOR, message=follow_up)
        if number == 1 and dialogue.opening is not None:
            return Turn(number=number, speaker=OPENING, message=dialogue.opening)
        if dialogue.mode == "shard_user" and not self._shards:
            return Turn(number=number, speaker=WRAPPING_UP, message=WRAP_UP, end=True)
        said = await self._roles.instruct(turns, self._shards)
        verdict = await self._roles.check(turns, said.message)
        for told in said.shards:
            del self._shards[told]
        return Turn(
            number=number,
            speaker=INSTRUCTOR,
            message=said.message,
            end=said.end,
            shards=said.shards,
            contradictory=verdict.contradictory,
            follow_up=verdict.follow_up,
        )

    def _outcome(self, why: str | None = None) -> Outcome:
        turns, left = [*self._turns, *self._open], self._candidate.left
        notes: dict[str, Json] = {"turns": [_told(turn) for turn in turns], "ended": why}
        notes["marks"] = {
            mark: found
            for mark in MARKS
            if (found := [turn.number for turn in turns if mark in turn.marks])
        }
        replies = [turn.reply for turn in self._turns]
        return Outcome(
            answer="\n\n".join(replies if self._dialogue.answer == "all" else replies[-1:]),
            transcript=self._candidate.transcript(),
            stop_reason=why,
            model=left.model if left else None,
            notes={**(left.notes if left else {}), "dialogue": notes},
            log=self._journal.log,
            interventions=sum(turn.speaker == SUPERVISOR for turn in turns),
        )


def _told(turn: Turn) -> dict[str, Json]:
    """Return *turn* as a note; the words themselves are in the transcript."""
    return {
        "turn": turn.number,
        "speaker": turn.speaker,
        "end": turn.end,
        "shards": list(turn.shards),
        "contradictory": turn.contradictory,
        "marks": list(turn.marks),
    }


def _line(number: int, who: str, text: str, *marks: str) -> str:
    marked = f" [{', '.join(marks)}]" if marks else ""
    return f"turn {number} {who}{marked}: {for_terminal(text)}\n"
