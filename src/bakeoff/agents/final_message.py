"""The last message of a program, found in what it printed."""

import json
from collections.abc import Mapping

from bakeoff.agents.programs import Final
from bakeoff.core.values import Json


def final_message(output: str, final: Final) -> str | None:
    """Return the text of the last line of *output* that is such an event; None if there is none."""
    for line in reversed(output.splitlines()):
        event = _event(line)
        if event is not None and all(_at(event, k) == v for k, v in final.event.items()):
            text = _at(event, final.text)
            if isinstance(text, str):
                return text
    return None


def _event(line: str) -> Mapping[str, Json] | None:
    if not line.startswith("{"):
        return None  # a warning, or the end of a line that was cut
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _at(event: Json, path: str) -> Json:
    for key in path.split("."):
        if not isinstance(event, Mapping):
            return None
        event = event.get(key)
    return event
