"""Options that were mixed up are answered with what was typed and what was meant."""

import json
from pathlib import Path

import pytest

from bakeoff.cli import call

BASE = '[benchmark]\nbenchmark_dir = "cases"\n'


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("suite.json").write_text(json.dumps({"tests": [{"id": "a", "prompt": "hi"}]}))
    Path("run.toml").write_text('suites = ["suite.json"]\nmodels = ["scripted"]\n')
    Path("base.toml").write_text(BASE)
    Path("agent_configs").mkdir()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run suite.json -m scripted --agents shell", "suite.json is not one; did you mean --agent shell?"),
        ("run run.toml --agents codx", "run.toml is not one; did you mean --agent codex?"),
        ("run suite.json -m scripted --agents mine:solve", "did you mean --agent mine:solve?"),
        ("run agent_configs -m scripted --agents agent_configs", "agent_configs is not one; the name of an agent goes to --agent"),
        ("run base.toml --agents shell", '--agents shell: there is no such file or folder of agents; an agent file with framework = "shell"'),
        ("run base.toml --agents nowhere/x", "--agents nowhere/x: there is no such file or folder of agents"),
        ("run base.toml --agent agent_configs", "write --agents agent_configs"),
        ("run base.toml --agent one.toml", "write --agents one.toml"),
        ("run suite.json -m scripted --agent shel", "no agent is called 'shel': did you mean 'shell'?"),
        ("run --resume latest -m x --agents y --limit 1", "--model, --limit, --agents: a run that is resumed without its source"),
        ("run --resume latest --set rollouts=2", "--set: a run that is resumed without its source"),
    ],
)  # fmt: skip
def test_a_mixed_up_option_is_told_as_it_was_typed(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(words.split()) == 1
    said = capsys.readouterr().err
    assert says in said
    assert "benchmark.agent_config" not in said
    assert "overrides" not in said
    assert not Path("runs").exists()


def test_a_model_that_is_named_twice_is_told_of_before_it_costs_anything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["run", "suite.json", "-m", "scripted/echo", "-m", "scripted/echo", "--dry-run"]
    assert call(words) == 0
    said = capsys.readouterr()
    assert "note: model 'scripted/echo' is named 2 times and runs once" in said.err
    assert call([*words, "--json"]) == 0
    assert "runs once" in json.loads(capsys.readouterr().out)["notices"][0]


def test_a_part_of_a_run_is_selected_with_the_options_that_would_change_a_plan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["run", "suite.json", "-m", "scripted"]) == 0
    assert call(["run", "--resume", "latest", "--only", "-m", "scripted/echo", "--test", "a"]) == 0
    capsys.readouterr()
    assert call(["run", "--resume", "latest", "--only", "--set", "rollouts=2"]) == 1
    assert "--set: a run that is resumed without its source" in capsys.readouterr().err
