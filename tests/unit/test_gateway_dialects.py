"""How each dialect's questions are understood, down to what programs really send."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.core.outcome import Completion
from bakeoff.core.task import Message, ToolCall
from bakeoff.gateway.dialects import chat, gemini, messages, responses
from bakeoff.gateway.dialects import responses as responses_input
from bakeoff.gateway.dialects.dialect import ModelRequest, NotUnderstoodError
from support.askers import Chat, Gemini, Messages, Requester, Responses, Turn, result, system, user


def chat_of(**body: Any) -> ModelRequest:
    return chat.read(json.dumps({"messages": [{"role": "user", "content": "x"}], **body}).encode())


def messages_of(**body: Any) -> ModelRequest:
    given = {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}], **body}
    return messages.read(json.dumps(given).encode())


def responses_of(**body: Any) -> ModelRequest:
    return responses_input.read(json.dumps({"input": "x", **body}).encode())


def gemini_of(**body: Any) -> ModelRequest:
    contents = [{"role": "user", "parts": [{"text": "x"}]}]
    return gemini.read(json.dumps({"contents": contents, **body}).encode())


FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}
TWO = [{"type": "function", "function": FUNCTION | {"name": name}} for name in ("f", "g")]


# --- parameters


def test_parameters_that_every_adapter_knows_are_carried_on_under_one_name() -> None:
    expected = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "stop": ["end"],
        "reasoning_effort": "low",
    }
    assert expected == chat_of(**expected).parameters
    assert (
        expected
        == messages_of(
            temperature=0.5,
            top_p=0.9,
            max_tokens=7,
            stop_sequences=["end"],
            output_config={"effort": "low"},
        ).parameters
    )
    config = {"temperature": 0.5, "topP": 0.9, "maxOutputTokens": 7, "stopSequences": ["end"]}
    config["thinkingConfig"] = {"thinkingLevel": "LOW"}
    assert expected == gemini_of(generationConfig=config).parameters
    del expected["stop"]  # the Responses API has none
    assert (
        expected
        == responses_of(
            temperature=0.5, top_p=0.9, max_output_tokens=7, reasoning={"effort": "low"}
        ).parameters
    )


def test_what_only_one_provider_knows_is_left_out_and_noted() -> None:
    assert messages_of(top_k=5, thinking={"type": "adaptive"}).notes == (
        "the parameter 'top_k'",
        "the parameter 'thinking'",
    )
    assert messages_of(thinking={"type": "disabled"}).notes == ()
    config = {"topK": 64, "thinkingConfig": {"thinkingBudget": -1}}
    assert gemini_of(generationConfig=config).notes == (
        "the parameter 'topK'",
        "the parameter 'thinkingBudget'",
    )
    assert chat_of(presence_penalty=1).notes == ("the parameter 'presence_penalty'",)
    assert chat_of(response_format={"type": "json_object"}).notes == (
        "response_format 'json_object'",
    )


def test_a_schema_of_the_answer_is_carried_on_in_every_dialect() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    wish = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert chat_of(response_format=wish).schema == schema
    form = {"type": "json_schema", "name": "n", "schema": schema}
    assert responses_of(text={"format": form, "verbosity": "low"}).schema == schema
    assert messages_of(output_config={"format": form}).schema == schema
    assert gemini_of(generationConfig={"responseJsonSchema": schema}).schema == schema
    own = {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}
    assert gemini_of(generationConfig={"responseSchema": own}).schema == schema


# --- tools


@pytest.mark.parametrize(
    ("choice", "names", "parameter"),
    [
        (None, ["f", "g"], None),
        ("auto", ["f", "g"], None),
        ("none", ["f", "g"], "none"),
        ("required", ["f", "g"], "required"),
        ({"type": "function", "function": {"name": "g"}}, ["g"], "required"),
    ],
)
def test_a_tool_may_be_left_to_choice_forbidden_or_forced(
    choice: Any, names: list[str], parameter: str | None
) -> None:
    asked = chat_of(tools=TWO, tool_choice=choice)
    assert [tool.name for tool in asked.tools] == names
    assert asked.parameters.get("tool_choice") == parameter


def test_a_choice_of_tools_without_tools_is_not_carried_on() -> None:
    assert chat_of(tool_choice="none").parameters == {}


def test_a_tool_that_is_forced_but_not_offered_is_refused() -> None:
    with pytest.raises(NotUnderstoodError, match="names 'h', which is not in `tools`"):
        messages_of(
            tools=[{"name": "f", "input_schema": {}}], tool_choice={"type": "tool", "name": "h"}
        )


def test_googles_own_schemas_become_json_schemas() -> None:
    own = {"type": "OBJECT", "properties": {"type": {"type": "STRING"}}, "required": ["type"]}
    (tool,) = gemini_of(
        tools=[{"functionDeclarations": [{"name": "f", "parameters": own}]}, {"googleSearch": {}}]
    ).tools
    properties = {"type": {"type": "string"}}
    expected = {"type": "object", "properties": properties, "required": ["type"]}
    assert tool.parameters == expected


def test_a_tool_of_free_text_is_offered_as_one_argument_and_called_as_text() -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": "start: patch"}
    asked = responses_of(tools=[{"type": "custom", "name": "apply_patch", "format": form}])
    (tool,) = asked.tools
    assert tool.parameters["required"] == ["input"]
    assert "start: patch" in str(tool.parameters)
    arguments = json.dumps({"input": "*** Begin Patch"})
    call = ToolCall(id="c", name="apply_patch", arguments=arguments)
    answer = responses.ResponsesAnswer(asked, 1)
    whole: Any = answer.whole(Completion(text="", tool_calls=(call,)))
    (item,) = whole["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", "*** Begin Patch")
    events = answer.events(Completion(text="", tool_calls=(call,))).decode()
    assert "event: response.custom_tool_call_input.done" in events
    again = responses_of(
        input=[
            {"role": "user", "content": "x"},
            item,
            {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        ]
    )
    assert again.messages[1].tool_calls == (call,)
    assert again.messages[2] == Message(role="tool", content="ok", tool_call_id="c")


# --- conversations


def test_what_one_answer_held_in_several_items_is_one_message() -> None:
    items = [
        {"type": "message", "role": "developer", "content": "Be careful"},
        {"role": "user", "content": [{"type": "input_text", "text": "Go"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "id": "rs"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": ""},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "2"}],
        },
        {"type": "local_shell_call", "call_id": "s", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "s", "output": "3"},
        {"type": "web_search_call", "id": "w"},
        {"type": "message", "role": "assistant", "content": "Done"},
    ]
    asked = responses_of(input=items, instructions="You are an agent")
    assert asked.system == ("You are an agent", "Be careful")
    first, said, *results, shell, shown, done = asked.messages
    assert (first.content, said.content, said.reasoning) == ("Go", "I", "Hm")
    assert [(c.id, c.arguments) for c in said.tool_calls] == [("a", "{}"), ("b", "{}")]
    assert [(m.tool_call_id, m.content) for m in results] == [("a", "1"), ("b", "2")]
    assert shell.tool_calls[0].name == "local_shell"
    assert (shown.tool_call_id, done.content) == ("s", "Done")
    assert asked.notes == ("an item of the type 'web_search_call'",)


def test_a_conversation_that_only_the_service_would_know_is_refused() -> None:
    with pytest.raises(NotUnderstoodError, match="send the whole of it as `input`"):
        responses_of(previous_response_id="resp_1")
    with pytest.raises(NotUnderstoodError, match="item_reference"):
        responses_of(input=[{"type": "item_reference", "id": "x"}])


def test_results_of_tools_stand_before_what_the_user_says_with_them() -> None:
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"type": "tool_result", "tool_use_id": "b", "is_error": True, "content": "2"},
        {"type": "text", "text": "Hurry", "cache_control": {"type": "ephemeral"}},
    ]
    asked = messages_of(messages=[{"role": "user", "content": blocks}])
    assert [(m.role, m.tool_call_id, m.content) for m in asked.messages] == [
        ("tool", "a", "1"),
        ("tool", "b", "2"),
        ("user", None, "Hurry"),
    ]


def test_thinking_comes_back_as_reasoning_and_what_is_hidden_is_dropped() -> None:
    blocks = [
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "So"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"ü": 1}},
    ]
    (said,) = messages_of(messages=[{"role": "assistant", "content": blocks}]).messages
    call = ToolCall(id="a", name="f", arguments='{"ü": 1}')
    assert said == Message(role="assistant", content="So", reasoning="Hm", tool_calls=(call,))


def test_a_picture_in_the_result_of_a_tool_is_refused_too() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "x", "data": "x"}}
    block = {"type": "tool_result", "tool_use_id": "a", "content": [picture]}
    with pytest.raises(NotUnderstoodError, match="the result of a tool holds 'image'"):
        messages_of(messages=[{"role": "user", "content": [block]}])


def test_system_prompts_before_the_first_answer_are_one_and_later_ones_stay() -> None:
    said = [
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": "These are your tools"},
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": "Now be quick"},
    ]
    asked = messages_of(system=[{"type": "text", "text": "You are C."}], messages=said)
    assert asked.system == ("You are C.", "These are your tools")
    assert [m.role for m in asked.messages] == ["user", "assistant", "system"]
    request = asked.request(asked.messages, rollout=3)
    assert request.messages[0].content == "You are C.\n\nThese are your tools"
    assert request.rollout == 3


def test_googles_calls_without_ids_meet_their_results_in_order() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "x"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm", "thought": True},
                {"functionCall": {"name": "f", "args": {"n": 1}}},
                {"functionCall": {"name": "f", "args": {"n": 2}}},
                {"functionCall": {"name": "g"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "g", "response": {"result": "from g"}}},
                {"functionResponse": {"name": "f", "response": {"output": "one"}}},
                {"functionResponse": {"name": "f", "response": {"a": 1, "b": 2}}},
            ],
        },
    ]
    _, said, *results = gemini_of(contents=contents).messages
    assert said.reasoning == "Hm"
    by_id = {m.tool_call_id: m.content for m in results}
    assert [by_id[call.id] for call in said.tool_calls] == ["one", '{"a": 1, "b": 2}', "from g"]


def test_a_result_that_follows_no_call_is_refused() -> None:
    parts = [{"functionResponse": {"name": "f", "response": {}}}]
    with pytest.raises(NotUnderstoodError, match="'f' follows no such call"):
        gemini_of(contents=[{"role": "user", "parts": parts}])


def test_roles_and_parts_of_older_and_newer_chat_programs_are_understood() -> None:
    said = [
        {"role": "developer", "content": [{"type": "text", "text": "A"}]},
        {"role": "user", "content": [{"type": "text", "text": "B"}, {"type": "text", "text": "C"}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm", "tool_calls": []},
        {"role": "tool", "tool_call_id": "a", "content": None},
    ]
    asked = chat_of(messages=said)
    assert asked.system == ("A",)
    assert [m.content for m in asked.messages] == ["B\nC", "", ""]
    assert asked.messages[1].reasoning == "Hm"


# --- anything at all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
ASKERS_WITH_READERS = [
    (Chat(), chat.read),
    (Responses(), responses_input.read),
    (Messages(), messages.read),
    (Gemini(), gemini.read),
]
CALL = ("a", "f", {"x": 1})
TURNS = [
    system("S"),
    user("U"),
    Turn(role="assistant", text="A", calls=[CALL]),
    result(CALL, "R"),
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in *value* that something else can be put at."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    inner = [value[key] for key in keys if isinstance(value[key], dict | list)]
    return found + [place for each in inner for place in places(each)]


@settings(max_examples=300)
@given(st.sampled_from(ASKERS_WITH_READERS), st.data())
def test_a_question_with_anything_anywhere_is_understood_or_refused(
    pair: tuple[Requester, Any], data: st.DataObject
) -> None:
    asker, read = pair
    body = asker.body([*TURNS], stream=True, tools=("f", "g"))
    body |= {
        "tool_choice": {"type": "tool", "name": "f", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
        "text": {"format": {"type": "json_schema", "schema": {}}},
        "thinking": {"type": "enabled"},
        "generationConfig": {"responseSchema": {"type": "OBJECT"}, "topK": 1},
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    }
    body = json.loads(json.dumps(body))  # its schemas are shared
    found = places(body)
    container, key = found[data.draw(st.integers(0, len(found) - 1))]
    container[key] = data.draw(JSON)
    try:
        asked = read(json.dumps(body).encode())
    except NotUnderstoodError:
        return
    assert asked.estimated_tokens() > 0
    assert isinstance(hash(asked.messages), int)
