"""A dialogue between an instructor, watched by a supervisor, and an agent; and its audit.

A turn is a message to the agent and its reply. The supervisor checks every message of the
instructor; one that contradicts the reference is still sent, and the next turn is the supervisor's
follow-up instead of the instructor's. When the instructor ends the conversation, the agent replies
once more, unless a follow-up is pending. With `shard_user` there is no supervisor: the instructor
reveals one to three shards per turn, and asks to wrap up when all are told.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, runtime_checkable

from bakeoff._lib.sanitize import for_terminal, well_formed
from bakeoff.agents.dialogue.checkpoints import ConversationCheckpoint
from bakeoff.agents.dialogue.roles import WRAP_UP, Roles
from bakeoff.agents.interventions import ResumableAgent
from bakeoff.core.dialogue import AGENT, INSTRUCTOR, SUPERVISOR, Dialogue, DialogueTurn
from bakeoff.core.errors import AgentError, LimitReached
from bakeoff.core.outcome import Completion, Journal, Outcome, Request
from bakeoff.core.ports import Agent, Context, Model
from bakeoff.core.task import Message, Task
from bakeoff.core.values import Json

OPENING, WRAPPING_UP = "opening", "wrap-up"
ENDED = "the instructor ended the conversation"
ALL_TOLD = "all shards are told"


@runtime_checkable
class HoldsResources(Protocol):
    """An agent that holds something in its box for the whole conversation."""

    async def release(self, context: Context) -> None:
        """Release it."""


class _CheckpointedModel:
    """The candidate's model in one turn; its answers are saved."""

    def __init__(self, checkpoint: ConversationCheckpoint, model: Model, turn: int) -> None:
        self._checkpoint = checkpoint
        self._model = model
        self._turn = turn

    async def complete(self, request: Request) -> Completion:
        """Answer from the checkpoint, else ask the model."""
        return await self._checkpoint.ask(AGENT, self._turn, self._model, request)


class DialogueCandidate:
    """Passes the instructor's messages to an agent, and keeps the conversation.

    A resumable agent gets each message; any other gets the whole conversation each time.
    """

    def __init__(
        self, agent: Agent, task: Task, context: Context, checkpoint: ConversationCheckpoint
    ) -> None:
        self._agent = agent
        self._task = _shown(task)
        self._journal = context.journal or Journal()
        self._model = context.model
        self._context = replace(
            context, roles={}, workspaces=None, checkpoint=None, journal=self._journal
        )
        self._checkpoint = checkpoint
        self._conversation: list[Message] = []
        self._first_task: Task | None = None
        self.last_outcome: Outcome | None = None

    async def answer(self, message: str, turn: int) -> str:
        """Return the agent's reply to *message*."""
        user_message = Message(role="user", content=well_formed(message))
        self._conversation.append(user_message)
        context = replace(
            self._context, model=_CheckpointedModel(self._checkpoint, self._model, turn)
        )
        if not isinstance(self._agent, ResumableAgent):
            self.last_outcome = await self._solve_again(user_message.content, context, turn)
        elif self._first_task is None:
            self._first_task = replace(self._task, messages=(*self._task.messages, user_message))
            self.last_outcome = await self._agent.solve(self._first_task, context)
        else:
            self.last_outcome = await self._agent.resume(
                self._first_task, context, user_message.content
            )
        reply = well_formed(self.last_outcome.answer)
        self._conversation.append(Message(role="assistant", content=reply))
        return reply

    async def _solve_again(self, message: str, context: Context, turn: int) -> Outcome:
        """Solve with the whole conversation; without a workspace, a saved reply is reused."""
        if (
            context.workspace is None
            and (saved := self._checkpoint.replied(turn, message)) is not None
        ):
            return saved
        whole = replace(self._task, messages=(*self._task.messages, *self._conversation))
        outcome = await self._agent.solve(whole, context)
        if context.workspace is None:
            await self._checkpoint.save_reply(turn, message, outcome)
        return outcome

    def transcript(self) -> tuple[Message, ...]:
        """Return the conversation, with the agent's tool calls where it recorded them."""
        own = self._journal.messages
        if self._first_task is None or self._context.model_access is not None or not own:
            return tuple(self._conversation)
        return (self._conversation[0], *own)

    async def release(self) -> None:
        """Let the agent release what it holds."""
        if isinstance(self._agent, HoldsResources):
            await self._agent.release(self._context)


