"""A dialogue in one file, TOML or JSON: its keys. Only `objective` is required."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bakeoff.config.entries import ScorerEntry
from bakeoff.config.run_file import Count, ModelTable, Positive
from bakeoff.core.values import Json

Text = Annotated[str, Meta(min_length=1)]


class EvaluationTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The metric of a prediction: a folder with the code, a folder with the truth, a baseline."""

    metrics: Text
    truth: Text
    prediction: Text = "submission.csv"
    baseline: float | None = None
    best: float | None = None
    higher_is_better: bool = True


class DialogueFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One case: what somebody wants and knows, how it begins, and how the result is checked.

    With `shards` the instructor tells these bit by bit. `datasets` can be read in the box, `files`
    changed there; `tests` are hidden until the work is graded.
    """

    objective: Text
    id: Text | None = None
    name: str | None = None
    category: str | None = None
    knowledge: str = ""
    reference: str = ""
    supervision: str = ""
    shards: list[Text] = []
    opening: Text | None = None
    max_turns: Count = 20
    answer: Literal["last", "all"] = "last"
    instructor_prompt: Text | None = None
    supervisor_prompt: Text | None = None
    system: Text | None = None
    parameters: dict[str, Json] = {}
    expected: Json = None
    scorers: list[ScorerEntry] | None = None
    pass_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    time_s: Positive | None = None
    metadata: dict[str, Json] = {}
    datasets: Text | None = None
    files: Text | None = None
    tests: Text | None = None
    evaluation: EvaluationTable | None = None
    run_code: bool = False
    roles: dict[str, str | ModelTable] = {}


def is_dialogue(data: object) -> bool:
    """Whether what a file holds is a dialogue and not a suite or a run."""
    return isinstance(data, Mapping) and "objective" in data
