"""Templates of prompts: values are inserted literally, and a template can do nothing else."""

import sys
from subprocess import run

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.core.values import Json
from bakeoff.formats.text.template import Template, _environment

NAMES = st.sampled_from(["a", "b", "question"])
TEXTS = st.text(alphabet="ab {}%#<\n", max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


def rendered(text: str, **values: Json) -> str:
    return Template(text, source="p.txt").render(values)


@given(
    parts=st.lists(TEXTS | NAMES.map(lambda name: f"{{{{ {name} }}}}"), max_size=6),
    values=st.fixed_dictionaries({"a": VALUES, "b": VALUES, "question": VALUES}),
)
def test_plain_names_are_filled_in_as_jinja_does_it(
    parts: list[str], values: dict[str, Json]
) -> None:
    text = "".join(parts)
    try:
        template = Template(text)
    except UsageError:
        return
    assert template.render(values) == _environment().from_string(text).render(values)


@given(value=st.text())
def test_a_value_is_inserted_literally_and_never_expanded(value: str) -> None:
    assert rendered("<{{x}}>", x=value) == f"<{value}>"
    assert rendered("<{% if true %}{{x}}{% endif %}>", x=value) == f"<{value}>"


def test_data_is_written_as_json_and_null_as_nothing() -> None:
    for text in ("{{x}}", "{{ x | default('') }}"):
        assert rendered(text, x={"é": [1, None]}) == '{"é": [1, null]}'
        assert rendered(text, x=True) == "true"
        assert rendered(text, x=1.0) == "1.0"
        assert rendered(text, x=None) == ""


def test_a_dot_reads_a_key_and_no_method() -> None:
    assert rendered("{{ row.items }} {{ row['n'] }}", row={"items": 3, "n": 4}) == "3 4"
    with pytest.raises(UsageError, match=r"p\.txt:2: 'dict object' has no attribute 'keys'"):
        rendered("\n{{ row.keys }}", row={})


def test_variables_have_their_lines_and_those_that_may_be_missing_are_known() -> None:
    template = Template("a\n{{ q }}{% for x in xs %}{{ x }}{% endfor %}\n{{ hint | default('-') }}")
    found = [(v.name, v.line, v.required) for v in template.variables.values()]
    assert found == [("q", 2, True), ("xs", 2, True), ("hint", 3, False)]
    assert template.render({"q": "?", "xs": [1, 2]}) == "a\n?12\n-"
    plain = Template("{{a}}\n\n{{b}} {{a}}")
    assert [(v.name, v.line) for v in plain.variables.values()] == [("a", 1), ("b", 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Q:\n{{qestion}}", r"p\.txt:2: no value for {{qestion}}; did you mean 'question'\?"),
        ("{% if true %}\n{{qestion}}{% endif %}", r"p\.txt:2: no value for {{qestion}}; did"),
        ("{{ question | uper }}", r"p\.txt:1: no filter 'uper'; did you mean 'upper'\?"),
        (
            "a\n{{ question",
            r"p\.txt:2: unexpected end of template, .*; write literal braces between",
        ),
        ("{{ question | first | int // 0 }}", r"p\.txt:1: ZeroDivisionError"),
    ],
)
def test_mistakes_have_file_and_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rendered(text, question="what?")


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ question.format(1) }}",
        "{{ question | attr('__class__') }}",
        "{{ 'a' * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 10 ** 10000000 }}",
        "{{ question" + " | replace('a', 'aaaaaaaaaa')" * 12 + " }}",
        "{% include 'secrets' %}",
        "{% import 'os' as os %}",
        "{% set x = question ~ question %}",
        "{% macro m() %}{% endmacro %}",
        "{% for a in q %}{% for b in q %}{% for c in q %}{% endfor %}{% endfor %}{% endfor %}",
        "{{ range(10) }}",
        "{{ lipsum }}",
        "{{ self }}",
    ],
)
def test_a_template_reaches_nothing_but_its_values_and_stays_small(text: str) -> None:
    with pytest.raises(UsageError):
        rendered(text, question="a", q="aaaa")


def test_braces_that_are_meant_literally_can_say_so() -> None:
    assert rendered("{% raw %}{{x}}{% endraw %}") == "{{x}}"


def test_a_template_of_plain_names_imports_no_jinja() -> None:
    code = (
        "import sys; from bakeoff.formats.text.template import Template as T; "
        "assert T('{{a}}').render({'a': 1}) == '1' and 'jinja2' not in sys.modules; "
        "assert T('{{a|upper}}').render({'a': 'x'}) == 'X' and 'jinja2' in sys.modules"
    )
    run([sys.executable, "-c", code], check=True)
