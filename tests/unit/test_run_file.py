"""Bakeoff's own TOML: every key, and what each does."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from bakeoff import app
from bakeoff.app import checks
from bakeoff.core.budget import Cap
from bakeoff.core.candidate import AgentSpec, EndpointLimits, PromptSpec
from bakeoff.core.errors import UsageError
from bakeoff.core.run_spec import Adaptive, RunSpec
from bakeoff.core.task import Message, ScorerSpec
from bakeoff.core.workspace import SandboxSpec
from bakeoff.formats.detect import json_schema, read_suite_file
from bakeoff.formats.run_file import RunFile, read_run_file

EVERY_KEY = """
name = "all"
description = "for people"
suites = ["suite.json"]
rollouts = 3
parallel = 4
executor = "ray"
workers = 3
ray_address = "10.0.0.5:6379"
pause_s = 0.25
warm_up = true
give_up_after_s = 30
keep_going = true
trust = true
allow_env = ["MY_API_KEY"]
parameters = { temperature = 0.5, top_p = 0.9 }
scorers = ["exact", { scorer = "includes", weight = 2, settings = { all = true } }]
pass_threshold = 0.6
prices = "my/prices.toml"
models = ["scripted", { model = "m", name = "label", base_url = "http://x/v1", api_key = "${K}", headers = { A = "b" }, parameters = { seed = 1 }, settings = { max_retries = 0 } }]
agents = ["direct", { agent = "mine:solve", name = "me", version = "2", settings = { n = 1 } }]

[limits]
time_s = 9
requests = 8
output_tokens = 7
tokens = 70
cost_usd = 0.5
attempts = 6
interventions = 3

[sandbox]
name = "docker"
settings = { default_image = "i" }

[endpoints]
"http://y" = { max_concurrency = 2, rpm = 60, tpm = 600, adaptive = false }
openai = { rpm = 30 }

[budget]
max_cost_usd = 12.5
max_tokens = 1000

[roles]
instructor = "openai/x"
[roles.judge]
model = "j"
base_url = "http://y"

[adaptive]
precision = 0.1
seed = 5

[[data]]
path = "rows.csv"
map = { id = "key", prompt = "{{q}}?", expected = "a", note = "n" }
where = "n != 'x'"
sample = 1
seed = 2

[[tasks]]
id = "own"
prompt = "p"
name = "Own"
category = "c"
group = "g"
parameters = { temperature = 0 }
expected = ["a", "b"]
scorers = ["numeric"]
pass_threshold = 0.1
time_s = 2
metadata = { any = "thing" }

[[prompts]]
name = "short"
text = "{{prompt}}!"
system = "Be brief."
literal = true

