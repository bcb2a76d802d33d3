"""Parameters in the names that every adapter understands, on their way to a dialect's own."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bakeoff.core.outcome import Request, Tool
from bakeoff.core.values import Json

_LIMITS = ("max_tokens", "max_completion_tokens")
SEED_IGNORED = "seed_ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """How much to think, and whether to show it; None is for the model to decide."""

    effort: Json = None
    exclude: Json = None
    max_tokens: Json = None


def parameters_of(
    request: Request, own: Mapping[str, Json], *, omit: Collection[str] = ()
) -> dict[str, Json]:
    """Return the parameters of *request* under a candidate's *own*, which make it this one.

    One that is null, or that the model is to be asked without, is left out.
    """
    given = {**request.parameters, **own}
    return {name: value for name, value in given.items() if value is not None and name not in omit}


def take_limit(parameters: dict[str, Json]) -> Json:
    """Remove and return how many tokens an answer may have."""
    found = [parameters.pop(name) for name in _LIMITS if name in parameters]
    return found[0] if found else None


def take_stops(parameters: dict[str, Json]) -> Json:
    """Remove and return the texts to stop at, as a list."""
    stops = parameters.pop("stop", None)
    return [stops] if isinstance(stops, str) else stops


def take_thinking(parameters: dict[str, Json]) -> Thinking:
    """Remove and return the options of reasoning, wherever they stand."""
    given = parameters.pop("reasoning", None)
    options = dict(given) if isinstance(given, Mapping) else {}
    if "reasoning_effort" in parameters:
        options["effort"] = parameters.pop("reasoning_effort")
    options.update((k, parameters.pop(k)) for k in ("effort", "exclude") if k in parameters)
    return Thinking(
        effort=options.get("effort"),
        exclude=options.get("exclude"),
        max_tokens=options.get("max_tokens"),
    )


def take_tools(request: Request, parameters: dict[str, Json]) -> tuple[Tool, ...]:
    """Return the tools of *request*, and remove and return those given as OpenAI's chat API has them.

    Tools in any other form are the API's own, and stay where they are.
    """
    given = parameters.get("tools")
    functions = [_function(entry) for entry in given] if isinstance(given, list) else []
    if not functions or not all(functions):
        return request.tools
    parameters.pop("tools")
    return (*request.tools, *(_tool(function) for function in functions))


def _function(entry: Json) -> Mapping[str, Json]:
    function = entry.get("function") if isinstance(entry, Mapping) else None
    named = isinstance(function, Mapping) and isinstance(function.get("name"), str)
    return function if named and isinstance(function, Mapping) else {}


def _tool(function: Mapping[str, Json]) -> Tool:
    schema = function.get("parameters")
    return Tool(
        name=str(function["name"]),
        description=str(function.get("description") or ""),
        parameters=schema if isinstance(schema, Mapping) else {},
    )


def take_seed(parameters: dict[str, Json]) -> tuple[str, ...]:
    """Remove the seed for an API that has none, and return the flag that says so."""
    return (SEED_IGNORED,) if parameters.pop("seed", None) is not None else ()
