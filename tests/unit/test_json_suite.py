"""JSON suites: what is read, what is kept, and what is refused with the name of the test."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import RunSpec
from bakeoff.core.task import Message, ScorerSpec, Task
from bakeoff.formats.detect import json_schema
from bakeoff.formats.suite import Scoring, read_suite


def _write(tmp_path: Path, data: object, name: str = "suite.json") -> Path:
    path = tmp_path / name
    if isinstance(data, bytes):
        path.write_bytes(data)
    else:
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def _read(tmp_path: Path, data: object) -> RunSpec:
    return read_suite(_write(tmp_path, data))


def _task(tmp_path: Path, **keys: object) -> Task:
    return _read(tmp_path, {"tests": [{"id": "a", "prompt": "p", **keys}]}).tasks[0]


def test_only_tests_are_required(tmp_path: Path) -> None:
    brief = _read(tmp_path, {"tests": [{"id": "a", "prompt": "hello"}]})
    assert brief.name == "suite"
    (task,) = brief.tasks
    assert (task.id, task.messages) == ("a", (Message(role="user", content="hello"),))
    assert (task.scorers, task.target, task.time_s, task.category) == ((), None, None, None)
    assert brief.models == ()


def test_every_documented_key_of_a_test_arrives_and_unknown_ones_are_kept(tmp_path: Path) -> None:
    task = _task(
        tmp_path,
        name="N",
        category="c",
        reasoning_type="multi_step",
        description="D",
        parameters={"max_tokens": 5, "stream": True, "effort": "low"},
        metadata={"domain": "d", "timeout_seconds": 7},
        evaluation_config={"reasoning_type": "general", "custom_weights": {"x": 1}},
        api_type="completions",
        expected="e",
        pass_threshold=0.5,
        favourite_colour={"any": ["thing", None]},
    )
    assert (task.name, task.category, task.api_type, task.target) == ("N", "c", "completions", "e")
    assert task.parameters == {"max_tokens": 5, "stream": True, "effort": "low"}
    assert (task.time_s, task.pass_threshold) == (7.0, 0.5)
    assert task.metadata == {
        "favourite_colour": {"any": ["thing", None]},
        "domain": "d",
        "timeout_seconds": 7,
        "description": "D",
        "reasoning_type": "multi_step",
        "evaluation_config": {"reasoning_type": "general", "custom_weights": {"x": 1}},
    }


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ({"prompt": "p"}, r"key 'tests\[1\]': `id` is missing"),
        ({"id": " ", "prompt": "p"}, r"tests\[1\]: `id` is empty"),
        (
            {"id": 5, "prompt": "p"},
            r"key 'tests\[1\]\.id': a text is expected, not 5: write it in quotes",
        ),
        ({"id": "ok", "prompt": "p"}, r"test 'ok' is defined twice"),
        (
            {"id": "x", "prompt": 5},
            r"'tests\[1\]\.prompt': a text is expected, not 5: .* \(test 'x'\)",
        ),
        ({"id": "x", "prompt": "p", "parameters": []}, r"'tests\[1\]\.parameters'.*\(test 'x'\)"),
        ({"id": "x", "prompt": "p", "category": 1}, r"'tests\[1\]\.category'.*\(test 'x'\)"),
        ({"id": "x", "prompt": "p", "scorers": "exact"}, r"'tests\[1\]\.scorers'.*\(test 'x'\)"),
        (
            {"id": "x", "prompt": "p", "scorers": [{"scorer": "exact", "weigth": 1}]},
            r"unknown key 'weigth'; did you mean 'weight'\?",
        ),
        (
            {"id": "x", "prompt": "p", "pass_threshold": 5},
            r"'tests\[1\]\.pass_threshold'.* at most 1 ",
        ),
        ({"id": "x"}, r"test 'x': write either `prompt` or `messages`$"),
        (
            {"id": "x", "promt": "p"},
            r"test 'x': write either .*; did you mean `prompt` by 'promt'\?",
        ),
        ({"id": "x", "message": []}, r"did you mean `messages` by 'message'\?"),
        (
            {"iid": "x", "prompt": "p"},
            r"'tests\[1\]': `id` is missing; is 'iid' a misspelling of it\?",
        ),
        (
            {"id": "x", "prompt": "p", "messages": []},
            r"test 'x': `messages` is empty",
        ),
        ({"id": "x", "messages": []}, r"test 'x': `messages` is empty"),
        (
            {"id": "x", "messages": [{"role": "user"}]},
            r"'tests\[1\]\.messages\[0\]'.*`content`.*\(test 'x'\)",
        ),
        (
            {"id": "x", "prompt": "p", "metadata": {"timeout_seconds": "5"}},
            r"test 'x': `metadata.timeout_seconds` must be a number over 0, not '5'",
        ),
        ({"id": "x", "prompt": "p", "metadata": {"timeout_seconds": 0}}, r"over 0, not 0"),
        ({"id": "x", "prompt": "p", "metadata": {"timeout_seconds": True}}, r"over 0, not True"),
        (7, r"'tests\[1\]': a table of keys and values is expected, not 7"),
    ],
)
def test_a_wrong_test_is_refused_with_its_name_and_the_key(
    tmp_path: Path, test: object, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _read(tmp_path, {"tests": [{"id": "ok", "prompt": "p"}, test]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"tests": []}', r"suite\.json:1: there are no tests to run; add at least one"),
        ("", r"suite\.json is empty; it must hold JSON"),
        ('{"tests": [\n{"id": "a",}\n]}', r"suite\.json:2: not valid JSON"),
        ("[]", r"a JSON object is expected"),
        ("{}", r"suite.json: `tests` is missing"),
        (
            '{"tests": {}}',
            r"json:1: key 'tests': a list is expected, not a table of keys and values: write it in \[ \]$",
        ),
        (
            '{"tests": [{"id": "NaN",\n "prompt": "p", "expected": NaN}]}',
            r"json:2: .*NaN is not a JSON value; .* \(column 29\)",
        ),
        (
            '{"tests": [{"id": "1e999",\n "prompt": "p",\n"expected": 1e999}]}',
            r"json:3: .*1e999 is out of range; .* \(column 13\)",
        ),
        ('{"tests": [\n\n{"id": "a", "prompt": "\\ud83d"}]}', r"json:3: \\ud83d is half a char"),
        ('{"tests": [{"id": "a", "prompt": "\\udc00x"}]}', r"json:1: \\udc00 is half a char"),
        (b'{"tests":\n[{"id": "\xff"}]}', r"suite\.json:2: not UTF-8 text \(byte 19\)"),
        ('{"tests": ' + "[" * 500 + "]" * 500 + "}", r"nested more than 200 levels deep"),
        ('{"tests": ' + "[" * 50_000 + "]" * 50_000 + "}", r"nested more than 200 levels deep"),
        ('{"tests": ' + "[" * 50_000, r"nested more than 200 levels deep|not valid JSON"),
    ],
)
def test_what_is_no_suite_is_refused_with_the_place(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _read(tmp_path, text)


def test_a_whole_emoji_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf{"tests": [{"id": "a", "prompt": "\\ud83d\\ude00 \\\\ud800"}]}'
    assert _read(tmp_path, text).tasks[0].messages[0].content == "😀 \\ud800"


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json cannot be read: No such file"):
        read_suite(tmp_path / "none.json")


def test_prompt_and_messages_that_say_the_same_are_one_question(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "p"}]
    task = _task(tmp_path, messages=asked)
    assert (task.messages, task.prompt) == ((Message(role="user", content="p"),), None)
    assert task.digest == _task(tmp_path).digest
    parts = [{"role": "user", "content": [{"type": "text", "text": "p"}]}]
    assert _task(tmp_path, messages=parts).digest == task.digest
    assert _task(tmp_path, prompt=" ", messages=asked).prompt is None


def test_a_prompt_that_differs_from_the_messages_is_part_of_the_identity(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "q"}]
    one, other = (_task(tmp_path, prompt=p, messages=asked) for p in ("p", "o"))
    assert (one.prompt, other.prompt) == ("p", "o")
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("expected", "scorers"),
    [
        ("word", ["includes"]),
        (["a", "b"], ["includes"]),
        (4, ["numeric"]),
        (0.5, ["numeric"]),
        (True, ["includes"]),
        ({"k": 1}, ["json"]),
        (None, []),
    ],
)
def test_an_answer_is_checked_by_the_type_of_its_target(
    tmp_path: Path, expected: object, scorers: list[str]
) -> None:
    assert [s.name for s in _task(tmp_path, expected=expected).scorers] == scorers


def test_scorers_come_from_the_test_then_the_suite_then_the_run_then_the_target(
    tmp_path: Path,
) -> None:
    tests = [
        {"id": "own", "prompt": "p", "expected": "e", "scorers": ["exact"]},
        {"id": "none", "prompt": "p", "expected": "e", "scorers": []},
        {"id": "rest", "prompt": "p", "expected": "e"},
    ]

    def names(suite: object, scoring: Scoring) -> dict[str, list[str]]:
        brief = read_suite(_write(tmp_path, suite), scoring=scoring)
        return {t.id: [s.name for s in t.scorers] for t in brief.tasks}

    run = Scoring(scorers=(ScorerSpec(name="choice"),))
    fixed: dict[str, list[str]] = {"own": ["exact"], "none": []}
    with_suite = {"tests": tests, "scorers": ["numeric"]}
    assert names(with_suite, run) == {**fixed, "rest": ["numeric"]}
    assert names({"tests": tests}, run) == {**fixed, "rest": ["choice"]}
    assert names({"tests": tests}, Scoring()) == {**fixed, "rest": ["includes"]}


def test_a_style_heuristic_never_weighs(tmp_path: Path) -> None:
    task = _task(tmp_path, evaluation_config={"reasoning_type": "general"})
    assert [(s.name, s.weight) for s in task.scorers] == [("reasoning", 0.0)]
    task = _task(tmp_path, evaluation_config={"reasoning_type": "general"}, expected="x")
    assert task.scorers == (ScorerSpec(name="includes"),)


def test_the_time_limit_of_a_test_wins_over_that_of_the_suite(tmp_path: Path) -> None:
    suite = {
        "global_settings": {"default_timeout_seconds": 30},
        "tests": [
            {"id": "own", "prompt": "p", "metadata": {"timeout_seconds": 5}},
            {"id": "rest", "prompt": "p"},
        ],
    }
    assert [t.time_s for t in _read(tmp_path, suite).tasks] == [5.0, 30.0]


def test_the_metadata_file_beside_a_suite_says_where_it_is_sent(tmp_path: Path) -> None:
    metadata = {
        "api_config": {
            "endpoint": "http://localhost:1/v1/completions",
            "model": "m",
            "headers": {"A": "b"},
            "type": "completions",
            "timeout": 60,
            "note": "for people",
        },
        "global_settings": {
            "default_timeout_seconds": 20,
            "default_retry_attempts": 2,
            "delay_between_tests": 0.5,
            "anything": 1,
        },
        "execution_modes": {"concurrent": {"default_workers": 3, "max_workers": 8}},
    }
    _write(tmp_path, metadata, "test_suite_metadata.json")
    brief = _read(tmp_path, {"tests": [{"id": "a", "prompt": "p"}]})
    (model,) = brief.models
    assert (model.base_url, model.name) == ("http://localhost:1/v1/completions", "m")
    assert model.headers == {"A": "b"}
    assert model.settings["max_retries"] == 2
    assert model.settings["timeout_s"] == 60
    assert model.settings["api_type"] == "completions"
    assert (brief.pause_s, brief.parallel, brief.tasks[0].time_s) == (0.5, 3, 20.0)
    assert [Path(s.path).name for s in brief.sources] == ["suite.json", "test_suite_metadata.json"]


def test_one_file_may_hold_it_all_and_then_wins(tmp_path: Path) -> None:
    _write(
        tmp_path, {"api_config": {"endpoint": "http://other", "model": "o"}},
        "test_suite_metadata.json",
    )  # fmt: skip
    suite = {
        "api_config": {"endpoint": "http://x/v1", "model": "m"},
        "global_settings": {"delay_between_tests": 0.1},
        "test_categories": {"c": {"test_ids": ["a"]}},
        "tests": [{"id": "a", "prompt": "p"}],
    }
    brief = _read(tmp_path, suite)
    assert (brief.models[0].base_url, brief.pause_s) == ("http://x/v1", 0.1)
    assert brief.tasks[0].category == "c"


def test_categories_come_from_the_file_beside_for_tests_without_one(tmp_path: Path) -> None:
    categories = {
        "categories": {"logic": {"description": "d", "test_ids": ["a", "gone"]}},
        "reasoning_type_mapping": {"x": ["a"]},
    }
    _write(tmp_path, categories, "categories.json")
    suite = {"tests": [{"id": "a", "prompt": "p"}, {"id": "b", "prompt": "p", "category": "own"}]}
    assert [t.category for t in _read(tmp_path, suite).tasks] == ["logic", "own"]
    assert read_suite(tmp_path / "suite.json", companions=False).tasks[0].category is None


def test_where_the_categories_file_lists_a_test_it_goes_before_the_tests_own_word(
    tmp_path: Path,
) -> None:
    listed = {"one": {"test_ids": ["a", "b"]}, "two": {"test_ids": ["b"]}}
    _write(tmp_path, {"categories": listed}, "categories.json")
    tests = [{"id": i, "prompt": "p", "category": c} for i, c in (("a", "own"), ("b", "two"))]
    assert [t.category for t in _read(tmp_path, {"tests": tests}).tasks] == ["one", "two"]


def test_a_group_is_kept_with_the_task_and_is_not_its_identity(tmp_path: Path) -> None:
    alone, grouped, numbered = (
        _task(tmp_path, **keys) for keys in ({}, {"group": "g"}, {"group": 7})
    )
    assert (alone.group, grouped.group, numbered.group) == (None, "g", "7")
    assert alone.digest == grouped.digest
    assert "group" not in grouped.metadata


def test_a_broken_file_beside_a_suite_is_told_by_its_own_name(tmp_path: Path) -> None:
    _write(tmp_path, {"categories": {"c": {"test_ids": "a"}}}, "categories.json")
    with pytest.raises(UsageError, match=r"categories\.json:1: key 'categories\.c\.test_ids'"):
        _read(tmp_path, {"tests": [{"id": "a", "prompt": "p"}]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"global_settings": {"default_timeout_seconds": 0}},
        {"global_settings": {"default_timeout_seconds": "5"}},
        {"global_settings": {"delay_between_tests": -1}},
        {"execution_modes": {"concurrent": {"default_workers": 0}}},
        {"api_config": {"model": "m"}},
        {"scorers": [{"scorer": "exact", "weight": -1}]},
    ],
)
def test_a_knob_out_of_range_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        _read(tmp_path, {"tests": [{"id": "a", "prompt": "p"}], **wrong})


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(_json)
def test_any_file_is_read_or_refused_and_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for data in (value, {"tests": value}, {"tests": [value]}, {"tests": [], "suite_info": value}):
        try:
            _read(folder, json.dumps(data))
        except UsageError as error:
            assert str(error).startswith(str(folder))  # noqa: PT017 -- either way is right


@settings(deadline=None)
@given(_json)
def test_a_target_arrives_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    folder = tmp_path_factory.mktemp("target")
    assert _task(folder, expected=value, scorers=[]).target == json.loads(json.dumps(value))


def test_a_key_that_was_probably_misspelt_is_kept_and_told(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    tests = [
        {"id": "a", "prompt": "p", "expeted": "x", "tags": [1], "metadata": {"nam": "kept"}},
        {"id": "b", "prompt": "p", "expeted": "x", "descripton": "y"},
    ]
    path.write_text(json.dumps({"tests": tests}, indent=1))
    brief = read_suite(path)
    assert brief.tasks[0].metadata["expeted"] == "x"
    assert brief.notices == (
        f"{path}:6: 2 tests, 'a' first: the key 'expeted' is unknown here; did you mean `expected`?",
        f"{path}:18: test 'b': the key 'descripton' is unknown here; did you mean `description`?",
    )


def test_all_problems_of_a_suite_are_told_at_once_each_with_its_test(tmp_path: Path) -> None:
    tests = [
        {"id": "a", "prompt": "p", "category": 5, "pass_threshold": 2},
        {"id": "b"},
        {"id": "c", "messages": [], "metadata": {"timeout_seconds": -1}},
        {"prompt": "p"},
        {"id": "b", "prompt": "p"},
        {"id": "fine", "prompt": "p"},
        {"id": "d", "prompt": 7},
    ]
    path = _write(tmp_path, json.dumps({"tests": tests, "pass_threshold": "1"}, indent=1))
    with pytest.raises(UsageError) as caught:
        read_suite(path)
    assert [line.removeprefix(f"{path}:") for line in str(caught.value).split("\n")] == [
        "6: key 'tests[0].category': a text is expected, not 5: write it in quotes (test 'a')",
        "7: key 'tests[0].pass_threshold': a number of at most 1 is expected, not 2 (test 'a')",
        "19: key 'tests[3]': `id` is missing",
        "32: key 'tests[6].prompt': a text is expected, not 7: write it in quotes (test 'd')",
        "35: key 'pass_threshold': a number is expected, not a text: leave out the quotes",
        "9: test 'b': write either `prompt` or `messages`",
        "14: test 'c': `messages` is empty; write one at least",
        "16: test 'c': `metadata.timeout_seconds` must be a number over 0, not -1",
        "23: test 'b' is defined twice; give each its own `id`",
    ]


def test_problems_beyond_types_are_told_at_once_too(tmp_path: Path) -> None:
    tests = [{"id": "a"}, {"id": "b", "prompt": "p"}, {"id": "b", "prompt": "p"}, {"id": "c"}]
    with pytest.raises(UsageError) as caught:
        _read(tmp_path, {"tests": tests})
    assert len(str(caught.value).split("\n")) == 3


NOTE = (
    "is sent unchanged: there are no `vars` to fill it in from; give them, or write `literal: true`"
)


def test_a_placeholder_that_nothing_fills_in_is_noted_with_the_test(tmp_path: Path) -> None:
    tests = [
        {"id": "fine", "prompt": "What is {x}, {{}}, {{.Names}} or {{ 1 + 1 }}?"},
        {"id": "a", "prompt": "Translate {{ text }} into {{language}}."},
        {"id": "b", "messages": [{"role": "user", "content": "Who is {{user.name}}?"}]},
    ]
    path = _write(tmp_path, json.dumps({"tests": tests}, indent=1))
    (note,) = read_suite(path).notices
    assert note.startswith(f"{path}:7: 2 tasks, 'a' first: {{{{text}}}} {NOTE}")
    path = _write(tmp_path, json.dumps({"tests": tests[2:]}, indent=1))
    (note,) = read_suite(path).notices
    assert note.startswith(f"{path}:3: 'b': {{{{user.name}}}} {NOTE}")


def test_braces_that_are_meant_as_they_stand_are_sent_without_a_note(tmp_path: Path) -> None:
    text = r"Simplify \frac{{a}}{{b}}, and what does {{ user }} print in Jinja?"
    marked = {"tests": [{"id": "a", "prompt": text, "literal": True}]}
    whole = {"literal": True, "tests": [{"id": "a", "prompt": text}]}
    for suite in (marked, whole):
        brief = _read(tmp_path, suite)
        assert brief.notices == ()
        assert brief.tasks[0].messages[0].content == text
        assert brief.tasks[0].digest == _task(tmp_path, prompt=text).digest
    assert _read(
        tmp_path, {"literal": True, "tests": [{**marked["tests"][0], "literal": False}]}
    ).notices


def test_values_under_the_key_of_other_tools_are_refused_where_they_are_needed(
    tmp_path: Path,
) -> None:
    prompt, values = "Hello {{name}}", {"variables": {"name": "Ada"}}
    for suite in (
        {"tests": [{"id": "a", "prompt": prompt, **values}]},
        {"tests": [{"id": "a", "prompt": prompt}], **values},
    ):
        with pytest.raises(
            UsageError,
            match=r"json:1: test 'a': \{\{name\}\} would not be filled in: write `variables` as `vars`",
        ):
            _read(tmp_path, suite)
        assert _read(tmp_path, {**suite, "literal": True}).tasks[0].messages[0].content == prompt
    assert not _read(tmp_path, {"tests": [{"id": "a", "prompt": "Hello", **values}]}).notices


def test_vars_of_the_suite_and_of_a_test_are_filled_in_literally(tmp_path: Path) -> None:
    suite = {
        "vars": {"language": "German", "text": "unused"},
        "tests": [
            {"id": "a", "prompt": "Say {{text}} in {{ language }}.", "vars": {"text": "{{language}}"}},
            {"id": "b", "messages": [{"role": "system", "content": "Speak {{language}}."},
                                     {"role": "user", "content": "{% if text %}{{text | upper}}{% endif %}"}]},
            {"id": "c", "prompt": "{{text}}", "literal": True},
        ],
    }  # fmt: skip
    spec = _read(tmp_path, suite)
    a, b, c = spec.tasks
    assert a.messages[0].content == "Say {{language}} in German."
    assert a.vars == {"language": "German", "text": "{{language}}"}
    assert [m.content for m in b.messages] == ["Speak German.", "UNUSED"]
    assert c.messages[0].content == "{{text}}"
    assert spec.notices == ()


def test_vars_are_identity_only_where_there_are_any(tmp_path: Path) -> None:
    plain = _task(tmp_path, prompt="Hello Ada")
    filled = _task(tmp_path, prompt="Hello {{name}}", vars={"name": "Ada"})
    other = _task(tmp_path, prompt="Hello Ada", vars={"name": "Ada", "unused": 1})
    assert filled.messages == plain.messages == other.messages
    assert len({plain.digest, filled.digest, other.digest}) == 3
    assert "vars" not in plain.identity()


def test_a_variable_without_a_value_is_an_error_with_its_test_and_the_name_that_was_meant(
    tmp_path: Path,
) -> None:
    tests = [
        {"id": "a", "prompt": "Of {{contry}}?", "vars": {"country": "France"}},
        {"id": "b", "prompt": "Of\n{{ country | uper }}?", "vars": {"country": "France"}},
    ]
    path = _write(tmp_path, json.dumps({"tests": tests}, indent=1))
    with pytest.raises(UsageError) as caught:
        read_suite(path)
    first, second = str(caught.value).splitlines()
    assert first == (f"{path}:3: test 'a': no value for {{{{contry}}}}; did you mean 'country'?")
    assert second == (
        f"{path}:10: test 'b': line 2 of the prompt: no filter 'uper'; did you mean 'upper'?"
    )


def test_a_test_with_vars_needs_no_prompt_of_its_own(tmp_path: Path) -> None:
    test = {"id": "a", "vars": {"question": "2 + 2?"}, "expected": "4"}
    (task,) = _read(tmp_path, {"tests": [test]}).tasks
    assert task.messages == ()
    assert task.vars == {"question": "2 + 2?"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"max_tokens": "10"},
            "max_tokens': a whole number is expected, not a text: leave out the",
        ),
        ({"max_tokens": True}, "max_tokens': a whole number is expected, not true"),
        ({"max_tokens": 1.5}, "max_tokens': a whole number is expected, not 1.5"),
        (
            {"temperature": "0"},
            "temperature': a number is expected, not a text: leave out the quotes",
        ),
        ({"top_p": [1]}, "top_p': a number is expected, not a list"),
        (
            {"stream": "false"},
            "stream': true or false is expected, not a text: leave out the quotes",
        ),
    ],
)
def test_a_parameter_of_the_wrong_kind_is_refused_with_line_and_key(
    tmp_path: Path, parameters: dict[str, object], message: str
) -> None:
    test = {"id": "a", "prompt": "p", "parameters": parameters}
    path = _write(tmp_path, json.dumps({"tests": [test]}, indent=1))
    with pytest.raises(UsageError) as caught:
        read_suite(path)
    told = str(caught.value)
    assert told.startswith(f"{path}:7: key 'tests[0].parameters.{message}")
    assert told.endswith("(test 'a')")


def test_parameters_that_are_right_or_unknown_arrive_as_they_stand(tmp_path: Path) -> None:
    given = {"max_tokens": -1, "temperature": 0, "seed": None, "stream": False, "mine": "10"}
    assert _task(tmp_path, parameters=given).parameters == given


def test_the_schema_of_a_suite_accepts_what_is_read_and_refuses_what_is_not() -> None:
    schema = json_schema("suite")
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    folder = Path(__file__).parents[2]
    for path in (
        folder / "examples" / "quick" / "suite.json",
        folder / "examples" / "reasoning" / "test_definitions" / "reasoning_tests_complete.json",
        folder / "tests" / "fixtures" / "instruct_suite" / "instruct_tests_complete.json",
    ):
        check.validate(json.loads(path.read_text()))
    wrongs: tuple[dict[str, Any], ...] = (
        {},
        {"tests": {}},
        {"tests": [{"prompt": "p"}]},
        {"tests": [{"id": 1}]},
    )
    for wrong in wrongs:
        assert not check.is_valid(wrong)