[[tasks]]
id = "talk"
messages = [{ role = "system", content = "s" }, { role = "user", content = [{ type = "text", text = "u" }] }]
"""


def _brief(tmp_path: Path, text: str, **overrides: str) -> RunSpec:
    suite = {
        "tests": [
            {"id": "s1", "prompt": "q", "expected": "a"},
            {"id": "s2", "prompt": "q", "expected": 4, "scorers": [], "pass_threshold": 0.3},
        ]
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    (tmp_path / "rows.csv").write_text("key,q,a,n\nd0,left out,a,x\nd1,what,b,y\n")
    path = tmp_path / "run.toml"
    path.write_text(text)
    return read_run_file(path, overrides)


def test_every_key_of_a_run_file_arrives(tmp_path: Path) -> None:
    brief = _brief(tmp_path, EVERY_KEY)
    assert (brief.name, brief.rollouts, brief.parallel, brief.pause_s) == ("all", 3, 4, 0.25)
    assert (brief.patience.give_up_after_s, brief.patience.keep_going) == (30, True)
    scripted, own = brief.models
    assert (scripted.name, scripted.label) == ("scripted", None)
    assert (own.name, own.label, own.base_url, own.api_key) == ("m", "label", "http://x/v1", "${K}")
    assert (own.headers, own.parameters, own.settings) == (
        {"A": "b"},
        {"seed": 1},
        {"max_retries": 0},
    )
    assert brief.agents == (
        AgentSpec(name="direct"),
        AgentSpec(name="mine:solve", version="2", settings={"n": 1}, label="me"),
    )
    short = PromptSpec(name="short", text="{{prompt}}!", system="Be brief.", literal=True)
    assert brief.prompts == (short,)
    limits = brief.conditions.limits
    assert (limits.time_s, limits.requests, limits.output_tokens) == (9, 8, 7)
    assert (limits.tokens, limits.cost_usd) == (70, 0.5)
    assert (brief.conditions.attempts, limits.interventions) == (6, 3)
    assert brief.sandbox == SandboxSpec(name="docker", settings={"default_image": "i"})
    assert brief.endpoints == {
        "http://y": EndpointLimits(max_concurrency=2, rpm=60, tpm=600, adaptive=False),
        "openai": EndpointLimits(rpm=30),
    }
    assert brief.cap == Cap(cost_usd=12.5, tokens=1000)
    assert brief.adaptive == Adaptive(precision=0.1, seed=5)
    assert brief.prices == str(tmp_path / "my/prices.toml")
    roles = brief.conditions.roles
    assert {name: (r.name, r.base_url) for name, r in roles.items()} == {
        "instructor": ("openai/x", None),
        "judge": ("j", "http://y"),
    }
    tasks = {task.id: task for task in brief.tasks}
    assert list(tasks) == ["s1", "s2", "d1", "own", "talk"]
    assert tasks["d1"].messages == ()  # the run's own prompts ask
    assert (tasks["d1"].target, tasks["d1"].vars["note"]) == ("b", "y")
    task = tasks["own"]
    assert (task.name, task.category, task.group, task.target) == ("Own", "c", "g", ["a", "b"])
    assert task.parameters == {"temperature": 0, "top_p": 0.9}
    assert task.scorers == (ScorerSpec(name="numeric"),)
    assert (task.pass_threshold, task.time_s, task.metadata) == (0.1, 2, {"any": "thing"})
    assert tasks["talk"].messages == (
        Message(role="system", content="s"),
        Message(role="user", content="u"),
    )
    assert len(brief.sources) == 3


def test_every_key_there_is_stands_in_the_test_above() -> None:
    for key in RunFile.__struct_fields__:
        assert f"\n{key} " in EVERY_KEY or f"[{key}]" in EVERY_KEY, key


def test_scorers_of_the_run_hold_for_tests_that_name_none_of_their_own(tmp_path: Path) -> None:
    tasks = {t.id: t for t in _brief(tmp_path, EVERY_KEY).tasks}
    of_the_run = (
        ScorerSpec(name="exact"),
        ScorerSpec(name="includes", weight=2.0, settings={"all": True}),
    )
    assert tasks["s1"].scorers == of_the_run
    assert tasks["talk"].scorers == of_the_run
    assert tasks["s2"].scorers == ()  # it says: none


def test_a_threshold_of_the_run_holds_for_tests_that_have_none_of_their_own(tmp_path: Path) -> None:
    tasks = {t.id: t for t in _brief(tmp_path, EVERY_KEY).tasks}
    assert {name: t.pass_threshold for name, t in tasks.items()} == {
        "s1": 0.6,
        "s2": 0.3,
        "d1": 0.6,
        "own": 0.1,
        "talk": 0.6,
    }


def test_naming_a_suite_in_a_run_file_does_not_change_what_its_tests_are(tmp_path: Path) -> None:
    through = _brief(tmp_path, 'suites = ["suite.json"]')
    alone = read_suite_file(tmp_path / "suite.json")
    assert [t.digest for t in through.tasks] == [t.digest for t in alone.tasks]


def test_the_endpoint_the_pause_and_the_workers_of_a_suite_hold_under_a_run_file(
    tmp_path: Path,
) -> None:
    suite = {
        "api_config": {"endpoint": "http://x/v1", "model": "m"},
        "global_settings": {"delay_between_tests": 0.5},
        "execution_modes": {"concurrent": {"default_workers": 3}},
        "tests": [{"id": "a", "prompt": "p"}],
    }
    (tmp_path / "with.json").write_text(json.dumps(suite))
    brief = _brief(tmp_path, 'suites = ["with.json"]')
    assert (brief.models[0].name, brief.pause_s, brief.parallel) == ("m", 0.5, 3)
    brief = _brief(tmp_path, 'suites = ["with.json"]\npause_s = 0\nparallel = 1\nmodels = ["n"]')
    assert (brief.models[0].name, brief.pause_s, brief.parallel) == ("n", 0.0, 1)


def test_a_setting_can_switch_the_pause_of_a_suite_off(tmp_path: Path) -> None:
    suite = {
        "global_settings": {"delay_between_tests": 5},
        "tests": [{"id": "a", "prompt": "p", "expected": "x"}],
    }
    path = tmp_path / "s.json"
    path.write_text(json.dumps(suite))
    brief = read_suite_file(path, {"pause_s": "0", "scorers": '["exact"]', "rollouts": "2"})
    assert (brief.pause_s, brief.rollouts) == (0.0, 2)
    assert brief.tasks[0].scorers == (ScorerSpec(name="exact"),)


def test_settings_win_over_the_file(tmp_path: Path) -> None:
    brief = _brief(tmp_path, "rollouts = 2\n[limits]\ntime_s = 5\n", **{"limits.time_s": "7"})
    assert (brief.rollouts, brief.conditions.limits.time_s) == (2, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", r"run\.toml:1: unknown key 'x'"),
        ("\n[limits]\n\ntime = 3\n", r"run\.toml:4: unknown key 'time'; did you mean 'time_s'\?"),
        ("[roles.judge]\nmodle = 'x'\n", r"run\.toml:2: unknown key 'modle'; .*'model'"),
        ("\n[[tasks]]\nid = 'a'\n", r"toml:2: task 'a': write either `prompt` or `messages`"),
        (
            "[[tasks]]\nid = 'a'\nprompt = 'x'\nmessages = []\n",
            r"run\.toml:4: task 'a': `messages` is empty",
        ),
        ("[[tasks]]\nid = 'a'\nmessages = []\n", r"run\.toml:3: task 'a': `messages` is empty"),
        ("[[tasks]]\nprompt = 'x'\n", r"run\.toml:1: key 'tasks\[0\]': `id` is missing"),
        (
            "[[tasks]]\nid = 's1'\nprompt = 'x'\n[[tasks]]\nid = 's1'\nprompt = 'y'\n",
            r"run\.toml:5: task 's1' is defined twice",
        ),
        ("\nsuites = ['suite.json', 'suite.json']", r"run\.toml:2: task 's1' is defined twice"),
        ("suites = ['none.json']", r"run\.toml:1: key 'suites': .*none\.json does not exist"),
        (
            "scorers = [{ scorer = 'x', weight = -1 }]",
            r"run\.toml:1: key 'scorers\[0\].weight': .* 0 or more",
        ),
        (
            "[[tasks]]\nid='a'\nmessages=[{role='user', content=[{type='image_url'}]}]",
            r"run\.toml:3: task 'a': a part of `content` is \{\"text\": \"\.\.\.\"\}",
        ),
    ],
)
def test_a_wrong_run_file_is_refused_with_the_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        _brief(tmp_path, text)


def test_the_schema_is_one_and_knows_every_key() -> None:
    schema: Any = json_schema("run")
    jsonschema.Draft202012Validator.check_schema(schema)
    defined = schema["$defs"]["RunFile"]
    assert set(defined["properties"]) == set(RunFile.__struct_fields__)
    assert defined["additionalProperties"] is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('model = "openai/x"\ntemperature = 0\n', r"an agent of an agent benchmark; .*--agents"),
        ('objectve = "x"\n', r"run\.toml:1: unknown key 'objectve'; did you mean 'objective'\?"),
        ("\n[benchmrk]\nx = 1\n", r"run\.toml:2: unknown key 'benchmrk'; .*'benchmark'"),
        ('[[tasks]]\nprepard_dir = "x"\nmodel = "y"\n', r"run\.toml:2: .*'prepared_dir'"),
        ('name = "x"\n', r"run\.toml: it has nothing to run; add `suites` or \[\[tasks\]\]"),
        ('models = ["a/b"]\n[[tasks]]\nid = "a"\nprompt = "p"\n', r"run\.toml:1: model 'a/b': no"),
        ('agents = ["a"]\n[[tasks]]\nid = "a"\nprompt = "p"\n', r"run\.toml:1: no agent is called"),
        (
            '[[tasks]]\nid = "a"\nprompt = "p"\n[roles]\njudge = "a/b"\n',
            r"run\.toml:5: model 'a/b': no provider is called 'a' .* with `base_url`",
        ),
        (
            'sandbox = "dokcer"\n[[tasks]]\nid = "a"\nprompt = "p"\n',
            r"no sandbox is called 'dokcer'",
        ),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_with_what_was_probably_meant(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        app.plan(path, models=() if "models" in text else ["scripted"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'objective = "o"\n[roles]\ninstructr = "scripted"\n',
            r"say which model leads it .*; is \[roles\.instructr\] a misspelling of it\?",
        ),
        (
            '[[tasks]]\nid = "a"\nprompt = "p"\n'
            'scorers = [{ scorer = "judge", settings = { rubric = "r" } }]\n[roles]\njugde = "scripted"\n',
            r"scored by a judge.*; is \[roles\.jugde\] a misspelling of it\?",
        ),
    ],
)
def test_a_role_that_was_probably_misspelt_is_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        app.run(path, models=["scripted"], output=tmp_path / "runs")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\n', r"run\.toml: it has nothing to run"),
        ('prices = "gone.toml"\n[[tasks]]\nid = "a"\nprompt = "p"\n', r"gone\.toml cannot be read"),
        (
            'sandbox = "dokcer"\n[[tasks]]\nid = "a"\nprompt = "p"\n',
            r"no sandbox is called 'dokcer'",
        ),
    ],
)
def test_validate_finds_what_a_run_would_stumble_over(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        checks.check(path)


def test_all_problems_of_the_tasks_in_a_run_file_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[[tasks]]\nid = 'a'\n[[tasks]]\nid = 'b'\nmessages = []\n")
    with pytest.raises(UsageError) as caught:
        read_run_file(path)
    assert str(caught.value).split("\n") == [
        f"{path}:1: task 'a': write either `prompt` or `messages`",
        f"{path}:5: task 'b': `messages` is empty; write one at least",
    ]


def test_a_placeholder_in_a_task_of_a_run_file_is_noted_unless_it_is_literal(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.toml"
    task = '[[tasks]]\nid = "a"\nprompt = "Hello {{name}}"\n'
    path.write_text(task)
    (note,) = read_run_file(path).notices
    assert note.startswith(f"{path}:1: 'a': {{{{name}}}} is sent unchanged")
    path.write_text(f"{task}literal = true\n")
    assert read_run_file(path).notices == ()


def test_parameters_of_the_wrong_kind_are_refused_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        "parameters = { max_tokens = '1' }\n"
        "[[tasks]]\nid = 'a'\nprompt = 'p'\nparameters.seed = 'x'\n"
        "[[models]]\nmodel = 'm'\n[models.parameters]\ntemperature = '0'\n"
        "[roles.judge]\nmodel = 'j'\nparameters = { stream = 1 }\n"
    )
    with pytest.raises(UsageError) as caught:
        read_run_file(path)
    told = [line.removeprefix(f"{path}:") for line in str(caught.value).split("\n")]
    assert [line.partition("': ")[0] for line in told] == [
        "1: key 'parameters.max_tokens",
        "5: key 'tasks[0].parameters.seed",
        "9: key 'models[0].parameters.temperature",
        "12: key 'roles.judge.parameters.stream",
    ]
    path.write_text("")
    with pytest.raises(UsageError, match=r"^--set: key 'parameters.max_tokens': a whole number"):
        read_run_file(path, {"parameters.max_tokens": '"10"'})


def test_a_table_where_a_list_belongs_is_told_in_the_words_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[tasks]\nid = 'a'\n")
    with pytest.raises(
        UsageError, match=r"a list is expected, .*; put the name of each in \[\[ \]\]"
    ):
        read_run_file(path)