def _shown(task: Task) -> Task:
    """Return *task* as the candidate may see it: without roles and grading."""
    workspace = task.workspace
    if workspace is not None:
        workspace = replace(workspace, hidden=(), protected=(), reference=None)
    return replace(task, dialogue=None, target=None, scorers=(), metadata={}, workspace=workspace)


@dataclass(frozen=True, kw_only=True)
class InDialogue:
    """Runs the dialogue of a task with *agent* until it ends or the turns are used up."""

    agent: Agent

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Hold the conversation, or resume one that was interrupted."""
        if task.dialogue is None:
            return await self.agent.solve(task, context)
        context = context if context.journal is not None else replace(context, journal=Journal())
        checkpoint = ConversationCheckpoint(context.checkpoint)
        candidate = DialogueCandidate(self.agent, task, context, checkpoint)
        try:
            return await _Conversation(task.dialogue, context, candidate, checkpoint).hold()
        finally:
            await candidate.release()


class _Conversation:
    """One dialogue in progress."""

    def __init__(
        self,
        dialogue: Dialogue,
        context: Context,
        candidate: DialogueCandidate,
        checkpoint: ConversationCheckpoint,
    ) -> None:
        if INSTRUCTOR not in context.roles:
            raise AgentError("a dialogue needs an instructor: give [roles.instructor]")
        watched = dialogue.mode == "user"
        self._dialogue = dialogue
        self._candidate = candidate
        self._journal = context.journal or Journal()
        self._roles = Roles(
            dialogue=dialogue,
            instructor=context.roles[INSTRUCTOR],
            supervisor=context.roles.get(SUPERVISOR) if watched else None,
            checkpoint=checkpoint,
            rollout=context.rollout,
        )
        self._turns: list[DialogueTurn] = []
        self._unanswered: tuple[DialogueTurn, ...] = ()  # the turn that is not answered yet
        self._shards = dict(enumerate(dialogue.shards, start=1))

    async def hold(self) -> Outcome:
        """Hold the conversation and return the agent's outcome."""
        follow_up: str | None = None
        self._journal.partial_outcome = self._outcome
        for number in range(1, self._dialogue.max_turns + 1):
            turn = audited(self._dialogue, self._turns, await self._next(number, follow_up))
            follow_up = turn.follow_up
            self._journal.write_log(_line(turn.number, turn.speaker, turn.message, *turn.marks))
            self._journal.turn(number, over=False)
            self._unanswered = (turn,)
            reply = await self._candidate.answer(turn.message, number)
            self._journal.write_log(_line(number, AGENT, reply))
            self._journal.turn(number, over=True)
            self._turns.append(replace(turn, reply=reply))
            self._unanswered = ()
            if turn.end and follow_up is None:
                return self._outcome(ALL_TOLD if turn.speaker == WRAPPING_UP else ENDED)
        raise LimitReached(f"{self._dialogue.max_turns} turns are spent")

    async def _next(self, number: int, follow_up: str | None) -> DialogueTurn:
        """Return the next turn's message to the agent."""
        dialogue, turns = self._dialogue, self._turns
        if follow_up is not None:
            return DialogueTurn(number=number, speaker=SUPERVISOR, message=follow_up)
        if number == 1 and dialogue.opening is not None:
            return DialogueTurn(number=number, speaker=OPENING, message=dialogue.opening)
        if dialogue.mode == "shard_user" and not self._shards:
            return DialogueTurn(number=number, speaker=WRAPPING_UP, message=WRAP_UP, end=True)
        instruction = await self._roles.instruct(turns, self._shards)
        verdict = await self._roles.check(turns, instruction.message)
        for shard in instruction.shards:
            del self._shards[shard]
        return DialogueTurn(
            number=number,
            speaker=INSTRUCTOR,
            message=instruction.message,
            end=instruction.end,
            shards=instruction.shards,
            contradictory=verdict.contradictory,
            follow_up=verdict.follow_up,
        )

    def _outcome(self, why: str | None = None) -> Outcome:
        turns, outcome = [*self._turns, *self._unanswered], self._candidate.last_outcome
        notes: dict[str, Json] = {"turns": [_turn_note(turn) for turn in turns], "ended": why}
        notes["marks"] = {
            mark: numbers
            for mark in AUDIT_MARKS
            if (numbers := [turn.number for turn in turns if mark in turn.marks])
        }
        replies = [turn.reply for turn in self._turns]
        return Outcome(
            answer="\n\n".join(replies if self._dialogue.answer == "all" else replies[-1:]),
            transcript=self._candidate.transcript(),
            stop_reason=why,
            model=outcome.model if outcome else None,
            notes={**(outcome.notes if outcome else {}), "dialogue": notes},
            log=self._journal.log,
            interventions=sum(turn.speaker == SUPERVISOR for turn in turns),
        )


