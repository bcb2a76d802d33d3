"""The JSON Schemas of the files that people write, for their editors."""

from collections.abc import Mapping

import msgspec

from bakeoff.core.values import Json
from bakeoff.formats.dialogue import DialogueFile
from bakeoff.formats.native_task import TaskFile
from bakeoff.formats.run_file import RunFile
from bakeoff.formats.suite import SuiteFile

KINDS: Mapping[str, tuple[str, type[msgspec.Struct]]] = {
    "run": ("Bakeoff run", RunFile),
    "suite": ("Bakeoff suite", SuiteFile),
    "task": ("Bakeoff task (task.toml)", TaskFile),
    "dialogue": ("Bakeoff dialogue", DialogueFile),
}


def json_schema(kind: str) -> dict[str, Json]:
    """Return the JSON Schema of one of the KINDS."""
    title, struct = KINDS[kind]
    schema: dict[str, Json] = msgspec.json.schema(struct)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
