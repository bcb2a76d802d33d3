"""Who plays a role: a model that the file names, found by its name before anything is asked."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import bakeoff
from bakeoff import UsageError
from bakeoff.core.events import Event, Notice
from bakeoff.formats.detect import read_path
from bakeoff.formats.models_file import read_models_file
from bakeoff.frontends.batch.models import ModelCatalog, helper, model_catalog
from support.loopback import Asked, Loopback, Reply, chat
from support.prepared_tasks import write_prepared

VERDICT = '{"reasoning": "right", "score": 10}'


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(lambda asked: chat(VERDICT if "response_format" in asked.body else "4")) as s:
        yield s


def _run_file(folder: Path, server: Loopback, judge: str) -> Path:
    path = folder / "run.toml"
    path.write_text(
        f"""\
models = [
  {{ model = "m", base_url = "{server.url}" }},
  {{ model = "big-one", name = "reviewer", base_url = "{server.url}" }},
]
scorers = [{{ scorer = "judge", settings = {{ rubric = "right?" }} }}]
tasks = [{{ id = "a", prompt = "2+2?" }}]

[roles]
judge = {judge}
"""
    )
    return path


@pytest.mark.parametrize(
    "judge", ['"reviewer"', '"big-one"', '{ model = "reviewer", parameters = { seed = 1 } }']
)
def test_a_role_may_be_named_after_a_model_of_the_file(
    tmp_path: Path, server: Loopback, judge: str
) -> None:
    run = bakeoff.run(_run_file(tmp_path, server, judge), output=tmp_path / "runs")
    assert [r.attempt.score for r in run.trials()] == [1.0, 1.0]
    judged = [asked.body for asked in server.requests if "response_format" in asked.body]
    assert {body["model"] for body in judged} == {"big-one"}
    assert all(body.get("seed") == (1 if "seed" in judge else None) for body in judged)


def test_the_name_of_a_model_still_means_it_where_the_command_line_names_others(
    tmp_path: Path, server: Loopback
) -> None:
    run_file = _run_file(tmp_path, server, '"reviewer"')
    run = bakeoff.run(run_file, models=["scripted/echo"], output=tmp_path / "runs")
    assert [r.attempt.score for r in run.trials()] == [1.0]


OWN_SCORER = """\
from bakeoff import Message, Request, Score


class Edited:
    def needs_roles(self, task):
        return ("editor",)

    async def score(self, task, outcome, context):
        ask = Request(messages=(Message(role="user", content=outcome.answer),))
        answer = await context.roles["editor"].complete(ask)
        return Score(scorer="edited", value=float(answer.text == "4"))
"""


def test_a_scorer_of_ones_own_says_which_role_it_cannot_do_without(
    tmp_path: Path, server: Loopback
) -> None:
    (tmp_path / "own_scorer.py").write_text(OWN_SCORER)
    path = tmp_path / "run.toml"
    text = f"""\