def _turn_note(turn: DialogueTurn) -> dict[str, Json]:
    """Return *turn* as a note; its text is in the transcript."""
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


# --- the audit of the roles ------------------------------------------------------------------------

_WORD = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|[;:\n]+")
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            "eleven", "twelve")  # fmt: skip
_DIGITS = {word: str(number) for number, word in enumerate(_NUMBERS)}
_IN_ANY_TEXT = 10  # up to here a number alone is not specific; with what it counts, it is
_PHRASE = 6  # words: a paraphrase does not share so many in a row by chance
_SHORT_PHRASE = 4  # words of a whole sentence
_LONG = 4  # letters of a word with a meaning
_STEM = 5  # letters in which `predict` and `prediction` are the same
_EMPTY_WORDS = """
about after also because been before both could does each even every first from have here into just like
more most much must need only other over should some such than that their them then there these they this
those till under until very want were what when where which while will with would your
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())
_COURTESY = re.compile(
    r"anything else|something else|any (?:other|more|further|questions)|(?:help|assist)(?: you)?\b"
    r"|make sense|sound (?:good|right)|happy with|let me know",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(
    r"\W*(?:yes|yeah|yep|no|nope|sure|ok|okay|please do|go ahead)\b", re.IGNORECASE
)


def phrases(texts: Iterable[str]) -> set[str]:
    """Return the phrases of *texts*: each run of six words, and each shorter sentence."""
    return {phrase for text in texts for phrase in _phrases_in(text)}


def _phrases_in(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.split(text):
        words = _words(sentence)
        size = min(_PHRASE, len(words))
        if size >= _SHORT_PHRASE:
            for start in range(len(words) - size + 1):
                yield f" {' '.join(words[start : start + size])} "


def searchable(*texts: str) -> str:
    """Return *texts* normalized, so that phrases can be searched in them."""
    return " | ".join(f" {' '.join(_words(text))} " for text in texts)


def figures(*texts: str) -> set[str]:
    """Return the numbers in *texts*; a small one with the word for what it counts."""
    figures_found = set()
    for text in texts:
        for word, after in pairwise([*_words(text), ""]):
            if not word[0].isdigit():
                continue
            if not word.isdecimal() or int(word) > _IN_ANY_TEXT:
                figures_found.add(word)
            elif len(after) >= _LONG and after not in _EMPTY:
                figures_found.add(f"{word} {after[:_STEM]}")
    return figures_found


def share(text: str, other: str) -> float:
    """Return the share of the meaningful words of *text* that occur in *other*, by their stems."""
    stems = _stems(text)
    return len(stems & _stems(other)) / len(stems) if stems else 1.0


def is_asking(reply: str, answer: str) -> bool:
    """Whether *reply* ends with a question, not just a courtesy, that *answer* leaves open."""
    last = _SENTENCE.split(reply.strip().rstrip("*_)\"'` "))[-1]
    if not last.endswith("?") or _COURTESY.search(last) or _YES_OR_NO.match(answer):
        return False
    return not _stems(last) & _stems(answer)


def _words(text: str) -> list[str]:
    return [_plain(word.lower()) for word in _WORD.findall(text)]


def _plain(word: str) -> str:
    """Return a number in one canonical form; other words unchanged."""
    if not word[0].isdigit():
        return _DIGITS.get(word, word)
    whole, point, rest = re.sub(r",(?=\d{3}\b)", "", word).replace(",", ".").partition(".")
    rest = rest.rstrip("0")
    return f"{whole.lstrip('0') or '0'}{point if rest else ''}{rest}"


def _stems(text: str) -> set[str]:
    return {
        word[:_STEM]
        for word in _words(text)
        if word[0].isdigit() or (len(word) >= _LONG and word not in _EMPTY)
    }


LEAKED, ENDED_EARLY = "leaked", "ended early"
CONTRADICTED, OVERRULED, WITHHELD = "contradicted", "overruled", "withheld"
AUDIT_MARKS = (LEAKED, ENDED_EARLY, CONTRADICTED, OVERRULED, WITHHELD)

_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(\S.*)$", re.MULTILINE)
_MIN_RAISED_SHARE, _MIN_TOLD_SHARE = 0.34, 0.3  # the share of words that must have occurred


def audited(dialogue: Dialogue, before: Sequence[DialogueTurn], turn: DialogueTurn) -> DialogueTurn:
    """Return *turn*, which follows *before*, with its audit marks."""
    return replace(turn, marks=tuple(_audit_marks(dialogue, before, turn)))


def _audit_marks(
    dialogue: Dialogue, before: Sequence[DialogueTurn], turn: DialogueTurn
) -> Iterator[str]:
    if turn.speaker == SUPERVISOR:
        yield OVERRULED
    if turn.speaker != INSTRUCTOR:
        return
    if turn.contradictory:
        yield CONTRADICTED
    if _leaks(dialogue, before, turn):
        yield LEAKED
    if turn.end and _is_early(dialogue, before, turn):
        yield ENDED_EARLY
    told_shards = [dialogue.shards[number - 1] for number in turn.shards]
    if any(share(shard, turn.message) < _MIN_TOLD_SHARE for shard in told_shards):
        yield WITHHELD


def _leaks(dialogue: Dialogue, before: Sequence[DialogueTurn], turn: DialogueTurn) -> bool:
    """Whether the message contains a phrase or figure that was to be kept secret."""
    told_shards = {number for earlier in (*before, turn) for number in earlier.shards}
    if dialogue.mode == "shard_user":
        secret = [s for n, s in enumerate(dialogue.shards, start=1) if n not in told_shards]
    else:
        secret = [dialogue.reference]
    known = [dialogue.objective, dialogue.knowledge, dialogue.opening or "", *_texts_of(before)]
    known += [dialogue.shards[number - 1] for number in told_shards]
    if (figures(*secret) - figures(*known)) & figures(turn.message):
        return True
    known_text, message = searchable(*known), searchable(turn.message)
    return any(phrase in message and phrase not in known_text for phrase in phrases(secret))


def _is_early(dialogue: Dialogue, before: Sequence[DialogueTurn], turn: DialogueTurn) -> bool:
    if before and is_asking(before[-1].reply, turn.message):
        return True
    conversation = "\n".join((turn.message, *_texts_of(before)))
    return any(
        share(item, conversation) < _MIN_RAISED_SHARE for item in _ITEM.findall(dialogue.objective)
    )


def _texts_of(turns: Sequence[DialogueTurn]) -> list[str]:
    return [text for turn in turns for text in (turn.message, turn.reply)]
