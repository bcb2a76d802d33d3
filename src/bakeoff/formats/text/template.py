"""Templates of prompts: `{{name}}` and a safe part of Jinja2, compiled once and rendered for each task.

A template may come from somebody else, as a suite may. So it computes with the values that it is
given and with nothing else: it reads no file, calls no method, and cannot grow without bound.
One that only names variables, as most do, is filled in without Jinja2, which takes time to import.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache, wraps
from typing import TYPE_CHECKING, Any

from bakeoff._lib.phrasing import did_you_mean
from bakeoff._lib.value_object import value_object
from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

_MARKS = ("{{", "{%", "{#")
_PLAIN = re.compile(r"\{\{[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*\}\}")
_JINJA_WORDS = {
    "true", "false", "none", "True", "False", "None", "and", "or", "not", "in", "is", "if", "else",
    "recursive", "self", "super", "loop",
}  # fmt: skip
_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "groupby", "int",
    "items", "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr",
    "replace", "reverse", "round", "select", "selectattr", "sort", "string", "sum", "title",
    "tojson", "trim", "truncate", "unique", "upper", "wordcount",
)  # fmt: skip
_STATEMENTS = frozenset({"Template", "Output", "TemplateData", "If", "For"})
_DEEPEST_LOOP = 2
_GROWING_FILTERS = ("join", "replace")  # a chain of them multiplies the length
_LONGEST = 16 * 2**20  # characters that such a filter may make
_ALLOWED = "a template of a prompt may use variables, filters, `if` and `for`"
_GUARDS = frozenset({"d", "default"})
_GUARD_TESTS = frozenset({"defined", "undefined"})


@value_object
class Variable:
    """A variable of a template, and the line on which it is used first.

    One that is not `required` is guarded by `is defined` or `default`: some rows may lack it.
    """

    name: str
    line: int
    required: bool = True


def is_template(text: str) -> bool:
    """Whether there is anything to fill in or to leave out in *text*."""
    return any(mark in text for mark in _MARKS)


class Template:
    """A compiled template; *source* is the file that holds it, for errors, and None where none does."""

    def __init__(self, text: str, *, source: str | None = None) -> None:
        self._source = source
        self._text = text
        self._jinja: Any = None  # the jinja2.Template, where one is needed
        self._parts = _plain_parts(text)
        self.variables: Mapping[str, Variable] = {}
        if self._parts is None:
            self._compile()
        else:
            self.variables = _plain_variables(self._parts)

    def wrong(self, line: int | None, why: str) -> UsageError:
        """Return the error that something is wrong on *line* of the template."""
        if self._source is not None:
            return UsageError(f"{self._source}:{line}: {why}" if line else f"{self._source}: {why}")
        several = "\n" in self._text.strip()
        return UsageError(f"line {line} of the prompt: {why}" if line and several else why)

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the text with *values* filled in, each literally; UsageError where one is missing."""
        self.check(values)
        if self._parts is not None:
            return "".join(
                str(as_text(values[part])) if number % 2 else part
                for number, part in enumerate(self._parts)
            )
        try:
            rendered: str = self._jinja.render(values)
        except UsageError:
            raise
        except Exception as error:  # filters raise whatever the functions behind them raise
            raise self.wrong(_line_of(error), _reason(error)) from error
        return rendered

    def check(self, values: Mapping[str, Json]) -> None:
        """Raise where *values* lack a variable that the template needs."""
        for variable in self.variables.values():
            if variable.required and variable.name not in values:
                raise self.unknown(variable, values)

    def unknown(self, variable: Variable, values: Mapping[str, Json]) -> UsageError:
        """Return the error that *variable* is not among *values*."""
        hint = did_you_mean(variable.name, values)
        return self.wrong(variable.line, f"no value for {{{{{variable.name}}}}}; {hint}")

    def _compile(self) -> None:
        from jinja2 import TemplateSyntaxError

        environment = _environment()
        try:
            tree = environment.parse(self._text)
            self._refuse_unsafe(tree)
            self.variables = _variables(tree)
            self._jinja = environment.from_string(self._text)
        except TemplateSyntaxError as error:
            raise self.wrong(error.lineno, _syntax_reason(error.message or "")) from error

    def _refuse_unsafe(self, node: "nodes.Node", loops: int = 0) -> None:
        from jinja2 import nodes

        kind = type(node).__name__
        if isinstance(node, nodes.Stmt) and kind not in _STATEMENTS:
            raise self.wrong(node.lineno, f"`{kind.lower()}` is not supported: {_ALLOWED}")
        if isinstance(node, nodes.Call):
            raise self.wrong(
                node.lineno,
                "a template calls no functions or methods; use a filter, such as {{ name | upper }}",
            )
        if isinstance(node, nodes.Name) and node.name == "self":
            raise self.wrong(node.lineno, "`self` is Jinja's own word; rename that variable")
        loops += isinstance(node, nodes.For)
        if loops > _DEEPEST_LOOP:
            why = f"`for` is nested deeper than {_DEEPEST_LOOP} levels"
            raise self.wrong(node.lineno, why)
        for child in node.iter_child_nodes():
            self._refuse_unsafe(child, loops)


