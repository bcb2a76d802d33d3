"""Tools that a test offers in OpenAI's form: every adapter offers them in the form of its API."""

import asyncio
from typing import Any

import pytest

from bakeoff.core.outcome import Completion, Request
from bakeoff.core.ports import close_model
from bakeoff.core.task import Message
from support.endpoints import CALL, ENDPOINTS, Endpoint
from support.loopback import Loopback

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}


def _offered(name: str, body: Any) -> tuple[str, Any]:
    """Return the name and the schema of the one tool that was offered, as the API has them."""
    (tool,) = body["tools"]
    if name == "gemini":
        (tool,) = tool["functionDeclarations"]
        return tool["name"], tool["parametersJsonSchema"]
    if name == "anthropic":
        return tool["name"], tool["input_schema"]
    if name == "openai-responses":
        return tool["name"], tool["parameters"]
    return tool["function"]["name"], tool["function"]["parameters"]


def _ask(endpoint: Endpoint, server: Loopback, tools: list[Any]) -> Completion:
    async def main() -> Completion:
        model = endpoint.model(server)
        messages = (Message(role="user", content="How is it in Köln?"),)
        try:
            return await model.complete(Request(messages=messages, parameters={"tools": tools}))
        finally:
            await close_model(model)

    return asyncio.run(main())


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.name)
def test_a_tool_in_openais_form_is_offered_and_its_call_comes_back(endpoint: Endpoint) -> None:
    with Loopback(endpoint.answer) as server:
        completion = _ask(endpoint, server, [TOOL])
        body = server.requests[0].body
    assert _offered(endpoint.name, body) == ("weather", SCHEMA)
    assert [call.name for call in completion.tool_calls] == [CALL[1]]
    if endpoint.name == "openai-compatible":
        assert body["tools"] == [TOOL]  # as it was written, with what only this API knows


def test_tools_in_the_apis_own_form_are_sent_as_they_are() -> None:
    own = {"type": "web_search_20250305", "name": "web_search"}
    endpoint = next(e for e in ENDPOINTS if e.name == "anthropic")
    with Loopback(endpoint.answer) as server:
        _ask(endpoint, server, [own])
        assert server.requests[0].body["tools"] == [own]
