"""What the columns of a data set mean: as a person maps them, else by their usual names."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field

from bakeoff._lib.phrasing import did_you_mean, near
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError

ROLES = ("id", "prompt", "expected", "category", "group", "tags", "file")
PROMPTFOO_EXPECTED = "__expected"
OUR_SCORERS: Mapping[str, str] = {  # what promptfoo calls a check, and the scorer that does the same
    "contains": "includes", "icontains": "includes", "contains-any": "contains-any",
    "icontains-any": "contains-any", "contains-all": "contains-all", "icontains-all": "contains-all",
    "starts-with": "starts-with", "equals": "exact", "regex": "pattern", "is-json": "valid-json",
    "contains-json": "json", "is-sql": "valid-sql", "is-refusal": "refusal",
    "levenshtein": "edit-similarity", "latency": "latency", "cost": "cost",
    "llm-rubric": "judge", "model-graded-closedqa": "judge", "model-graded-fact": "judge",
    "factuality": "judge", "g-eval": "judge", "grade": "judge",
    "is-valid-openai-tools-call": "calls", "tool-call-f1": "calls",
}  # fmt: skip
_USUAL: Mapping[str, Sequence[str]] = {  # the first that is there is taken
    "id": ("id", "_id", "task_id", "test_id", "question_id", "sample_id", "uid", "uuid", "qid"),
    "prompt": (
        "prompt", "question", "instruction", "query", "problem", "input", "user_input", "goal",
        "question_stem", "sentence", "text",
    ),
    "expected": (
        "expected", PROMPTFOO_EXPECTED, "answer", "target", "label", "expected_answer",
        "expected_output", "correct_answer", "best_answer", "reference", "reference_answer",
        "ground_truth", "gold", "ideal", "output", "answers", "solution", "canonical_solution",
    ),
    "category": ("category", "subject", "topic", "domain", "subset", "task_type", "type"),
    "group": ("group", "group_id", "cluster", "cluster_id", "passage_id", "document_id", "doc_id"),
    "tags": ("tags", "tag"),
    "file": ("image", "image_path", "image_file", "picture", "photo"),
}  # fmt: skip


_OTHER_SEPARATORS: Mapping[str, str] = {
    ",": "let its name end in .csv",
    ";": "let its name end in .csv",
    "\t": "let its name end in .tsv",
    ":": "write sep=: above its first line",
    "~": "write sep=~ above its first line",
}
_OTHER_SEPARATOR = re.compile(r"(?<=\w)[,;\t:~](?=\w)")


@value_object
class ColumnMap:
    """The column of each role, an empty name for none, and variables that are named otherwise.

    `prompt` may be a template over the columns instead of the name of one.
    """

    roles: Mapping[str, str]
    variables: Mapping[str, str]

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ColumnMap":
        """Return the map that a person wrote: roles by their names, anything else is a variable."""
        return cls(
            roles={name: column for name, column in given.items() if name in ROLES},
            variables={name: column for name, column in given.items() if name not in ROLES},
        )


@value_object
class DataOptions:
    """What the caller says of a data set: columns by role, and what prompts need of each row.

    With `variables`, tasks carry their columns; without `own_prompt`, no column is what is asked.
    `scored` is whether the caller names the scorers.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    variables: bool = False
    own_prompt: bool = True
    scored: bool = False

    @classmethod
    def for_prompts(cls, texts: Sequence[bool], columns: Mapping[str, str]) -> "DataOptions":
        """Return the options for prompts of which each does or does not have a text of its own."""
        return cls(columns=columns, variables=bool(texts), own_prompt=not texts or not all(texts))


@value_object
class Columns:
    """Which column each role is read from, None where there is none; `guessed` lists those roles."""

    roles: Mapping[str, str | None]
    variables: Mapping[str, str]
    guessed: tuple[str, ...] = ()

    def column(self, role: str) -> str | None:
        """Return the column of *role*."""
        return self.roles.get(role)

    def named(self) -> Mapping[str, str]:
        """Return the role of each column that has one."""
        return {column: role for role, column in self.roles.items() if column is not None}

    def without_guess(self, role: str) -> "Columns":
        """Return the columns with none for *role*, where that was a guess."""
        if role not in self.guessed:
            return self
        return Columns(
            roles={**self.roles, role: None},
            variables=self.variables,
            guessed=tuple(other for other in self.guessed if other != role),
        )

    def described(self) -> str | None:
        """Return what was guessed, as a person writes it; None where nothing was."""
        pairs = [f"{role} = {self.roles[role]}" for role in self.guessed]
        return ", ".join(pairs) or None


def resolve_columns(
    given: ColumnMap, names: Sequence[str], *, where: str, needs_prompt: bool
) -> Columns:
    """Return what each of the columns *names* means; a mapped one that is not there is an error.

    *where* is what the message begins with: the file, and the line of its header.
    """
    for role, column in (*given.roles.items(), *given.variables.items()):
        if column and column not in names and not (role == "prompt" and "{" in column):
            raise UsageError(
                f"{where}: no column {column!r} for `{role}`; {did_you_mean(column, names)}"
            )
    roles: dict[str, str | None] = {
        role: given.roles[role] or None for role in ROLES if role in given.roles
    }
    guessed = []
    for role, column in _usual(names, taken=set(roles.values())):
        if role not in roles and (needs_prompt or role != "prompt"):
            roles[role] = column
            guessed.append(role)
    if needs_prompt and roles.get("prompt") is None:
        raise UsageError(_which_prompt(where, names, given, set(roles.values())))
    order = {role: number for number, role in enumerate(ROLES)}
    guessed.sort(key=order.__getitem__)
    return Columns(roles=roles, variables=given.variables, guessed=tuple(guessed))


def _which_prompt(
    where: str, names: Sequence[str], given: ColumnMap, taken: Collection[str | None]
) -> str:
    """Ask which column is the prompt, in words that fit what is there."""
    if meant := near("prompt", given.variables):
        return f"{where}: `{meant}` is no role of a column; did you mean `prompt`?"
    if len(names) == 1 and (mark := _OTHER_SEPARATOR.search(names[0])):
        return (
            f"{where}: it has one column, {names[0]!r}; if {mark[0]!r} separates its cells, "
            f"{_OTHER_SEPARATORS[mark[0]]}"
        )
    free = [name for name in names if name.isidentifier() and name not in taken]
    if not any(name.isidentifier() for name in names):
        return (
            f"{where}: which column is the prompt? Its first line must name the columns, and it has: "
            f"{', '.join(names)}. If those are names, write --map prompt={shlex.quote(names[0])}"
        )
    example = (free or names)[0]
    return (
        f"{where}: which column is the prompt? There are: {', '.join(names)}. Name one with "
        "--map prompt=COLUMN, or write a template: --prompt 'Answer: {{" + example + "}}'"
    )


def _usual(names: Sequence[str], taken: set[str | None]) -> Iterator[tuple[str, str]]:
    """Yield the role and the column of every usual name; a column has one role."""
    known = {_folded(name): name for name in reversed(names) if name not in taken}
    for role, usual in _USUAL.items():
        for word in usual:
            if word in known:
                yield role, known.pop(word)
                break


def _folded(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")