models = [{{ model = "m", base_url = "{server.url}" }}]
scorers = ["own_scorer:Edited"]
tasks = [{{ id = "a", prompt = "2+2?" }}]
"""
    path.write_text(text)
    with pytest.raises(UsageError, match=r"scored by an editor: say which model with \[roles.edi"):
        bakeoff.run(path, output=tmp_path / "runs")
    assert not server.requests
    path.write_text(f'{text}roles = {{ editor = "m" }}\n')
    run = bakeoff.run(path, output=tmp_path / "runs")
    assert [r.attempt.score for r in run.trials()] == [1.0]


def test_a_misspelt_role_is_refused_with_its_place_before_anything_is_asked(
    tmp_path: Path, server: Loopback
) -> None:
    with pytest.raises(UsageError) as caught:
        bakeoff.run(_run_file(tmp_path, server, '"reviwer"'), output=tmp_path / "runs")
    told = str(caught.value)
    assert "run.toml:9: key 'roles.judge': no model is called 'reviwer'" in told
    assert "did you mean 'reviewer'? there are: m, reviewer, big-one" in told
    assert not server.requests
    assert not (tmp_path / "runs").exists()


def _ollama(asked: Asked) -> Reply:
    assert asked.path == "/api/tags"
    body = b'{"models": [{"name": "llama3:8b"}]}'
    return Reply(headers={"Content-Type": "application/json"}, body=body)


def test_a_role_that_the_ollama_does_not_have_is_refused_before_anything_is_asked(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Loopback(_ollama, gets=True) as ollama:
        monkeypatch.setenv("OLLAMA_HOST", ollama.url.removesuffix("/v1"))
        with pytest.raises(UsageError) as caught:
            bakeoff.run(_run_file(tmp_path, server, '"somebody"'), output=tmp_path / "runs")
    told = str(caught.value)
    assert "run.toml:9: key 'roles.judge': the Ollama at http://127.0.0.1:" in told
    assert "has no model 'somebody'; it has: llama3:8b; get it with" in told
    assert not server.requests


def test_a_role_of_an_ollama_that_is_not_there_is_refused_before_anything_is_asked(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    told: list[Event] = []
    with pytest.raises(
        UsageError, match=r"key 'roles.judge': nothing answers at http://127.0.0.1:9"
    ):
        bakeoff.run(
            _run_file(tmp_path, server, '"ollama/llama3:8b"'),
            output=tmp_path / "runs",
            listener=told.append,
        )
    assert not server.requests


def test_a_run_says_what_a_role_without_a_provider_was_taken_for(
    tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []

    def answer(asked: Asked) -> Reply:
        if asked.path == "/api/tags":
            return _ollama(asked)
        reply = b'{"model": "llama3:8b", "message": {"content": "%s"}, "done": true}'
        return Reply(body=reply % VERDICT.replace('"', '\\"').encode())

    with Loopback(answer, gets=True) as ollama:
        monkeypatch.setenv("OLLAMA_HOST", ollama.url.removesuffix("/v1"))
        run_file = _run_file(tmp_path, server, '"llama3:8b"')
        bakeoff.run(run_file, output=tmp_path / "runs", listener=told.append)
    lines = [event.text for event in told if isinstance(event, Notice)]
    assert (
        "role 'judge': model 'llama3:8b' is taken as ollama/llama3:8b; write that to be sure"
        in lines
    )


def _rollouts(folder: Path, judge: str, model: str = "fast") -> Path:
    write_prepared(folder / "task")
    path = folder / "rollouts.toml"
    path.write_text(
        f"""\
tasks = [{{ prepared_dir = "task", model = "{model}" }}]

[models]
fast = "openai/gpt-5-mini"
careful = {{ model = "big", base_url = "http://127.0.0.1:9/v1" }}

[roles]
judge = "{judge}"
"""
    )
    return path


def test_a_role_of_rollouts_may_be_one_of_the_files_models(tmp_path: Path) -> None:
    judge = read_path(_rollouts(tmp_path, "careful")).conditions.roles["judge"]
    assert (judge.name, judge.base_url) == ("big", "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("judge", "model", "line"), [("carefull", "fast", 8), ("careful", "fasst", 1)]
)
def test_a_misspelt_name_in_rollouts_is_refused_with_its_place(
    tmp_path: Path, judge: str, model: str, line: int
) -> None:
    with pytest.raises(UsageError) as caught:
        read_path(_rollouts(tmp_path, judge, model))
    assert f"rollouts.toml:{line}: key " in str(caught.value)
    assert "there are: fast, careful" in str(caught.value)


def _market(folder: Path) -> ModelCatalog:
    path = folder / "models_config.yaml"
    path.write_text(
        "models:\n"
        "  - {name: gpt-5, provider: openai, display_name: Five, enabled: false}\n"
        "  - {name: claude-x, provider: anthropic, api_key: sk-1, display_name: Claude}\n"
    )
    return model_catalog([], read_models_file(path), {})


@pytest.mark.parametrize("name", ["Five", "gpt-5", "openai/gpt-5"])
def test_a_batch_judge_that_is_switched_off_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"--judge .* cannot be run: it is switched off in"):
        helper("judge", name, _market(tmp_path))


def test_a_batch_judge_is_found_by_its_name_and_a_misspelt_one_is_refused(tmp_path: Path) -> None:
    there = _market(tmp_path)
    assert helper("judge", "Claude", there).full_name == "anthropic/claude-x"
    assert helper("judge", "ollama/mine", there).name == "ollama/mine"
    with pytest.raises(UsageError, match="--judge: no model 'Clyde' is there; there are: claude-x"):
        helper("judge", "Clyde", there)
