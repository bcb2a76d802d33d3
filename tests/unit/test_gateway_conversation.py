"""What goes into the transcript of a program that sends its whole history with every question."""

from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.outcome import Completion, Journal
from bakeoff.core.task import Message, ToolCall
from bakeoff.gateway.model_access import ConversationRecorder, Replies


def user(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str, *calls: str) -> Message:
    made = tuple(ToolCall(id=key, name="run", arguments="{}") for key in calls)
    return Message(role="assistant", content=text, tool_calls=made)


def result(key: str, text: str = "done") -> Message:
    return Message(role="tool", content=text, tool_call_id=key)


class Transcript:
    """A conversation with its journal; `ask` is one question and its answer."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.conversation = ConversationRecorder(self.journal, most_kept=1_000_000)

    def ask(self, *messages: Message, reply: Message, system: tuple[str, ...] = ("S",)) -> None:
        thread = self.conversation.record_history(system, messages)
        self.conversation.record_reply(thread, reply)

    @property
    def told(self) -> list[str]:
        return [m.content or f"calls {m.tool_calls[0].id}" for m in self.journal.messages]


def test_a_loop_of_tools_is_told_once_and_in_order() -> None:
    transcript = Transcript()
    history = [user("Fix it")]
    for key in ("a", "b", "c"):
        call = said("", key)
        transcript.ask(*history, reply=call)
        history += [call, result(key, f"out {key}")]
    transcript.ask(*history, reply=said("Done"))
    assert transcript.told == [
        *("S", "Fix it", "calls a", "out a", "calls b", "out b", "calls c", "out c", "Done")
    ]


def test_the_same_words_said_again_are_told_again() -> None:
    transcript = Transcript()
    history: list[Message] = []
    for _ in range(3):
        history.append(user("Go on"))
        transcript.ask(*history, reply=said("Yes"))
        history.append(said("Yes"))
    assert transcript.told == ["S", "Go on", "Yes", "Go on", "Yes", "Go on", "Yes"]


def test_a_history_that_became_a_summary_goes_on_with_the_summary() -> None:
    transcript = Transcript()
    history = [user("Fix it"), said("", "a"), result("a"), said("", "b"), result("b")]
    transcript.ask(*history[:1], reply=history[1])
    transcript.ask(*history[:3], reply=history[3])
    transcript.ask(*history, user("Summarize"), reply=said("So far: a and b"))
    compacted = [user("Fix it"), user("So far: a and b; go on")]
    transcript.ask(*compacted, reply=said("", "c"))
    transcript.ask(*compacted, said("", "c"), result("c", "last"), reply=said("Done"))
    assert transcript.told[6:] == [
        *("Summarize", "So far: a and b", "So far: a and b; go on", "calls c", "last", "Done")
    ]


def test_old_results_that_were_cut_do_not_repeat_what_came_after_them() -> None:
    transcript = Transcript()
    history = [user("Fix it"), said("", "a"), result("a", "long " * 99), said("", "b")]
    transcript.ask(*history[:1], reply=history[1])
    transcript.ask(*history[:3], reply=history[3])
    pruned = [*history[:2], result("a", "[cleared]"), history[3], result("b", "ok")]
    transcript.ask(*pruned, reply=said("Done"))
    assert transcript.told[3:] == [("long " * 99), "calls b", "[cleared]", "ok", "Done"]


def test_two_threads_in_between_each_other_are_both_whole() -> None:
    transcript = Transcript()
    one, two = [user("one")], [user("two")]
    for step in ("1", "2"):
        for history, name in ((one, "one"), (two, "two")):
            call = said("", f"{name}-{step}")
            transcript.ask(*history, reply=call, system=(f"You are {name}",))
            history += [call, result(f"{name}-{step}", f"{name} got {step}")]
    assert transcript.told == [
        *("You are one", "one", "calls one-1", "You are two", "two", "calls two-1"),
        *("one got 1", "calls one-2", "two got 1", "calls two-2"),
    ]


def test_answers_that_come_in_another_order_than_their_questions_keep_their_threads() -> None:
    transcript = Transcript()
    title = transcript.conversation.record_history(("Title",), [user("Fix it")])
    work = transcript.conversation.record_history(("Work",), [user("Fix it")])
    transcript.conversation.record_reply(work, said("", "a"))
    transcript.conversation.record_reply(title, said("A fix"))
    transcript.ask(user("Fix it"), said("", "a"), result("a", "out"), reply=said("Done"))
    assert transcript.told == ["Title", "Fix it", "Work", "calls a", "A fix", "S", "out", "Done"]


def test_a_question_that_is_asked_again_after_a_fault_is_told_once() -> None:
    transcript = Transcript()
    transcript.conversation.record_history(("S",), [user("Fix it")])
    transcript.ask(user("Fix it"), reply=said("Done"))
    assert transcript.told == ["S", "Fix it", "Done"]


def test_a_system_prompt_is_told_once_also_where_a_part_of_it_changes() -> None:
    transcript = Transcript()
    transcript.ask(user("1"), reply=said("a"), system=("build 1", "Be good"))
    transcript.ask(user("1"), said("a"), user("2"), reply=said("b"), system=("build 2", "Be good"))
    assert transcript.told == ["build 1", "Be good", "1", "a", "build 2", "2", "b"]


def test_spaces_around_an_answer_and_lost_reasoning_make_no_difference() -> None:
    transcript = Transcript()
    reply = Message(role="assistant", content="Yes.\n", reasoning="Hm")
    transcript.ask(user("1"), reply=reply)
    transcript.ask(user("1"), said("Yes."), user("2"), reply=said("b"))
    assert transcript.told == ["S", "1", "Yes.\n", "2", "b"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=3)), max_size=30))
def test_however_threads_take_turns_everything_is_told_once(turns: list[tuple[str, str]]) -> None:
    transcript = Transcript()
    threads = {name: [user(f"start {name}")] for name in "ab"}
    for number, (name, text) in enumerate(turns):
        history = threads[name]
        reply = said(f"{number}")
        transcript.ask(*history, reply=reply)
        history += [reply, user(f"{text}.")]
    told = transcript.journal.messages[1:]
    expected = []
    for name in dict.fromkeys(name for name, _ in turns):
        expected += threads[name][:-1]  # what was said last was not sent yet
    assert sorted(m.content for m in told) == sorted(m.content for m in expected)
    for name in "ab":
        asked = [m for m in threads[name][:-1] if m.role == "assistant"]
        assert [m for m in told if m in asked] == asked


# --- answers found again


def completion_of(*calls: ToolCall, text: str = "") -> Completion:
    return Completion(text=text, tool_calls=calls)


def call(key: str, arguments: str = "{}", name: str = "run") -> ToolCall:
    return ToolCall(id=key, name=name, arguments=arguments)


def test_every_call_of_a_trial_gets_an_id_of_its_own() -> None:
    replies = Replies(most_kept=1_000_000)
    ids = [
        made.id
        for _ in range(3)
        for made in replies.given(completion_of(call("c"), call("c"), call("")))[0].tool_calls
    ]
    assert len(set(ids)) == len(ids) == 9
    assert ids[0] == "c"
    assert all(ids)


def test_a_call_that_a_program_changed_is_sent_as_it_stands_now() -> None:
    replies = Replies(most_kept=1_000_000)
    replies.given(completion_of(call("a", '{"x": 1}'), text="Well"))
    changed = Message(role="assistant", content="Well", tool_calls=(call("a", '{"x":2}'),))
    assert replies.recalled(changed) == changed
    renamed = Message(role="assistant", content="Well", tool_calls=(call("a", name="rm"),))
    assert replies.recalled(renamed) == renamed


def test_a_call_that_means_the_same_is_recalled_word_for_word() -> None:
    replies = Replies(most_kept=1_000_000)
    _, reply = replies.given(completion_of(call("a", '{"x":1,"y":"\\u00fc"}'), text="Well "))
    anew = Message(role="assistant", content="Well", tool_calls=(call("a", '{"y": "ü", "x": 1}'),))
    assert replies.recalled(anew) == reply
    other_words = Message(role="assistant", content="Oh", tool_calls=anew.tool_calls)
    assert replies.recalled(other_words).tool_calls == reply.tool_calls
    assert replies.recalled(other_words).content == "Oh"


def test_part_of_an_answer_is_not_the_answer() -> None:
    replies = Replies(most_kept=1_000_000)
    replies.given(completion_of(call("a"), call("b")))
    half = Message(role="assistant", content="", tool_calls=(call("b"),))
    assert replies.recalled(half) == half