@lru_cache(maxsize=4096)
def compiled(text: str, source: str | None = None) -> Template:
    """Return the template of *text*, compiled once."""
    return Template(text, source=source)


def _plain_parts(text: str) -> list[str] | None:
    """Return text and names of variables in turn; None where *text* has more than names in braces."""
    parts = _PLAIN.split(text)
    texts, names = parts[::2], parts[1::2]
    if any(is_template(part) for part in texts) or not _JINJA_WORDS.isdisjoint(names):
        return None
    if any(part.endswith("{") for part in texts[:-1]):  # three braces are another thing to Jinja
        return None
    return parts


def _plain_variables(parts: list[str]) -> dict[str, Variable]:
    variables: dict[str, Variable] = {}
    line = 1
    for text, name in zip(parts[::2], parts[1::2], strict=False):
        line += text.count("\n")
        variables.setdefault(name, Variable(name=name, line=line))
    return variables


def _variables(tree: "nodes.Template") -> dict[str, Variable]:
    """Return the variables that *tree* reads and does not set itself, in the order of their lines."""
    from jinja2 import meta, nodes

    free = meta.find_undeclared_variables(tree)
    guarded = {name.name for name in _guarded(tree)}
    found: dict[str, Variable] = {}
    for node in sorted(tree.find_all(nodes.Name), key=lambda name: name.lineno):
        if node.name in free and node.name not in found:
            found[node.name] = Variable(
                name=node.name, line=node.lineno, required=node.name not in guarded
            )
    return found


def _guarded(tree: "nodes.Template") -> "Iterator[nodes.Name]":
    from jinja2 import nodes

    for test in tree.find_all(nodes.Test):
        if test.name in _GUARD_TESTS and isinstance(test.node, nodes.Name):
            yield test.node
    for used in tree.find_all(nodes.Filter):
        if used.name in _GUARDS and isinstance(used.node, nodes.Name):
            yield used.node


@cache
def _environment() -> "Environment":
    from jinja2 import StrictUndefined
    from jinja2.exceptions import SecurityError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class PromptEnvironment(ImmutableSandboxedEnvironment):
        """Values are data: a dot reads a key, and text is not multiplied or formatted."""

        intercepted_binops = frozenset({"*", "**", "%"})

        def getattr(self, obj: Any, attribute: str) -> Any:
            if obj is None or isinstance(obj, str | int | float | list | tuple | Mapping):
                return self.getitem(obj, attribute)
            return super().getattr(obj, attribute)  # `loop.index`, and a missing variable

        def getitem(self, obj: Any, argument: Any) -> Any:
            try:
                return obj[argument]
            except (LookupError, TypeError):
                return self.undefined(obj=obj, name=argument)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "**":
                raise SecurityError("`**` is not supported")
            if not (isinstance(left, int | float) and isinstance(right, int | float)):
                raise SecurityError(f"`{operator}` is for two numbers")
            return super().call_binop(context, operator, left, right)

    environment = PromptEnvironment(
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        finalize=as_text,
    )
    environment.globals.clear()
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    environment.filters["tojson"] = _as_json
    for name in _GROWING_FILTERS:
        environment.filters[name] = _bounded(name, environment.filters[name])
    return environment


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def bounded(*args: Any, **settings: Any) -> Any:
        made = function(*args, **settings)
        if len(made) > _LONGEST:
            raise ValueError(f"`{name}` made a text of {len(made):,} characters")
        return made

    return bounded


def as_text(value: Any) -> Any:
    """Return *value* as it stands in a prompt: text as it is, null as nothing, the rest as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool | Mapping | list | tuple):
        return _as_json(value)
    return value  # a number; or a missing variable, which raises


def _as_json(value: Json, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=str)


def _syntax_reason(message: str) -> str:
    if unknown := re.fullmatch(r"No filter named '(\w+)'\.", message):
        return f"no filter {unknown[1]!r}; {did_you_mean(unknown[1], _FILTERS)}"
    literally = "write literal braces between {% raw %} and {% endraw %}"
    return f"{message.rstrip('.')}; {literally}"


def _reason(error: Exception) -> str:
    from jinja2 import UndefinedError

    if isinstance(error, UndefinedError):
        return f"{error}; the rows have no such value"
    return f"{type(error).__name__}: {error}"


def _line_of(error: Exception) -> int | None:
    """Return the line of the template that raised *error*: Jinja maps its frames to them."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
