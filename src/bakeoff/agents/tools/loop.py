"""The loop around a bare model: turns of a scripted conversation, and tool calls that are answered."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bakeoff._lib.sanitize import well_formed
from bakeoff.agents.direct import Direct, with_system_prompt
from bakeoff.agents.tools.mcp_server import connected
from bakeoff.agents.tools.replies import Functions, LiveTool, OpenTools, ScriptedTool, refusal
from bakeoff.core.outcome import Completion, Journal, Outcome, Request, answer_of, turn_as_trial
from bakeoff.core.ports import Context, Scorer
from bakeoff.core.record import Score, has_passed, total_score
from bakeoff.core.task import Message, ScorerSpec, Task, ToolCall
from bakeoff.core.tools import DEFAULT_ROUNDS, TaskTools

_NO_TOOLS = TaskTools()


@dataclass(frozen=True, kw_only=True)
class ToolLoop:
    """Asks the model turn by turn, and again with the replies to its tool calls until it makes none.

    `functions` are those that the task's tools name, `environ` is what MCP servers get their variables
    from, and `scorers` are those of the task, in order.
    """

    direct: Direct
    functions: Functions
    environ: Mapping[str, str] = field(default_factory=dict)
    scorers: Sequence[tuple[ScorerSpec, Scorer]] = ()

    async def solve(self, task: Task, context: Context) -> Outcome:
        """Hold the conversation of *task*."""
        async with AsyncExitStack() as stack:
            tools = await self._open(task.tools or _NO_TOOLS, stack)
            conversation = _Conversation(task, context, tools, self.direct.system_prompt)
            await conversation.answer()
            for number, turn in enumerate(task.turns, 1):
                if number > 1:
                    conversation.say(turn.message())
                    await conversation.answer()
                if turn.stop_on_failure and not await self._passes(
                    task, conversation.outcome(), number, context
                ):
                    if number < len(task.turns):
                        conversation.stop_reason = f"turn {number} failed"
                    break
            return conversation.outcome()

    async def _open(self, tools: TaskTools, stack: AsyncExitStack) -> OpenTools:
        live: list[LiveTool] = [ScriptedTool(spec, self.functions) for spec in tools.tools]
        for server in tools.servers:
            live += await stack.enter_async_context(connected(server, self.environ))
        return OpenTools(live)

    async def _passes(self, task: Task, outcome: Outcome, number: int, context: Context) -> bool:
        """Whether every scorer of turn *number* is satisfied."""
        turn = turn_as_trial(task, outcome, number)
        if turn is None:
            return False
        scores: list[Score] = [
            await scorer.score(*turn, context)
            for spec, scorer in self.scorers
            if spec.turn == number and spec.weight > 0
        ]
        return has_passed(turn[0], scores, total_score(tuple(scores))) is not False


class _Conversation:
    """What was said so far, and the model that answers."""

    def __init__(
        self, task: Task, context: Context, tools: OpenTools, system_prompt: str | None
    ) -> None:
        self._task = task
        self._context = context
        self._tools = tools
        self._rounds = task.tools.rounds if task.tools else DEFAULT_ROUNDS
        self._opening = with_system_prompt(task.messages, system_prompt)
        self._journal = context.journal or Journal()
        self._journal.partial_outcome = self.outcome
        self._last: Completion | None = None
        self._open_calls: tuple[ToolCall, ...] = ()
        self._errors = 0
        self.stop_reason: str | None = None

    def say(self, message: Message) -> None:
        """Go on with the next turn; every API wants each call answered before that."""
        self._refuse_open_calls("this tool is not run here")
        self._journal.add_messages(message)

    async def answer(self) -> None:
        """Let the model answer, with as many rounds of tool calls as it may have."""
        for number in range(self._rounds + 1):
            calls = await self._ask()
            if not calls or not self._tools.answers(calls):
                return
            if number == self._rounds:
                self.stop_reason = f"{self._rounds} rounds of tool calls are spent"
                self._refuse_open_calls(self.stop_reason)
                return
            for call in calls:
                reply = await self._tools.answer(call)
                self._errors += reply.error
                self._add_reply(call, reply.text)

    async def _ask(self) -> tuple[ToolCall, ...]:
        """Send the conversation, and return the calls of the answer."""
        self._last = await self._context.model.complete(
            Request(
                messages=(*self._opening, *self._journal.messages),
                parameters=self._task.parameters,
                api_type=self._task.api_type,
                tools=self._tools.offered,
                rollout=self._context.rollout,
            )
        )
        self._journal.add_messages(
            Message(
                role="assistant",
                content=self._last.text,
                reasoning=self._last.reasoning,
                tool_calls=self._last.tool_calls,
            )
        )
        self._open_calls = self._last.tool_calls
        return self._open_calls

    def _refuse_open_calls(self, why: str) -> None:
        for call in self._open_calls:
            self._add_reply(call, refusal(why).text)

    def _add_reply(self, call: ToolCall, text: str) -> None:
        self._journal.add_messages(
            Message(role="tool", content=well_formed(text), tool_call_id=call.id)
        )
        self._open_calls = self._open_calls[1:]

    def outcome(self) -> Outcome:
        """Return the outcome as it is now."""
        last, transcript = self._last, tuple(self._journal.messages)
        return Outcome(
            answer=answer_of(transcript),
            transcript=transcript,
            stop_reason=self.stop_reason or (last.stop_reason if last else None),
            model=last.model if last else None,
            raw=last.raw if last else None,
            notes={"tool_errors": self._errors} if self._errors else {},
        )
